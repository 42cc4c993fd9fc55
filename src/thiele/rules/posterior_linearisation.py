"""Posterior linearisation: the best line through E[y | f] under q, in place of the likelihood."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal
from thiele.rules.latents import predict_mean_var
from thiele.rules.linearised import as_matrices, linear_gaussian_site


class PL(AbstractLocalRule):
    """y ≈ ω + Ω (f − m) + N(0, B − Ω v Ω′),  Ω = ∂ω/∂m (paper, appendix C.5).

    ω and B are the mean and the variance of y under q: statistical linear regression. Needs the likelihood's
    conditional mean and variance. Ω is the derivative of ω, equal to E[E[y | f] (f − m)′] v⁻¹ and free of the inverse.
    """

    energy: ClassVar[str] = "power_ep"
    merit: ClassVar[str] = "residual"
    in_cavity: ClassVar[bool] = False
    stationary: ClassVar[bool] = False
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        def predicted(mean: Array) -> tuple[Array, tuple[Array, Array]]:
            omega, spread = predict_mean_var(likelihood, mean, q.var, self.quadrature)
            return omega, (omega, spread)

        slope, (omega, spread) = jax.jacfwd(predicted, has_aux=True)(q.mean)
        residual = likelihood.statistic(y) - omega
        slope, spread, residual = as_matrices(slope, spread, residual, q.mean.shape[0])
        noise = spread - slope @ q.var @ slope.T
        if noise.shape[0] == 1:
            # Quadrature may take more from the spread than there is; some noise always remains.
            noise = jnp.maximum(noise, jnp.sqrt(jnp.finfo(noise.dtype).eps) * spread)
        return linear_gaussian_site(q.mean, slope, noise, residual)
