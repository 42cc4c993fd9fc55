"""The value at which a distribution function reaches p: on an interval of the real line, and on the integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from thiele.likelihoods.special import log_cap

MAXIMUM_STEPS = 200
LARGEST_COUNT = 2.0**50


class Interval(NamedTuple):
    """An interval of the real line with a smooth coordinate u, evenly spaced where distributions live."""

    words: str
    contains: Callable[[Array], Array]
    to_value: Callable[[Array, Array, Array], Array]
    """From u, a typical location and a typical scale to a point of the interval."""
    reach: float = 0.9
    """The search spans ± this share of the largest exponent used."""


# sinh is linear near the location and exponential far from it: ±80 reaches 1e34 scales in double precision.
REAL_LINE = Interval("a number", lambda y: y == y, lambda u, location, scale: location + scale * jnp.sinh(u), 0.25)
POSITIVE_LINE = Interval("a number above 0", lambda y: y > 0, lambda u, location, _: location * jnp.exp(u))
HALF_LINE = Interval("a number of at least 0", lambda y: y >= 0, POSITIVE_LINE.to_value)
UNIT_INTERVAL = Interval(
    "a number strictly between 0 and 1", lambda y: (y > 0) & (y < 1), lambda u, *_: jax.nn.sigmoid(u)
)


def interval_quantile(
    cdf: Callable[[Array], Array],
    pdf: Callable[[Array], Array],
    p: Float[Array, ""],
    support: Interval,
    location: Float[Array, ""],
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """y with cdf(y) = p, by Newton steps inside a bracket that is halved at every third step.

    The bracket is that of a fixed range of the interval's coordinate, so nothing is assumed of the distribution; the
    number of steps is bounded, and usually about ten. Differentiable: the last Newton step is the implicit derivative.
    """
    dtype = jnp.result_type(location, scale, p)
    eps = jnp.finfo(dtype).eps
    location, scale = lax.stop_gradient((location, scale))

    def value(u):
        return support.to_value(u, location, scale)

    def excess_and_slope(u):
        y, dy = jax.jvp(value, (u,), (jnp.ones_like(u),))
        return cdf(y) - p, pdf(y) * dy

    def keep_going(state):
        low, high, u, move, step = state
        open_bracket = high - low > 2 * eps * jnp.maximum(jnp.abs(u), 1.0)
        return (step < MAXIMUM_STEPS) & open_bracket & (jnp.abs(move) > 2 * eps * jnp.maximum(jnp.abs(u), 1.0))

    def advance(state):
        low, high, u, _, step = state
        excess, slope = excess_and_slope(u)
        low, high = jnp.where(excess < 0, u, low), jnp.where(excess < 0, high, u)
        newton = u - excess / jnp.where(slope > 0, slope, 1.0)
        usable = (slope > 0) & (newton > low) & (newton < high) & (step % 3 < 2)
        # An exact hit ends the search; the midpoint would walk away from it.
        target = jnp.where(excess == 0, u, jnp.where(usable, newton, 0.5 * (low + high)))
        return low, high, target, target - u, step + 1

    reach = jnp.asarray(support.reach * log_cap(dtype), dtype)
    start = (-reach, reach, jnp.zeros((), dtype), jnp.ones((), dtype), 0)
    u = lax.stop_gradient(lax.while_loop(keep_going, advance, start)[2])
    y = lax.stop_gradient(value(u))
    density = lax.stop_gradient(pdf(y))
    correction = (cdf(y) - p) / jnp.where(density > 0, density, 1.0)
    return y - (correction - lax.stop_gradient(correction))


def integer_quantile(
    cdf: Callable[[Array], Array], p: Float[Array, ""], low: Float[Array, ""], high: Float[Array, ""]
) -> Float[Array, ""]:
    """The smallest integer k in [low, high] with cdf(k) ≥ p (`high` if there is none below it), by bisection."""

    def halve(state):
        below, reached, step = state
        middle = jnp.floor(0.5 * (below + reached))
        enough = cdf(middle) >= p
        return jnp.where(enough, below, middle), jnp.where(enough, middle, reached), step + 1

    dtype = jnp.result_type(p, low, high)
    start = (jnp.asarray(low - 1.0, dtype), jnp.asarray(jnp.maximum(low, high), dtype), 0)
    # The bound on the steps matters in single precision only, where large integers are more than one apart.
    return lax.while_loop(lambda state: (state[1] - state[0] > 1.0) & (state[2] < MAXIMUM_STEPS), halve, start)[1]


def count_bracket(p: Array, mean: Array, var: Array) -> tuple[Array, Array]:
    """Integers around the p quantile of a count with these moments (Cantelli's inequality, rounded outwards)."""
    sd = jnp.sqrt(var)
    odds = jnp.sqrt(jnp.clip(p, 1e-300, None) / jnp.clip(1.0 - p, 1e-16, None))
    low = jnp.clip(jnp.floor(mean - sd / odds) - 1.0, 0.0, LARGEST_COUNT)
    return low, jnp.clip(jnp.ceil(mean + sd * odds) + 1.0, 0.0, LARGEST_COUNT)
