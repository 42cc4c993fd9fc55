r"""The nearest positive semidefinite matrix: negative eigenvalues set to zero.

One matrix is the library's. Many small ones, as all data have one, go by Jacobi's rotations: with A ← J A J' for one
pair of rows after the other, all off the diagonal dies out, quadratically in the end, and A = V' diag(λ) V with the
rotations in V. Written number by number for a few dozen matrices that advance together, in one function of a CPU, it is
plain vector arithmetic in the nearest cache, at a sixth of what a call of LAPACK for each takes.
"""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from thiele import one_function, small

# Fewer are sooner done by LAPACK than the rotations are compiled; larger ones have too many.
LEAST_MANY, LARGEST = 1024, 8
# How many matrices advance together, a power of two: as many as are in the nearest cache.
TOGETHER = 64
# Those of six rows take six or seven, and up to nine with eigenvalues that are the same.
MOST_SWEEPS = 16


@jax.custom_jvp
def semidefinite(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Bool[Array, ""]]:
    """The symmetric part with negative eigenvalues set to zero, and whether any was more negative than rounding."""
    matrix = _symmetric(matrix)
    clipped, least, most = _clipped(matrix)
    # A precision of low rank, where a likelihood sees one sum of latents, has zero eigenvalues of either sign.
    negative = least < -1e2 * jnp.finfo(matrix.dtype).eps * most
    return jnp.where(negative, clipped, matrix), negative


@semidefinite.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, np.ndarray]]:
    """V (D ∘ V' dA V) V', D_ij = (λ_i⁺ − λ_j⁺) / (λ_i − λ_j): 1 for two positive eigenvalues, 0 for two negative ones,
    and between where the signs differ, so that none need be apart from another.
    """
    found, negative = semidefinite(*primals)
    change = _symmetric(tangents[0])
    values, vectors = small.eigh(_symmetric(primals[0]))
    above = jnp.maximum(values, 0.0)
    size = jnp.abs(values)[:, None] + jnp.abs(values)
    share = jnp.where(size > 0.0, (above[:, None] + above) / jnp.where(size > 0.0, size, 1.0), 1.0)
    moved = vectors @ (share * (vectors.T @ change @ vectors)) @ vectors.T
    return (found, negative), (jnp.where(negative, moved, change), np.zeros((), jax.dtypes.float0))


def _symmetric(X: Array) -> Array:
    return 0.5 * (X + X.T)


Clipped = tuple[Float[Array, "*n n n"], Float[Array, "*n"], Float[Array, "*n"]]


@custom_vmap
def _clipped(matrix: Float[Array, "n n"]) -> Clipped:
    """A without its negative eigenvalues, the least eigenvalue, and the largest without its sign."""
    values, vectors = small.eigh(matrix)
    return (vectors * jnp.maximum(values, 0.0)) @ vectors.T, values[0], jnp.max(jnp.abs(values))


@_clipped.def_vmap
def _(size: int, mapped: list[bool], matrices: Float[Array, "many n n"]) -> tuple[Clipped, tuple[bool, bool, bool]]:
    return _all_clipped(matrices), (True, True, True)


@custom_vmap
def _all_clipped(matrices: Float[Array, "many n n"]) -> Clipped:
    many, n, _ = matrices.shape
    if 2 < n <= LARGEST and many >= LEAST_MANY and jax.default_backend() == "cpu":
        return by_rotations(matrices)
    return jax.vmap(_clipped.fun)(matrices)


@_all_clipped.def_vmap
def _(size: int, mapped: list[bool], matrices: Float[Array, "size many n n"]) -> tuple[Clipped, tuple]:
    found = _all_clipped(matrices.reshape(-1, *matrices.shape[2:]))
    return jax.tree.map(lambda x: x.reshape(*matrices.shape[:2], *x.shape[1:]), found), (True, True, True)


