"""The objective of a model and its gradient, exact or by a rule, and the posterior that belongs to it.

A model here is anything with `kernel`, `likelihood`, `mean`, `rule` and `inducing`. Two engines have one surface: with
Gaussian noise and a state at each datum the posterior is exact; otherwise sites are found by the model's rule,
warm-started from the ones before. Data are a `Series`, or `Tied` where the model has inducing times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thiele import approximate, exact
from thiele.approximate import setting
from thiele.chain import posterior
from thiele.likelihoods import has_gaussian_noise as gaussian_noise
from thiele.parameters import constrain, log_prior
from thiele.posterior import ChainPosterior, InducedPosterior
from thiele.precision import scalar_in_double
from thiele.rules import Site
from thiele.series import Series
from thiele.tied import Tied


def is_exact(model: Any) -> bool:
    """Whether the posterior is Gaussian without approximation. In space it may be, but goes by way of sites."""
    return has_gaussian_noise(model) and model.inducing is None and not model.kernel.in_space


def has_gaussian_noise(model: Any) -> bool:
    """Whether y is f plus Gaussian noise, so that f is on the scale of y."""
    return gaussian_noise(model.likelihood)


class Report(NamedTuple):
    """How inference went on the way to one value of the objective; all zero where it is exact."""

    sweeps: Int[Array, ""]
    repaired: Int[Array, ""]
    unconverged: Int[Array, ""]


def _exactly() -> Report:
    return Report(*(jnp.zeros((), int) for _ in range(3)))


def _value(model: Any, data: Series | Tied, start: Site | None) -> tuple[Float[Array, ""], tuple[Site | None, Report]]:
    if is_exact(model):
        value = exact.log_likelihood(model.kernel, model.likelihood, model.mean.value, data)
        return value, (None, _exactly())
    at = setting(model, data)
    found = approximate.find_sites(model.rule, at, start)
    value = approximate.converged_objective(model.rule, at, found)
    return value, (found.sites, Report(found.sweeps, found.repaired, 1 - found.converged))


@scalar_in_double
def log_likelihood(model: Any, data: Series | Tied) -> Float[Array, ""]:
    """log p(y), exact or as the rule's energy approximates it, differentiable in model and data."""
    return _value(model, data, None)[0]


@eqx.filter_jit
def objective(model: Any, data: Series | Tied) -> Float[Array, ""]:
    """What learning maximises: the log likelihood and the log priors."""
    return _value(model, data, None)[0] + log_prior(model)


@eqx.filter_jit
def objective_and_gradient(
    model: Any, vector: Float[Array, " free"], data: Series | Tied, start: Site | None
) -> tuple[tuple[Float[Array, ""], tuple[Site | None, Report]], Float[Array, " free"]]:
    """The same at free values `vector`, with its gradient there; sites start from `start`."""

    def of_vector(v: Array) -> tuple[Array, tuple[Site | None, Report]]:
        moved = constrain(model, v)
        value, rest = _value(moved, data, start)
        return value + log_prior(moved), rest

    return jax.value_and_grad(of_vector, has_aux=True)(vector)


@eqx.filter_jit
def alternate(
    model: Any, vector: Float[Array, " free"], data: Series | Tied, state: Any
) -> tuple[Float[Array, ""], Float[Array, " free"], Any, Int[Array, ""]]:
    """One round of the paper's schedule: one sweep of the sites, then the gradient of the energy with them held."""
    new, repaired = approximate.one_sweep(model.rule, setting(constrain(model, vector), data), state)
    sites = approximate.sites_of(new)

    def of_vector(v: Array) -> Array:
        moved = constrain(model, v)
        return approximate.held_objective(model.rule, setting(moved, data), sites) + log_prior(moved)

    value, gradient = jax.value_and_grad(of_vector)(vector)
    return value, gradient, new, repaired


@eqx.filter_jit
def begin(model: Any, data: Series | Tied) -> Any:
    """Where the paper's schedule begins."""
    return approximate.begin(model.rule, setting(model, data))


@eqx.filter_jit
def first_sites(model: Any, data: Series | Tied) -> Site:
    """Where sweeps to convergence begin."""
    return approximate.first_sites(setting(model, data))


@eqx.filter_jit
def find_sites(model: Any, data: Series | Tied) -> tuple[Site, Float[Array, ""], Report]:
    """Sites to convergence at the model's hyperparameters, their energy, and how it went."""
    found = approximate.find_sites(model.rule, setting(model, data))
    return found.sites, found.energy, Report(found.sweeps, found.repaired, 1 - found.converged)


@eqx.filter_jit
def condition(
    model: Any, data: Series | Tied, sites: Site | None
) -> tuple[ChainPosterior | InducedPosterior, Float[Array, ""] | None]:
    """The posterior at the model's hyperparameters, given the sites where it is not exact; else with log p(y)."""
    if sites is not None:
        return approximate.condition(model, data, sites), None
    chain, info, constant = exact.chain_and_information(model.kernel, model.likelihood, model.mean.value, data)
    states, log = posterior(chain, info)
    return ChainPosterior(jnp.asarray(data.time), states, info._replace(H=None)), log + constant


@eqx.filter_jit
def leave_one_out(model: Any, data: Series | Tied, sites: Site | None) -> Float[Array, " n"]:
    """log p(y_n | the others) for each datum in the order of time, without a refit."""
    at = setting(model, data)
    if sites is None:
        precision = jnp.broadcast_to(1.0 / model.likelihood.variance, data.y.shape)[:, None]
        sites = Site(precision * (data.y - model.mean.value)[:, None], precision[..., None])
    marginals, _ = at.data.smooth(at.chain, sites)
    return at.data.leave_one_out(model.rule, at.likelihood, at.chain, marginals, sites)


@eqx.filter_jit
def slack(model: Any, data: Tied, sites: Site) -> Float[Array, ""]:
    """About how many nats of log p(y) the inducing states lose."""
    at = setting(model, data)
    marginals, _ = data.smooth(at.chain, sites)
    return data.slack(model.rule, at.likelihood, at.chain, marginals, sites)
