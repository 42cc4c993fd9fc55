"""Laplace's approximation: Newton's method for the mode of p(f | y)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Marginal, Site, Update, gradient_matched, keep_finite
from thiele.rules.cavity import cavity
from thiele.rules.latents import log_prob


class Laplace(AbstractLocalRule):
    """precision = −∇² log p(y | m),  shift = ∇ log p(y | m) + precision m: Taylor's parabola at the mean of q.

    Its fixed point is the mode of p(f | y), and a sweep is a step of Newton's method towards it. Where log p is not
    concave the precision is bounded below; a step points uphill as long as q is a density. `quadrature` is not used.
    """

    energy: ClassVar[str] = "laplace"
    merit: ClassVar[str] = "joint"
    stationary: ClassVar[bool] = False
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def __call__(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Update:
        def slope(f: Array) -> tuple[Array, Array]:
            first = jax.grad(lambda f: log_prob(likelihood, y, f))(f)
            return first, first

        second, first = jax.jacfwd(slope, has_aux=True)(q.mean)
        rest, _ = cavity(q, site, 1.0)
        return keep_finite(gradient_matched(-second, first, q.mean, rest.var), site)
