"""Linear algebra over lanes for states of many small blocks: sums of kernels, products in space and time.

A matrix is an array (rows, columns, lanes), in a chunk (steps, rows, columns, lanes); a block-diagonal one a tuple of
stacks (count, size, size, lanes), in a chunk with steps in front. A product with blocks of size b is b products entry
by entry, of the size of the other factor: plain vector loops over lanes, a few for a whole step of a recursion, where
batches of small matrix products would be a call each. The emission matrix is one of constants and becomes sums.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thiele.chain import lanes_of_scalars
from thiele.chain.types import Blocks
from thiele.tables import as_array, in_form_of, size

Stacks = tuple[Array, ...]
Matrix = Array | Stacks | np.ndarray


def mul(X: Matrix, Y: Matrix) -> Array:
    """X Y; one of the two may be block-diagonal, or constant."""
    if isinstance(X, tuple):
        return _blocks_times(X, Y)
    if isinstance(Y, tuple):
        return transpose(_blocks_times(transpose(Y), transpose(X)))
    if isinstance(X, np.ndarray):
        return _constant_times(X, Y)
    if isinstance(Y, np.ndarray):
        return transpose(_constant_times(Y.T, transpose(X)))
    if X.shape[1] == 1:
        return X * Y
    return jnp.sum(X[:, :, None] * Y[None], axis=1)


def _blocks_times(X: Stacks, Y: Array) -> Array:
    parts, start = [], 0
    for stack in X:
        g, b = stack.shape[:2]
        rows = Y[start : start + g * b].reshape(g, b, *Y.shape[1:])
        parts.append(sum((stack[:, :, k, None] * rows[:, None, k] for k in range(1, b)), start=_first(stack, rows)))
        start += g * b
    return jnp.concatenate([part.reshape(-1, *Y.shape[1:]) for part in parts])


def _first(stack: Array, rows: Array) -> Array:
    return stack[:, :, 0, None] * rows[:, None, 0]


def _constant_times(X: np.ndarray, Y: Array) -> Array:
    """Sums of the rows of Y, each once where X selects: one row of X after the other if there are few, or if each has
    one entry at most.
    """
    if X.shape[0] <= X.shape[1] or (X.shape[1] > 1 and np.all(np.count_nonzero(X, axis=1) <= 1)):
        zero = jnp.zeros_like(Y[0])
        return jnp.stack([sum((_times(row[k], Y[k]) for k in np.flatnonzero(row)), start=zero) for row in X])
    columns = (jnp.asarray(column, Y.dtype)[:, None, None] for column in X.T)
    return sum((column * row for column, row in zip(columns, Y, strict=True)), start=jnp.zeros(()))


def _times(factor: float, row: Array) -> Array:
    return row if factor == 1.0 else factor * row


def mul_within(X: Array, Y: Array, like: Matrix) -> Matrix:
    """X Y where `like` has its blocks."""
    if not isinstance(like, tuple):
        return mul(X, Y)
    out, start = [], 0
    for stack in like:
        g, b = stack.shape[:2]
        rows = X[start : start + g * b].reshape(g, b, 1, *X.shape[1:])
        columns = jnp.swapaxes(Y[:, start : start + g * b], 0, 1).reshape(g, 1, b, Y.shape[0], *Y.shape[2:])
        terms = (rows[:, :, :, k] * columns[:, :, :, k] for k in range(1, X.shape[1]))
        out.append(sum(terms, start=rows[:, :, :, 0] * columns[:, :, :, 0]))
        start += g * b
    return tuple(out)


def transpose(X: Matrix) -> Matrix:
    """Xᵀ, or the transpose of every block."""
    if isinstance(X, tuple):
        return tuple(jnp.swapaxes(stack, 1, 2) for stack in X)
    return X.T if isinstance(X, np.ndarray) else jnp.swapaxes(X, 0, 1)


def add(X: Matrix, Y: Matrix) -> Matrix:
    """X + Y; where only one is block-diagonal it is written out."""
    if isinstance(X, tuple) and isinstance(Y, tuple):
        return tuple(x + y for x, y in zip(X, Y, strict=True))
    return _dense(X) + _dense(Y)


def sub(X: Array, Y: Array) -> Array:
    """X − Y."""
    return X - Y


def scale(a: float, X: Array) -> Array:
    """a X."""
    return a * X


def symmetric(X: Array) -> Array:
    """X with rounding made symmetric."""
    return 0.5 * (X + transpose(X))


def congruence(A: Matrix, P: Array) -> Array:
    """A P Aᵀ for a symmetric P."""
    return symmetric(mul(A, transpose(mul(A, P))))


def _dense(X: Matrix) -> Array:
    """A block-diagonal matrix written out, by products with zeros and ones: they disappear in the loops around."""
    if not isinstance(X, tuple):
        return X
    d, rows, start = sum(stack.shape[0] * stack.shape[1] for stack in X), [], 0
    for stack in X:
        g, b = stack.shape[:2]
        apart = stack[:, :, None] * jnp.eye(g, dtype=stack.dtype).reshape(g, 1, g, 1, 1)
        own = apart.reshape(g * b, g * b, *stack.shape[3:])
        rows.append(jnp.pad(own, [(0, 0), (start, d - start - g * b), (0, 0)]))
        start += g * b
    return jnp.concatenate(rows)


def resolve(Lam: Array, G: Array, h: Array | None) -> tuple[Array, Array, Array]:
    """With B = (I + Λ G)⁻¹: B Λ (symmetric), B h, log det(I + Λ G), by closed forms for at most three outputs; more are
    resolved by the root of Λ (`thiele.chain.roots`).
    """
    count = Lam.shape[0]
    entries = lambda X: None if X is None else lanes_of_scalars.unpack(X)  # noqa: E731
    BLam, Bh, log_det = lanes_of_scalars.resolve(entries(Lam), entries(G), entries(h))
    pack = lambda X, columns: lanes_of_scalars.pack(X, (count, columns), Lam.shape[2:])  # noqa: E731
    return pack(BLam, count), pack(Bh, 1) if Bh else jnp.zeros((count, 1, *Lam.shape[2:]), Lam.dtype), log_det


def scalar(X: Array) -> Array:
    """The entry of a 1 × 1 matrix."""
    return X[0, 0]


def selection(H: np.ndarray, dtype: jnp.dtype) -> np.ndarray:
    """The emission matrix as this number system writes it: as numbers."""
    return np.asarray(H, dtype)


def unpack(array: Array | Blocks | None) -> Matrix | None:
    """The axis of steps, where there is one, to the front; neighbouring stacks of blocks of one size become one."""
    if array is None:
        return None
    if not isinstance(array, tuple):
        return _steps_first(array, 2)
    stacks = [as_array(stack) for stack in array]
    alike = (list(group) for _, group in groupby(stacks, key=lambda stack: stack.shape[1]))
    return tuple(_steps_first(group[0] if len(group) == 1 else jnp.concatenate(group), 3) for group in alike)


def _steps_first(array: Array, own: int) -> Array:
    return jnp.moveaxis(array, -2, 0) if array.ndim == own + 2 else array


def pack(X: Array, shape: tuple[int, int], batch: tuple[int, ...]) -> Array:
    """The inverse of `unpack` for a dense matrix."""
    return jnp.moveaxis(X, 0, -2) if len(batch) == 2 else X


def pack_blocks(X: Matrix, like: Blocks) -> Blocks:
    """The blocks of X, of a chunk, that lie where `like` has its own, in the same form."""
    stacks = _as_before(X, like) if isinstance(X, tuple) else _on_diagonal(X, like)
    pairs = zip(like, stacks, strict=True)
    return tuple(in_form_of(form, jnp.moveaxis(stack, 0, -2)) for form, stack in pairs)


def _as_before(X: Stacks, like: Blocks) -> Stacks:
    """The stacks that `unpack` has joined."""
    out, rest = [], iter(X)
    for _, group in groupby(map(size, like), key=lambda pair: pair[1]):
        ends = np.cumsum([g for g, _ in group])
        out += jnp.split(next(rest), ends[:-1], axis=1)
    return tuple(out)


def _on_diagonal(X: Array, like: Blocks) -> Stacks:
    out, start = [], 0
    for g, b in map(size, like):
        places = [slice(start + k * b, start + (k + 1) * b) for k in range(g)]
        out.append(jnp.stack([X[:, place, place] for place in places], axis=1))
        start += g * b
    return tuple(out)


def fold(X: Matrix) -> Matrix:
    """A symmetric matrix as a loop carries it."""
    return X


def unfold(X: Matrix) -> Matrix:
    """The inverse of `fold`."""
    return X


def in_loops(A: Matrix) -> bool:
    """Never: a closed loop would fill the blocks."""
    return False


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of one step, applied along the leading axis of steps."""
    return jax.vmap(function)


def walk(step: Callable[..., Any], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` along the first axis of `xs`."""
    return jax.lax.scan(step, carry, xs, reverse=reverse)
