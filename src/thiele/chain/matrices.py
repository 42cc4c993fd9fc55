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
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array

from thiele.chain.types import Blocks
from thiele.tables import as_array, in_form_of, size

Matrix = Array | Blocks

# A product with the blocks of several stacks is as many operations, each of which costs a loop about a microsecond; up
# to this size one product with zeros in it is sooner done.
LARGEST_WRITTEN_OUT = 32


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
    d = sum(stack.shape[0] * stack.shape[1] for stack in stacks)
    out, start = jnp.zeros((d, d, *stacks[0].shape[3:]), stacks[0].dtype), 0
    for stack in stacks:
        g, b = stack.shape[:2]
        places = start + np.arange(g * b).reshape(g, b)
        out = out.at[places[:, :, None], places[:, None, :]].set(stack, unique_indices=True)
        start += g * b
    return out


def resolve(Lam: Array, G: Array, h: Array | None) -> tuple[Array, Array, Array]:
    """With B = (I + Λ G)⁻¹: B Λ (symmetric), B h, log det(I + Λ G)."""
    if Lam.shape == (1, 1):
        spread = 1.0 + Lam * G
        return Lam / spread, jnp.zeros_like(G) if h is None else h / spread, jnp.log(spread[0, 0])
    spread = jnp.eye(Lam.shape[0], dtype=Lam.dtype) + Lam @ G
    factors = lu_factor(spread)
    BLam = symmetric(lu_solve(factors, Lam))
    Bh = jnp.zeros((Lam.shape[0], 1), Lam.dtype) if h is None else _shrunk(BLam, Lam, G, h)
    return BLam, Bh, jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors[0]))))


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
