r"""Information on several outputs, taken in along many lanes by plain arithmetic and without looking for pivots.

With Λ = C D Cᵀ, D diagonal, and K = Cᵀ G C, output k of Cᵀ f is taken in after those before it:

    s_k = 1 + d_k K_kk,    K_jl ← K_jl − K_jk (d_k / s_k) K_kl,    c_j ← c_j − K_jk (d_k / s_k) c_k    for j, l > k,

where c_k begins as column k of C. Then (I + Λ G)⁻¹ Λ = Σ_k c_k (d_k / s_k) c_kᵀ and det(I + Λ G) = Π_k s_k. Where Λ is
positive semidefinite no s_k is below 1; where it says nothing d_k = 0, and nothing happens. Elimination of I + Λ G,
which is not symmetric, would look for a pivot in every column and every lane, for longer than all the rest takes.

Λ is known before the chain is walked, and so are C and D, from all states at once: the largest part of a diagonal entry
that is left is the next pivot.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Root(NamedTuple):
    """Λ = C D Cᵀ; D as a column."""

    C: Float[Array, "l l *batch"]
    D: Float[Array, "l 1 *batch"]


def root(Lam: Float[Array, "l l *batch"]) -> Root:
    """C and D of precisions that are positive semidefinite or diagonal; D is not a number where one is neither."""
    count, eps = Lam.shape[0], jnp.finfo(Lam.dtype).eps
    diagonal = jnp.stack([Lam[k, k] for k in range(count)])
    scale = jnp.sqrt(jnp.where(diagonal == 0.0, 1.0, jnp.abs(diagonal)))
    rest = Lam / (scale[:, None] * scale[None])
    free, columns, pivots = jnp.ones_like(diagonal, dtype=bool), [], []
    place = jnp.arange(count).reshape(count, *(1,) * (Lam.ndim - 2))
    for _ in range(count):
        left = jnp.stack([rest[k, k] for k in range(count)])
        size = jnp.where(free, jnp.abs(left), -1.0)
        chosen = place == jnp.argmax(size, axis=0)
        pivot = jnp.sum(jnp.where(chosen, left, 0.0), axis=0)
        used = jnp.abs(pivot) > count * eps
        column = jnp.sum(jnp.where(chosen[:, None], rest, 0.0), axis=0)
        column = jnp.where(used, column / jnp.where(used, pivot, 1.0), 0.0)
        pivot = jnp.where(used, pivot, 0.0)
        rest = rest - column[:, None] * (pivot * column)[None]
        free = free & ~chosen
        columns.append(scale * column)
        pivots.append(pivot)
    whole = jnp.max(jnp.abs(rest), axis=(0, 1)) < jnp.sqrt(eps)
    return Root(jnp.stack(columns, axis=1), jnp.where(whole, jnp.stack(pivots)[:, None], jnp.nan))


Resolved = tuple[Array, Array, Array]


@jax.custom_jvp
def resolve(found: Root, Lam: Array, G: Array, h: Array | None) -> Resolved:
    """With B = (I + Λ G)⁻¹: B Λ (symmetric), B h, log det(I + Λ G); (rows, columns, lanes)."""
    M, log_det = _taken_in(found, G)
    return M, jnp.zeros_like(G[:, :1]) if h is None else _shrunk(M, Lam, G, h), log_det


def _taken_in(found: Root, G: Array) -> tuple[Array, Array]:
    C, D = found
    turned = jnp.swapaxes(C, 0, 1)
    # Row k: K_k and c_k.
    rows, shares, spreads = jnp.concatenate([_product(turned, _product(G, C)), turned], axis=1), [], []
    kept = []
    for k, d in enumerate(D[:, 0]):
        row = rows[0]
        spread = 1.0 + d * row[k]
        kept.append(row[len(D) :])
        shares.append(d / spread)
        spreads.append(spread)
        rows = rows[1:] - (rows[1:, k] * shares[k])[:, None] * row[None]
    c = jnp.stack(kept)
    M = jnp.sum((jnp.stack(shares)[:, None] * c)[:, :, None] * c[:, None], axis=0)
    return M, jnp.sum(jnp.log(jnp.abs(jnp.stack(spreads))), axis=0)


def _shrunk(M: Array, Lam: Array, G: Array, h: Array) -> Array:
    """B h = h − B Λ G h, and again for what rounding leaves of h: each time it is ε Λ G as large as before."""
    found = h - _product(M, _product(G, h))
    for _ in range(2):
        rest = h - found - _product(Lam, _product(G, found))
        found = found + rest - _product(M, _product(G, rest))
    return found


@resolve.defjvp
def _(
    primals: tuple[Root, Array, Array, Array | None], tangents: tuple[Root, Array, Array, Array | None]
) -> tuple[Resolved, Resolved]:
    _, Lam, G, _ = primals
    _, by_Lam, by_G, by_h = tangents
    M, x, log_det = resolve(*primals)
    B = jnp.eye(Lam.shape[0], dtype=Lam.dtype)[:, :, None] - _product(M, G)
    moved = _product(B, by_Lam)
    pulled = _product(M, by_G)
    change = (
        _product(moved, jnp.swapaxes(B, 0, 1)) - _product(pulled, M),
        x if by_h is None else _product(B, by_h - _product(by_Lam, _product(G, x))) - _product(pulled, x),
        _trace(_product(moved, G)) + _trace(pulled),
    )
    return (M, x, log_det), change


def _product(X: Array, Y: Array) -> Array:
    return jnp.sum(X[:, :, None] * Y[None], axis=1)


def _trace(X: Array) -> Array:
    return sum((X[k, k] for k in range(1, X.shape[0])), start=X[0, 0])
