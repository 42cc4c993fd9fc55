"""Linear algebra with ordinary arrays: the number system for large states, and for one lane.

`mul`, `add`, … here and for lanes have the same names and meaning, so that the recursions are written once.
They are of one matrix; a chunk has its axes (steps, lanes) in front, where batches of products have theirs: `unpack`
puts them there and `pack` puts them back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array

from thiele import one_function, small
from thiele.chain.types import Blocks
from thiele.tables import as_array, in_form_of, size

Matrix = Array | Blocks

# A product with the blocks of several stacks is as many operations, each of which costs a loop about a microsecond; up
# to this size one product with zeros in it is sooner done.
LARGEST_WRITTEN_OUT = 32
# Elimination by rows in one function is sooner done than the library's up to this size: 1.4 us for 2.5, and 0.4 for 1.9
# with four rows.
LARGEST_IN_ONE_FUNCTION = 6


def mul(X: Matrix, Y: Matrix) -> Array:
    """X Y; a tuple of stacks on either side is block-diagonal and costs d² times the block size, not d³."""
    if isinstance(X, tuple):
        return _blocks_times(X, Y)
    if isinstance(Y, tuple):
        return _blocks_times(transpose(Y), X.T).T
    return X @ Y


def _blocks_times(X: Blocks, Y: Array) -> Array:
    parts, start = [], 0
    for stack in map(as_array, X):
        g, b = stack.shape[:2]
        rows = Y[start : start + g * b].reshape(g, b, -1)
        parts.append((stack @ rows).reshape(g * b, -1))
        start += g * b
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def mul_within(X: Array, Y: Array, like: Matrix) -> Array:
    """X Y, of which only what lies where `like` has its blocks is asked for: all of it is one product."""
    return X @ Y


def transpose(X: Matrix) -> Matrix:
    """Xᵀ, or the transpose of every block."""
    return tuple(jnp.swapaxes(stack, 1, 2) for stack in X) if isinstance(X, tuple) else X.T


def add(X: Matrix, Y: Matrix) -> Array:
    """X + Y for dense X; Y may be block-diagonal."""
    return X + dense(Y)


def sub(X: Array, Y: Array) -> Array:
    """X − Y."""
    return X - Y


def scale(a: float, X: Array) -> Array:
    """a X."""
    return a * X


def symmetric(X: Array) -> Array:
    """X with rounding made symmetric."""
    return 0.5 * (X + X.T)


def congruence(A: Matrix, P: Array) -> Array:
    """A P Aᵀ."""
    return symmetric(mul(mul(A, P), transpose(A)))


def dense(X: Matrix) -> Array:
    """A block-diagonal matrix written out, (d, d, ...)."""
    if not isinstance(X, tuple):
        return X
    stacks = [as_array(stack) for stack in X]
    if len(stacks) == 1 and stacks[0].shape[0] == 1:
        return stacks[0][0]
    # Chosen and padded, not written to their places: a scatter is a loop over the blocks.
    d, rows, start = sum(stack.shape[0] * stack.shape[1] for stack in stacks), [], 0
    for stack in stacks:
        g, b, _, *batch = stack.shape
        own = np.eye(g, dtype=bool).reshape(g, 1, g, 1, *(1,) * len(batch))
        square = jnp.where(own, stack[:, :, None], 0.0).reshape(g * b, g * b, *batch)
        rows.append(jnp.pad(square, [(0, 0), (start, d - start - g * b), *[(0, 0)] * len(batch)]))
        start += g * b
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def resolve(Lam: Array, G: Array, h: Array | None) -> tuple[Array, Array, Array]:
    """With B = (I + Λ G)⁻¹: B Λ (symmetric), B h, log det(I + Λ G)."""
    if Lam.shape == (1, 1):
        spread = 1.0 + Lam * G
        return Lam / spread, jnp.zeros_like(G) if h is None else h / spread, jnp.log(spread[0, 0])
    if h is not None and Lam.shape[0] <= LARGEST_IN_ONE_FUNCTION and jax.default_backend() == "cpu":
        return _resolved_alone(Lam, G, h)
    return _resolved(Lam, G, h)


def _resolved(Lam: Array, G: Array, h: Array | None) -> tuple[Array, Array, Array]:
    spread = jnp.eye(Lam.shape[0], dtype=Lam.dtype) + Lam @ G
    factors = lu_factor(spread)
    BLam = symmetric(lu_solve(factors, Lam))
    Bh = jnp.zeros((Lam.shape[0], 1), Lam.dtype) if h is None else _shrunk(BLam, Lam, G, h)
    return BLam, Bh, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors[0]))))


@jax.custom_jvp
def _resolved_alone(Lam: Array, G: Array, h: Array) -> tuple[Array, Array, Array]:
    """The same for one small system in a loop, where a call of the library costs more than all the arithmetic."""
    return _eliminated(Lam, G, h)


@_resolved_alone.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[tuple, tuple]:
    return jax.jvp(_resolved, primals, tangents)


@custom_vmap
def _eliminated(Lam: Array, G: Array, h: Array) -> tuple[Array, Array, Array]:
    def eliminate(Lam: Array, G: Array, h: Array) -> tuple[Array, Array, Array]:
        n = Lam.shape[0]
        spread = sum((Lam[:, k, None] * G[k] for k in range(n)), jnp.eye(n, dtype=Lam.dtype))
        found, log_det = small.eliminated(spread, jnp.concatenate([Lam, h], axis=1))
        return symmetric(found[:, :n]), found[:, n:], log_det

    return one_function.at_once(eliminate, Lam, G, h)


@_eliminated.def_vmap
def _(size: int, mapped: list[bool], Lam: Array, G: Array, h: Array) -> tuple[tuple, tuple]:
    """Many systems are the library's; where only the shifts are many, they share the rest."""
    axes, one = tuple(0 if each else None for each in mapped), not (mapped[0] or mapped[1])
    out = (None, 0, None) if one else (0, 0, 0)
    return jax.vmap(_resolved, axes, out)(Lam, G, h), (not one, True, not one)


