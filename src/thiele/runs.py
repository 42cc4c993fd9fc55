"""Rows in the order of their owners, added up for each.

A scatter does it too, on a CPU as a loop of small programs with a turn for each row; a gather is one program. In
reverse derivatives it is the scatter that becomes a gather, so the derivative is the scatter's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def rows_of(owner: Int[np.ndarray, " rows"], owners: int) -> Int[np.ndarray, "owners most"]:
    """The rows of each owner, these being sorted; where an owner has fewer, a number beyond the last. Plain numpy.

    1, 2, 4, … columns, so that data which are nearly alike share one compilation.
    """
    first, end = (np.searchsorted(owner, np.arange(owners), side=side) for side in ("left", "right"))
    most = max(1, int(np.max(end - first)))
    row = first[:, None] + np.arange(1 << (most - 1).bit_length())
    return np.where(row < end[:, None], row, np.iinfo(np.int32).max).astype(np.int32)


@jax.custom_jvp
def added(
    x: Float[Array, "rows *k"], owner: Int[Array, " rows"], row: Int[Array, "owners most"]
) -> Float[Array, "owners *k"]:
    """The sum of the rows of each owner, from `rows_of` them. A row of no owner's is left out, and has to be zero."""
    x = jnp.asarray(x)
    return sum(x.at[column].get(mode="fill", fill_value=0.0) for column in row.T)  # pyright: ignore[reportReturnType]


@added.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    x, owner, row = primals
    none = jnp.zeros((row.shape[0], *x.shape[1:]), x.dtype)
    return added(x, owner, row), none.at[owner].add(tangents[0])
