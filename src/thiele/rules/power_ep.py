"""Power expectation propagation: sites that match moments in the context of the others."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from thiele import small
from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal, gradient_matched
from thiele.rules.latents import tilted_moments


class PowerEP(AbstractLocalRule):
    r"""The site that gives the cavity the moments of the tilted density p(y | f)^α N(f; m₋, v₋) (paper, section 4.2).

    With the first two derivatives d₁, d₂ of log E p(y | f)^α in the cavity's mean, the tilted mean is m₋ + v₋ d₁ and

        α · precision = −(I + d₂ v₋)⁻¹ d₂,     α · shift = d₁ + α · precision (m₋ + v₋ d₁).

    A full step replaces the site; the paper's step, which mixes in a share α of the new site, is `step=power`.
    `power=1` is expectation propagation; a small power tends to CVI.
    """

    energy: ClassVar[str] = "power_ep"
    merit: ClassVar[str] = "residual"
    in_cavity: ClassVar[bool] = True
    stationary: ClassVar[bool] = True
    power: float = eqx.field(static=True, default=1.0)
    step: float = eqx.field(static=True, default=1.0)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not 0.0 < self.power <= 1.0:
            raise ValueError(f"`power` of PowerEP must be greater than 0 and at most 1, got {self.power!r}")

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        mean, var = left.marginal
        value, first, second = tilted_moments(likelihood, y, mean, var, self.power, self.quadrature)
        narrowing = jnp.eye(mean.shape[0], dtype=var.dtype) + second @ var
        share = -second / narrowing if mean.shape[0] == 1 else -small.solve(narrowing, second)[0]
        matched = gradient_matched(share / self.power, first / self.power, mean + var @ first, var, left.tied)
        return matched._replace(usable=matched.usable & left.proper, term=value / self.power)