def _shrunk(BLam: Array, Lam: Array, G: Array, h: Array) -> Array:
    """B h = h − B Λ G h, and again for what rounding leaves of h: each time it is ε Λ G as large as before.

    Apart from B Λ, so that a batch of shifts shares that and with it every covariance; and not by the factors, because
    two solutions of thousands of systems at once wait for each other's threads for ever (JAX 0.10 on two cores).
    """
    found = h - BLam @ (G @ h)
    for _ in range(2):
        rest = h - found - Lam @ (G @ found)
        found = found + rest - BLam @ (G @ rest)
    return found


def scalar(X: Array) -> Array:
    """The entry of a 1 × 1 matrix."""
    return X[0, 0]


def selection(H: np.ndarray, dtype: jnp.dtype) -> Array:
    """The emission matrix as this number system writes it."""
    return jnp.asarray(H, dtype)


def unpack(array: Matrix | None) -> Matrix | None:
    """Trailing batch axes to the front; blocks as arrays, or written out where that is cheaper."""
    if array is None:
        return None
    if not isinstance(array, tuple):
        return _batch_first(array, 2)
    if len(array) > 1 and sum(math.prod(size(stack)) for stack in array) <= LARGEST_WRITTEN_OUT:
        return _batch_first(dense(array), 2)
    return tuple(_batch_first(as_array(stack), 3) for stack in array)


def _batch_first(array: Array, own: int) -> Array:
    return jnp.moveaxis(array, range(own), range(-own, 0))


def pack(X: Array, shape: tuple[int, int], batch: tuple[int, ...]) -> Array:
    """The inverse of `unpack` for a dense matrix."""
    return jnp.moveaxis(X, (-2, -1), (0, 1))


def pack_blocks(X: Array, like: Blocks) -> Blocks:
    """The blocks of X, (..., d, d), that lie where `like` has its own, in the same form."""
    out, start = [], 0
    for stack in like:
        g, b = size(stack)
        places = start + np.arange(g * b).reshape(g, b)
        blocks = jnp.moveaxis(X[..., places[:, :, None], places[:, None, :]], (-3, -2, -1), (0, 1, 2))
        out.append(in_form_of(stack, blocks))
        start += g * b
    return tuple(out)


def fold(X: Array) -> Array:
    """A symmetric matrix as a loop carries it."""
    return X


def unfold(X: Array) -> Array:
    """The inverse of `fold`."""
    return X


def in_loops(A: Matrix) -> bool:
    """Whether a closed loop is worth its d² numbers a step: blocks, whose products are cheap, it would fill."""
    return not isinstance(A, tuple)


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of one lane at one step, applied along the two leading axes (steps, lanes)."""
    return jax.vmap(jax.vmap(function))


def walk(step: Callable[..., Any], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` along the first axis of `xs`, in every lane of the second."""
    if jax.tree.leaves(carry)[0].shape[0] > 1:
        return jax.lax.scan(jax.vmap(step), carry, xs, reverse=reverse)
    carry, xs = jax.tree.map(lambda x: x[0], carry), jax.tree.map(lambda x: x[:, 0], xs)
    carry, ys = jax.lax.scan(step, carry, xs, reverse=reverse)
    return jax.tree.map(lambda x: x[None], carry), jax.tree.map(lambda y: y[:, None], ys)
