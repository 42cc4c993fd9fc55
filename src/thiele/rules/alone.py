"""Where sites begin: each datum alone with the prior."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractLocalRule, Cavity, Marginal, Proposal, gradient_matched

MOST_STEPS = 100
# In standard deviations of the prior: sweeps improve on the start anyway.
NEAR_ENOUGH = 1e-3


class Climb(NamedTuple):
    """Where the search for a mode is, what log p(y | f) does there, and the share of the way that it tries next."""

    f: Float[Array, ""]
    objective: Float[Array, ""]
    slope: Float[Array, ""]
    precision: Float[Array, ""]
    share: Float[Array, ""]
    away: Float[Array, ""]
    steps: Int[Array, ""]


class Alone(AbstractLocalRule):
    """Taylor's parabola where p(y | f) N(f) is highest, with N the cavity: for one latent function.

    For a count of 1000 that is near log 1000, where a parabola at the prior mean would overshoot by hundreds. EP does
    as well, with a quadrature, which takes the compiler several times as long. With several latent functions the mode
    is a poor guide (a datum alone is explained best by no noise at all), and sites begin with EP.
    """

    energy: ClassVar[str] = "laplace"
    merit: ClassVar[str] = "joint"
    in_cavity: ClassVar[bool] = False
    stationary: ClassVar[bool] = False
    power: ClassVar[float] = 1.0
    step: ClassVar[float] = 1.0
    quadrature: ClassVar[AbstractQuadrature | None] = None

    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        mean, var = left.marginal.mean[0], left.marginal.var[0, 0]
        sd = jnp.sqrt(jnp.maximum(var, jnp.finfo(var.dtype).tiny))

        def look(f: Array) -> tuple[Array, Array, Array]:
            of_value = jax.value_and_grad(lambda f: likelihood.log_prob(y, f))
            (value, first), (_, second) = jax.jvp(of_value, (f,), (jnp.ones_like(f),))
            return value - 0.5 * jnp.square((f - mean) / sd), first, -second

        def climb(at: Climb) -> Climb:
            # Newton's method, with the curvature of a hill: uphill wherever it begins.
            convex = jnp.maximum(at.precision, 0.0)
            aim = mean + var * (at.slope + convex * (at.f - mean)) / (1.0 + var * convex)
            tried = at.f + at.share * (aim - at.f)
            objective, slope, precision = look(tried)
            good = (objective >= at.objective) & jnp.isfinite(slope) & jnp.isfinite(precision)
            # The first step only looks at the mean; how far a whole step would lead says how near the mode is.
            away = jnp.where(at.steps == 0, jnp.inf, jnp.abs(aim - at.f) / sd)
            ahead = Climb(tried, objective, slope, precision, jnp.ones_like(sd), away, at.steps)
            back = at._replace(share=0.25 * at.share)
            chosen = jax.tree.map(lambda a, b: jnp.where(good, a, b), ahead, back)
            return chosen._replace(steps=at.steps + 1)

        def unfinished(at: Climb) -> Array:
            return (at.away > NEAR_ENOUGH) & (at.steps < MOST_STEPS) & (at.share > 1e-12)

        none = jnp.zeros_like(mean)
        start = Climb(mean, none - jnp.inf, none, none, none + 1.0, none + jnp.inf, jnp.array(0))
        end = lax.while_loop(unfinished, climb, start)
        site = end.precision[None, None], end.slope[None], end.f[None]
        return gradient_matched(*site, left.marginal.var, left.tied)
