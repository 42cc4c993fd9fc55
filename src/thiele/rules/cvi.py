"""Conjugate-computation variational inference: natural gradients of the ELBO as site updates."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal, gradient_matched
from thiele.rules.latents import expected_log_prob


class CVI(AbstractLocalRule):
    """precision = −2 ∂E/∂v,  shift = ∂E/∂m − 2 (∂E/∂v) m,  E = E_q log p(y | f),  q = N(m, v) (paper, section 4.1).

    A step of size ρ on the sites is a natural-gradient step of that size on the ELBO, which no accepted step lowers.
    """

    energy: ClassVar[str] = "elbo"
    merit: ClassVar[str] = "energy"
    in_cavity: ClassVar[bool] = False
    stationary: ClassVar[bool] = True
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        if likelihood.conjugate:
            # The same parabola under every q: with none asked for, no smoother has to run.
            q = Marginal(jnp.zeros_like(q.mean), jnp.eye(q.mean.shape[0], dtype=q.mean.dtype))
            left = Cavity(q, jnp.array(True), 1.0)
        expected = lambda mean, var: expected_log_prob(likelihood, y, mean, var, self.quadrature)  # noqa: E731
        by_mean, by_var = jax.grad(expected, argnums=(0, 1))(*q)
        rest = None if likelihood.log_concave else left.marginal.var
        return gradient_matched(-2.0 * by_var, by_mean, q.mean, rest, left.tied)
