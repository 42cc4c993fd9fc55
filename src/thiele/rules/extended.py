"""The extended Kalman smoother: Taylor's line through E[y | f] at the posterior mean."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal
from thiele.rules.latents import conditional_moments
from thiele.rules.linearised import as_matrices, linear_gaussian_site


class EKS(AbstractLocalRule):
    """y ≈ ω + Ω (f − m) + N(0, Var[y | f = m]),  ω = E[y | f = m],  Ω = ∂ω/∂m (paper, appendix C.5).

    Posterior linearisation with Taylor's line in place of the regression: no integral, and the variance of q is not
    used. Iterated to convergence it is a Gauss-Newton method. `quadrature` serves the energy only.
    """

    energy: ClassVar[str] = "power_ep"
    merit: ClassVar[str] = "residual"
    in_cavity: ClassVar[bool] = False
    stationary: ClassVar[bool] = False
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        def predicted(f: Array) -> tuple[Array, tuple[Array, Array]]:
            omega, noise = conditional_moments(likelihood, f)
            return omega, (omega, noise)

        slope, (omega, noise) = jax.jacfwd(predicted, has_aux=True)(q.mean)
        residual = likelihood.statistic(y) - omega
        matrices = as_matrices(slope, noise, residual, q.mean.shape[0])
        return linear_gaussian_site(q.mean, *matrices)
