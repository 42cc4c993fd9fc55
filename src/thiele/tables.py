"""Stacks of small matrices as tables of entries, with the axes of time last.

A table is `dim` rows of `dim` entries; an entry is an array (count, *times), or None where the matrices are zero by
structure. Nothing is stacked into one array until somebody needs one: entry by entry, a million 2 x 2 matrices are
plain loops over contiguous memory, and zeros cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

Times = Float[Array, "*times"]
Entry = Float[Array, "count *times"] | None
Table = tuple[tuple[Entry, ...], ...]
Stack = Float[Array, "count dim dim *times"] | Table


def table(rows: Sequence[Sequence[Entry]]) -> Table:
    """A table from its rows."""
    return tuple(tuple(row) for row in rows)


def along(values: Float[Array, "..."], times: Times) -> Float[Array, "..."]:
    """`values` with one axis of length 1 appended for each axis of `times`, so that the two broadcast."""
    return jnp.reshape(values, (*jnp.shape(values), *(1,) * jnp.ndim(times)))


def diagonal(values: Sequence[Float[Array, " count"]], times: Times) -> Table:
    """The same diagonal matrices at all `times`."""
    entries = [jnp.broadcast_to(along(value, times), (*jnp.shape(value), *jnp.shape(times))) for value in values]
    return table([[entry if i == j else None for j in range(len(entries))] for i, entry in enumerate(entries)])


def size(stack: Stack) -> tuple[int, int]:
    """(count, dim) of a stack in either form."""
    if not isinstance(stack, tuple):
        return stack.shape[0], stack.shape[1]
    return _some(stack).shape[0], len(stack)


def as_array(stack: Stack) -> Float[Array, "count dim dim *times"]:
    """A stack as one array, structural zeros written out."""
    if not isinstance(stack, tuple):
        return stack
    none = jnp.zeros_like(_some(stack))
    return jnp.stack([jnp.stack([none if e is None else e for e in row], axis=1) for row in stack], axis=1)


def as_table(stack: Stack) -> Table:
    """A stack as a table; an array has no structural zeros."""
    if isinstance(stack, tuple):
        return stack
    return table([[stack[:, i, j] for j in range(stack.shape[2])] for i in range(stack.shape[1])])


def in_form_of(like: Stack, blocks: Float[Array, "count dim dim *times"]) -> Stack:
    """`blocks` as an array or as a table, whichever `like` is; a table has its structural zeros."""
    if not isinstance(like, tuple):
        return blocks
    rows = enumerate(like)
    return table([[None if e is None else blocks[:, i, j] for j, e in enumerate(row)] for i, row in rows])


def scale(factor: Float[Array, "..."], a: Table) -> Table:
    """Every entry times `factor`."""
    return table([[None if e is None else factor * e for e in row] for row in a])


def add(a: Table, b: Table) -> Table:
    """a + b."""
    return table([[_add(x, y) for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)])


def transpose(a: Table) -> Table:
    """a'."""
    return table(zip(*a, strict=True))


def matmul(a: Table, b: Table) -> Table:
    """a b."""
    return table([[_dot(row, column) for column in zip(*b, strict=True)] for row in a])


def congruence(a: Table, p: Table) -> Table:
    """a p a'."""
    return matmul(matmul(a, p), transpose(a))


def kron(a: Table, b: Table) -> Table:
    """All Kronecker products of a block of `a` with a block of `b`, the blocks of `a` outermost."""
    return table([[_outer(x, y) for x in arow for y in brow] for arow in a for brow in b])


def repeated(a: Table, copies: int) -> Table:
    """All blocks `copies` times over."""
    again = lambda e: None if e is None else jnp.tile(e, (copies, *(1,) * (e.ndim - 1)))  # noqa: E731
    return table([[again(entry) for entry in row] for row in a])


def empty(count: int, dim: int, times: Times) -> Table:
    """Zero matrices whose structure is all zero but for one stored entry, which carries the shape."""
    none = jnp.zeros((count, *jnp.shape(times)), jnp.result_type(float))
    return table([[none if i == j == 0 else None for j in range(dim)] for i in range(dim)])


def _some(a: Table) -> Float[Array, "count *times"]:
    return next(entry for row in a for entry in row if entry is not None)


def _add(x: Entry, y: Entry) -> Entry:
    if x is None or y is None:
        return y if x is None else x
    return x + y


def _dot(row: Sequence[Entry], column: Sequence[Entry]) -> Entry:
    total: Entry = None
    for x, y in zip(row, column, strict=True):
        if x is not None and y is not None:
            total = _add(total, x * y)
    return total


def _outer(x: Entry, y: Entry) -> Entry:
    if x is None or y is None:
        return None
    both = x[:, None] * y[None, :]
    return jnp.reshape(both, (x.shape[0] * y.shape[0], *both.shape[2:]))
