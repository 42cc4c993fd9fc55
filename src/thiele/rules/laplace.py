"""Laplace's approximation: Newton's method for the mode of p(f | y)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal, gradient_matched
from thiele.rules.latents import log_prob


class Laplace(AbstractLocalRule):
    """precision = −∇² log p(y | m),  shift = ∇ log p(y | m) + precision m: Taylor's parabola at the mean of q.

    Its fixed point is the mode of p(f | y), and a sweep is a step of Newton's method towards it. Where log p is not
    concave the precision is bounded below; a step points uphill as long as q is a density. `quadrature` is not used.
    """

    energy: ClassVar[str] = "laplace"
    merit: ClassVar[str] = "joint"
    in_cavity: ClassVar[bool] = False
    stationary: ClassVar[bool] = False
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        def slope(f: Array) -> tuple[Array, Array]:
            first = jax.grad(lambda f: log_prob(likelihood, y, f))(f)
            return first, first

        second, first = jax.jacfwd(slope, has_aux=True)(q.mean)
        return gradient_matched(-second, first, q.mean, left.marginal.var, left.tied)
