"""The top of a tilted density exp(l(f)) N(f; mean, var) of one latent value, and how wide it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# How far from the mean the mass may be, in standard deviations: exp(−32) is left out.
TAIL = 8.0


class Hill(NamedTuple):
    """Where l(f) + log N(f; mean, var) has its top, in standard deviations from the mean, and the width s there."""

    top: Float[Array, ""]
    width: Float[Array, ""]


def with_slopes(log_fn: Callable[[Array], Array], f: Array) -> tuple[Array, Array, Array]:
    """l, l′ and l″."""
    (log, slope), (_, curvature) = jax.jvp(jax.value_and_grad(log_fn), (f,), (jnp.ones_like(f),))
    return log, slope, curvature


def find_hill(
    function: Callable[..., Array], one_hill: bool, mean: Float[Array, ""], sd: Float[Array, ""], constants: list[Any]
) -> Hill:
    """That of l(f) = function(f, *constants), concave where there is `one_hill`, to a third of its width: nodes follow,
    not values.
    """
    log_fn = lambda z: function(mean + sd * z, *constants)  # noqa: E731

    def slopes(z: Array) -> tuple[Array, Array]:
        """Of l(f) − z²/2, and −l″ or 0 where that is negative."""
        _, slope, curvature = with_slopes(log_fn, z)
        return slope - z, jnp.maximum(-curvature, 0.0)

    def climb(state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, low, high, _, count = state
        slope, bend = slopes(z)
        low, high = jnp.where(slope > 0.0, z, low), jnp.where(slope > 0.0, high, z)
        width = 1.0 / (1.0 + bend)
        # The first steps are short: where an exponential is not yet felt, they would end far beyond it.
        reach = 2.0 * jnp.exp2(jnp.square(count))
        newton = z + jnp.clip(slope * width, -reach, reach)
        # Far out on an exponential Newton's steps are short; every third is a bisection.
        trusted = (newton >= low) & (newton <= high) & (count % 3.0 < 2.0)
        far = ~(jnp.abs(slope * width) <= 0.3 * jnp.sqrt(width))
        return jnp.where(trusted | ~far, newton, 0.5 * (low + high)), low, high, far, count + 1.0

    go_on = lambda state: state[3] & (state[4] < 100.0)  # noqa: E731
    start = _bracket(log_fn, mean) if one_hill else _sharpest(log_fn, mean)
    z, *_ = lax.while_loop(go_on, climb, (*start, jnp.array(True), jnp.zeros_like(mean)))
    _, bend = slopes(z)
    return Hill(z, 1.0 / jnp.sqrt(1.0 + jnp.where(jnp.isfinite(bend), bend, 0.0)))


Bracket = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]


def _bracket(log_fn: Callable[[Array], Array], mean: Array) -> Bracket:
    """Where to begin, and between what a concave function has its top: z = l′(z), and l′ falls."""
    z = jnp.zeros_like(mean)
    beyond = jax.grad(log_fn)(z)
    beyond = jnp.where(jnp.isfinite(beyond), beyond, 0.0)
    return z, jnp.minimum(z, beyond), jnp.maximum(z, beyond)


def _sharpest(log_fn: Callable[[Array], Array], mean: Array) -> Bracket:
    """The same for any function. A scan finds the hills; of those that matter the sharpest is taken: nodes around a
    broad one would miss it.
    """
    scan = jnp.arange(-2.0 * TAIL, 2.0 * TAIL + 1.0, dtype=mean.dtype) / 2.0
    heights = jax.vmap(lambda z: log_fn(z) - 0.5 * jnp.square(z))(scan)
    heights = jnp.where(jnp.isfinite(heights), heights, jnp.finfo(mean.dtype).min / 8.0)
    rises = jnp.diff(heights, prepend=heights[:1], append=heights[-1:])
    hill = (rises[:-1] >= 0.0) & (rises[1:] <= 0.0) & (heights >= jnp.max(heights) - 0.5 * TAIL**2)
    top = jnp.argmax(jnp.where(hill, rises[:-1] - rises[1:], -jnp.inf))
    z = scan[top]
    # Where the hill lies beyond the scan its top is where it would be if the slope stayed, or before.
    beyond = jax.grad(log_fn)(z)
    beyond = jnp.where(jnp.isfinite(beyond), beyond, 0.0)
    low = jnp.where(top == 0, jnp.minimum(z, beyond), z - 0.5)
    high = jnp.where(top == scan.size - 1, jnp.maximum(z, beyond), z + 0.5)
    return z, low, high
