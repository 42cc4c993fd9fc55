"""Derivative rules by gradients: how much a number changes along tangents, of which most may not be there.

With `symbolic_zeros=True` a rule is told which of its arguments stay as they are. Nothing is found for these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.dtypes import float0
from jaxtyping import Array, Float


def is_still(tangent: Any) -> bool:
    """Whether a tangent is known to be zero."""
    return isinstance(tangent, SymbolicZero)


def all_still(tangents: Any) -> bool:
    """Whether all are."""
    return all(map(is_still, jax.tree.leaves(tangents, is_leaf=is_still)))


def written_out(tangents: Any) -> Any:
    """All tangents as arrays, where a rule can do without being told which are zero."""

    def written(tangent: Any) -> Any:
        if not is_still(tangent):
            return tangent
        return (np if tangent.dtype == float0 else jnp).zeros(tangent.shape, tangent.dtype)

    return jax.tree.map(written, tangents, is_leaf=is_still)


def change(slopes: Any, tangents: Any) -> Float[Array, ""]:
    """⟨slope, tangent⟩, summed over all leaves that move."""
    pairs = zip(jax.tree.leaves(slopes), jax.tree.leaves(tangents, is_leaf=is_still), strict=True)
    terms = [jnp.sum(slope * tangent) for slope, tangent in pairs if not is_still(tangent) and tangent.dtype != float0]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


class Moving(NamedTuple):
    """The arguments that move, their tangents, and `whole(moving)`: all arguments with these in their places."""

    arguments: list[Array]
    tangents: list[Array]
    whole: Callable[[list[Array]], Any]


def moving(arguments: Any, tangents: Any) -> Moving:
    """What of the arguments moves."""
    leaves, form = jax.tree.flatten(arguments)
    changes = jax.tree.leaves(tangents, is_leaf=is_still)
    places = [k for k, tangent in enumerate(changes) if not is_still(tangent) and tangent.dtype != float0]

    def whole(some: list[Array]) -> Any:
        found = list(leaves)
        for k, leaf in zip(places, some, strict=True):
            found[k] = leaf
        return form.unflatten(found)

    return Moving([leaves[k] for k in places], [changes[k] for k in places], whole)
