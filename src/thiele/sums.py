r"""Sums over groups of data, of which one at a time is in memory, in derivatives too.

Σ_g F(θ, g) has the gradient Σ_g ∂F/∂θ, which is as small as θ. So it is added up on the way, group by group, while all
that F has found is at hand. Reverse differentiation would go over the groups a second time, and find it all again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.dtypes import float0
from jaxtyping import Array, Float

from thiele.slopes import all_still, change, moving, written_out

# `function(θ, group, carried)` is the group's share of the sum, and what is carried on to the next group.
Share = Callable[[Any, Any, Any], tuple[Float[Array, ""], Any]]
# Of more numbers, such as a covariate of all data, the gradient is not added to at every group.
MOST_ON_THE_WAY = 2**18


def total(function: Share, theta: Any, groups: Any, start: Any) -> tuple[Float[Array, ""], Any]:
    """The sum over groups, the leading axis of `groups`, and what is carried in the end, from `start`."""

    def step(state: tuple[Array, Any], group: Any) -> tuple[tuple[Array, Any], None]:
        share, carried = function(theta, group, state[1])
        return (state[0] + share, carried), None

    return lax.scan(jax.checkpoint(step), (jnp.zeros(()), start), groups)[0]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def total_with_slopes(function: Share, theta: Any, groups: Any, start: Any) -> tuple[Float[Array, ""], Any]:
    """The same, where nothing asks for a derivative of what is carried. `function` must take all that it reads from θ
    and the group.
    """
    return total(function, theta, groups, start)


@partial(total_with_slopes.defjvp, symbolic_zeros=True)
def _(
    function: Share, primals: tuple[Any, Any, Any], tangents: tuple[Any, Any, Any]
) -> tuple[tuple[Array, Any], tuple[Array, Any]]:
    theta, groups, start = primals
    some, changes, whole = moving(theta, tangents[0])
    if not all_still(tangents[1:]) or sum(x.size for x in some) > MOST_ON_THE_WAY:
        return jax.jvp(partial(total, function), primals, written_out(tangents))

    def share(some: list[Array], group: Any, carried: Any) -> tuple[Array, Any]:
        return function(whole(some), group, carried)

    def step(state: tuple[Array, list[Array], Any], group: Any) -> tuple[tuple[Array, list[Array], Any], None]:
        (own, carried), slope = jax.value_and_grad(share, has_aux=True)(some, group, state[2])
        return (state[0] + own, jax.tree.map(jnp.add, state[1], slope), carried), None

    none = jax.tree.map(jnp.zeros_like, some)
    (found, slopes, carried), _ = lax.scan(jax.checkpoint(step), (jnp.zeros(()), none, start), groups)
    return (found, carried), (change(slopes, changes), jax.tree.map(_no_change, carried))


def _no_change(x: Array) -> Any:
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.inexact) else np.zeros(x.shape, float0)
