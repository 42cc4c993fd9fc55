r"""What the neighbours of a time say about the latent function there (paper, section 3 and appendix A.2).

Times z_1 < … < z_M cut the line into M + 1 segments: before z_1, between neighbours, after z_M. Over segment m the
state moves by u' = A u + L e, with white noise e ~ N(0, I) and L L' = Q. At a time x inside it

    f(x) = W (u, e) + N(0, ν),    W = (H A_x, k),    k = L⁻¹ A_back Q_x H',    ν = H Q_x H' − k·k,

where A_x, Q_x belong to the step from z_m to x and A_back to the step from x to z_{m+1}. In terms of (u, e) nothing is
inverted but the triangle L, row by row: it holds when x sits on an inducing time, and when two of them nearly coincide.

Before z_1 there is no u: the prior of u_1 is the noise, Q = P(z_1). After z_M there is no e.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thiele.chain.types import Blocks
from thiele.sde import SDE
from thiele.tables import as_array


class Weights(NamedTuple):
    """f = W (u, e) + N(0, ν). Each entry of (u, e) bears on one latent function: `w` holds the one nonzero of its
    column of W.
    """

    w: Float[Array, "tiles 2d width"]
    nu: Float[Array, "tiles latents width"]


def weights(
    sde: SDE, z: Float[Array, " M"], L: Blocks, segment: Int[Array, " tiles"], x: Float[Array, "tiles width"]
) -> Weights:
    """W and ν at times `x`, of which each row lies in one of the segments that z makes, with roots L of their noise."""
    M = z.shape[0]
    first, last = segment[:, None] == 0, segment[:, None] == M
    # Where a neighbour is missing, the step to it has length zero, to be finite in both branches.
    start = jnp.where(first, x, z[jnp.maximum(segment - 1, 0)][:, None])
    end = jnp.where(last, x, z[jnp.minimum(segment, M - 1)][:, None])
    ahead = sde.transition(start, x - start)
    back = sde.transition(x, end - x)
    prior = sde.covariance(x)
    of_state, of_noise, spread = [], [], []
    for i, block in enumerate(sde.blocks):
        (A, Q), (A_back, _), seen = ahead[i], back[i], block.observed
        q = [jnp.where(first, _entry(P, x), _entry(N, x)) for P, N in zip(prior[i][seen], Q[seen], strict=True)]
        c = [_dot(row, q) for row in A_back]
        k = forward_substitution(as_array(L[i])[..., segment, None], [jnp.where(last, 0.0, entry) for entry in c])
        of_state.append([jnp.where(first, 0.0, _entry(entry, x)) for entry in A[seen]])
        of_noise.append(k)
        spread.append(jnp.maximum(jnp.sum(q[seen] - sum(entry**2 for entry in k), axis=0), 0.0))
    w = jnp.concatenate([_rows(entries, x) for entries in (*of_state, *of_noise)], axis=1)
    return Weights(w, _by_latent(sde, spread))


def _entry(entry: Array | None, x: Array) -> Array:
    return jnp.zeros((1, *x.shape), x.dtype) if entry is None else entry


def _dot(row: tuple[Array | None, ...], column: list[Array]) -> Array:
    return sum((a * b for a, b in zip(row, column, strict=True) if a is not None), jnp.zeros_like(column[0]))


def forward_substitution(L: Float[Array, "count dim dim *times"], c: list[Array]) -> list[Array]:
    """L⁻¹ c for lower triangular L, entry by entry; a direction without noise gets zero."""
    k: list[Array] = []
    for i, target in enumerate(c):
        rest = target - sum(L[:, i, j] * x for j, x in enumerate(k))
        pivot = L[:, i, i]
        k.append(jnp.where(pivot > 0.0, rest / jnp.where(pivot > 0.0, pivot, 1.0), 0.0))
    return k


def _rows(entries: list[Array], x: Array) -> Float[Array, "tiles rows width"]:
    """Entries (count, tiles, width) of `count` blocks as rows of the state, block after block."""
    count = max(entry.shape[0] for entry in entries)
    stacked = jnp.stack([jnp.broadcast_to(entry, (count, *x.shape)) for entry in entries], axis=1)
    return jnp.moveaxis(stacked.reshape(count * len(entries), *x.shape), 0, 1)


def _by_latent(sde: SDE, spread: list[Array]) -> Float[Array, "tiles latents width"]:
    found, start = [], 0
    for blocks in sde.outputs:
        found.append(sum(spread[start : start + len(blocks)]))
        start += len(blocks)
    return jnp.stack(found, axis=1)