def by_rotations(matrices: Float[Array, "many n n"]) -> Clipped:
    """The same of many symmetric matrices, by Jacobi's rotations."""
    many, n, _ = matrices.shape
    groups = -(-many // TOGETHER)
    padded = jnp.pad(matrices.reshape(many, n * n), [(0, groups * TOGETHER - many), (0, 0)])
    lanes = jnp.swapaxes(padded.reshape(groups, TOGETHER, n * n), 1, 2)

    def run(lanes: Float[Array, "groups n*n together"]) -> Float[Array, "groups n*n+2 together"]:
        def one(k: Array, found: Array) -> Array:
            group = lax.dynamic_index_in_dim(lanes, k, keepdims=False)
            return lax.dynamic_update_index_in_dim(found, _of_group(group.reshape(n, n, TOGETHER)), k, 0)

        return lax.fori_loop(0, groups, one, jnp.zeros((groups, n * n + 2, TOGETHER), lanes.dtype))

    found = jnp.swapaxes(one_function.at_once(run, lanes), 1, 2).reshape(-1, n * n + 2)[:many]
    return found[:, : n * n].reshape(many, n, n), found[:, -2], found[:, -1]


def _of_group(A: Float[Array, "n n together"]) -> Float[Array, "n*n+2 together"]:
    # No sum or maximum is taken along an axis: these may be made a library's, which one function does not call.
    n = A.shape[0]
    places = [(i, j) for i in range(n) for j in range(i, n)]
    # Squares of entries are neither too large nor too small for their type.
    size = reduce(jnp.maximum, [jnp.abs(A[place]) for place in places])
    # One that is no number is none in the end, and keeps no other waiting.
    usable = (size > 0.0) & (size < jnp.inf)
    unit = jnp.where(usable, A, 0.0) / jnp.where(usable, size, 1.0)

    def unfinished(state: tuple[Array, list[Array], list[Array]]) -> Array:
        sweeps, entries, _ = state
        apart = reduce(jnp.maximum, [jnp.abs(x) for (i, j), x in zip(places, entries, strict=True) if i != j])
        while apart.shape[0] > 1:
            half = apart.shape[0] // 2
            apart = jnp.maximum(apart[:half], apart[half:])
        return (sweeps < MOST_SWEEPS) & (apart[0] > jnp.finfo(apart.dtype).eps)

    def sweep(state: tuple[Array, list[Array], list[Array]]) -> tuple[Array, list[Array], list[Array]]:
        entries, rows = dict(zip(places, state[1], strict=True)), list(state[2])
        for p, q in places:
            if p != q:
                _rotate(entries, rows, p, q)
        return state[0] + 1, [entries[place] for place in places], rows

    start = [unit[place] for place in places], [jnp.zeros_like(A[k]).at[k].set(1.0) for k in range(n)]
    _, entries, rows = lax.while_loop(unfinished, sweep, (jnp.array(0), *start))
    values = [x for (i, j), x in zip(places, entries, strict=True) if i == j]
    kept = (jnp.maximum(value, 0.0) * row[:, None] * row for value, row in zip(values, rows, strict=True))
    clipped = reduce(jnp.add, kept)
    least, most = reduce(jnp.minimum, values), reduce(jnp.maximum, [jnp.abs(value) for value in values])
    return size * jnp.concatenate([clipped.reshape(n * n, -1), least[None], most[None]])


def _rotate(A: dict[tuple[int, int], Array], rows: list[Array], p: int, q: int) -> None:
    """Make A_pq zero, by the lesser of the two angles that do, or by none where rounding would choose it: rows of equal
    eigenvalues would be turned over and over, and what had died out between others would come back.
    """
    a, b, c = A[p, p], A[p, q], A[q, q]
    apart = jnp.abs(b) > jnp.finfo(b.dtype).eps
    half = 0.5 * (c - a)
    length = jnp.sqrt(half**2 + b**2)
    tangent = jnp.where(apart, b / jnp.where(apart, half + jnp.where(half >= 0.0, length, -length), 1.0), 0.0)
    cos = 1.0 / jnp.sqrt(1.0 + tangent**2)
    sin = tangent * cos
    A[p, p], A[q, q], A[p, q] = a - tangent * b, c + tangent * b, jnp.zeros_like(b)
    for k in range(rows[0].shape[0]):
        if k not in (p, q):
            at_p, at_q = (min(p, k), max(p, k)), (min(q, k), max(q, k))
            A[at_p], A[at_q] = cos * A[at_p] - sin * A[at_q], sin * A[at_p] + cos * A[at_q]
    rows[p], rows[q] = cos * rows[p] - sin * rows[q], sin * rows[p] + cos * rows[q]
