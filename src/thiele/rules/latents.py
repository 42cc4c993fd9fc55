"""A likelihood's methods for any number of latents, one included, with the axis of the latents always there.

Likelihoods of one latent function take numbers and those of several take vectors; rules and energies take vectors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.slopes import change, moving


def log_prob(likelihood: AbstractLikelihood, y: Array, f: Float[Array, " L"]) -> Float[Array, ""]:
    """log p(y | f)."""
    return likelihood.log_prob(y, f[0] if likelihood.latents == 1 else f)


def conditional_moments(likelihood: AbstractLikelihood, f: Float[Array, " L"]) -> tuple[Array, Array]:
    """E[statistic(y) | f] and Var[statistic(y) | f]."""
    f = f[0] if likelihood.latents == 1 else f
    return likelihood.conditional_mean(f), likelihood.conditional_variance(f)


def expected_log_prob(
    likelihood: AbstractLikelihood,
    y: Array,
    mean: Float[Array, " L"],
    var: Float[Array, "L L"],
    quadrature: AbstractQuadrature | None,
) -> Float[Array, ""]:
    """E log p(y | f), f ~ N(mean, var)."""
    return _expected_log_prob(quadrature, likelihood, y, mean, var)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expected_log_prob(
    quadrature: AbstractQuadrature | None, likelihood: AbstractLikelihood, y: Array, mean: Array, var: Array
) -> Array:
    return likelihood.expected_log_prob(y, *_moments(likelihood, mean, var), quadrature)


@partial(_expected_log_prob.defjvp, symbolic_zeros=True)
def _(
    quadrature: AbstractQuadrature | None, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    """By the gradient, whoever asks: what a rule makes its site of and what the energy's derivative needs are then
    the same numbers, which the compiler finds once.
    """
    arguments, changes, whole = moving(primals, tangents)
    value, slopes = jax.value_and_grad(lambda some: _expected_log_prob.fun(quadrature, *whole(some)))(arguments)
    return value, change(slopes, changes)


def log_expected_power(
    likelihood: AbstractLikelihood,
    y: Array,
    mean: Float[Array, " L"],
    var: Float[Array, "L L"],
    power: float,
    quadrature: AbstractQuadrature | None,
) -> Float[Array, ""]:
    """log E p(y | f)^power, f ~ N(mean, var)."""
    return likelihood.log_expected_power(y, *_moments(likelihood, mean, var), power, quadrature)


def tilted_moments(
    likelihood: AbstractLikelihood,
    y: Array,
    mean: Float[Array, " L"],
    var: Float[Array, "L L"],
    power: float,
    quadrature: AbstractQuadrature | None,
) -> tuple[Float[Array, ""], Float[Array, " L"], Float[Array, "L L"]]:
    """`log_expected_power`, with its first and its second derivative in the mean."""
    value, first, second = likelihood.tilted_moments(y, *_moments(likelihood, mean, var), power, quadrature)
    return value, jnp.reshape(first, mean.shape), jnp.reshape(second, var.shape)


def predict_mean_var(
    likelihood: AbstractLikelihood,
    mean: Float[Array, " L"],
    var: Float[Array, "L L"],
    quadrature: AbstractQuadrature | None,
) -> tuple[Array, Array]:
    """Mean and variance of statistic(y), f ~ N(mean, var)."""
    return likelihood.predict_mean_var(*_moments(likelihood, mean, var), quadrature)


def _moments(likelihood: AbstractLikelihood, mean: Array, var: Array) -> tuple[Array, Array]:
    return (mean[0], var[0, 0]) if likelihood.latents == 1 else (mean, var)
