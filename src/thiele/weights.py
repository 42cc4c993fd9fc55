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
import numpy as np
from jaxtyping import Array, Float, Int

from thiele.chain.types import Blocks
from thiele.sde import SDE
from thiele.sde.block import AbstractBlock
from thiele.tables import Table, as_array


class Weights(NamedTuple):
    """g = W (u, e) + N(0, ν) for the functions of time g. Each entry of (u, e) bears on one of them: `state` and
    `noise` hold the one nonzero of its column of W, for each output of the SDE and each of its blocks. Copies are
    alike: these are the weights of one copy.
    """

    state: tuple[tuple[Float[Array, "tiles width size"], ...], ...]
    noise: tuple[tuple[Float[Array, "tiles width size"], ...], ...]
    nu: Float[Array, "tiles width outputs"]


def weights(
    sde: SDE, z: Float[Array, " M"], L: Blocks, segment: Int[Array, " tiles"], x: Float[Array, "tiles width"]
) -> Weights:
    """W and ν at times `x`, of which each row lies in one of the segments that z makes, with roots L of their noise."""
    M = z.shape[0]
    first, last = segment[:, None] == 0, segment[:, None] == M
    # Where a neighbour is missing, the step to it has length zero, to be finite in both branches.
    start = jnp.where(first, x, z[jnp.maximum(segment - 1, 0)][:, None])
    end = jnp.where(last, x, z[jnp.minimum(segment, M - 1)][:, None])
    once = sde.once()
    ahead = once.transition(start, x - start)
    back = once.transition(x, end - x)
    prior = once.covariance(x)
    found = []
    for i, block in enumerate(once.blocks):
        (A, Q), (A_back, _), seen = ahead[i], back[i], block.observed
        q = [jnp.where(first, _entry(P, x), _entry(N, x)) for P, N in zip(prior[i][seen], Q[seen], strict=True)]
        c = [jnp.where(last, 0.0, entry) for entry in _carried(A_back, q)]
        of_state = [jnp.where(first, 0.0, _entry(entry, x)) for entry in A[seen]]
        found.append(_of_block(block, of_state, q, c, as_array(L[i])[: block.count][..., segment, None], x))
    return _together(once, found)


def inside(sde: SDE, length: Float[Array, ""], L: Blocks, share: Float[np.ndarray, " n"]) -> Weights:
    """W and ν at shares of one segment of this length, in one tile, with a root L of its noise; the kernel stays the
    same, and shares are in order and symmetric about the middle: what lies ahead of one lies behind another.
    """
    once, x = sde.once(), length * jnp.asarray(share, length.dtype)[None]
    found = []
    for i, (A, Q) in enumerate(once.transition(jnp.zeros_like(x), x)):
        block = once.blocks[i]
        A_back = tuple(tuple(None if entry is None else entry[..., ::-1] for entry in row) for row in A)
        of_state, q = ([_entry(entry, x) for entry in row[block.observed]] for row in (A, Q))
        root = as_array(L[i])[: block.count][..., None, None]
        found.append(_of_block(block, of_state, q, _carried(A_back, q), root, x))
    return _together(once, found)


class _OfBlock(NamedTuple):
    """Weights of the blocks of one stack."""

    state: Float[Array, "tiles width size"]
    noise: Float[Array, "tiles width size"]
    nu: Float[Array, "tiles width"]


def _of_block(
    block: AbstractBlock, of_state: list[Array], q: list[Array], c: list[Array], root: Array, x: Array
) -> _OfBlock:
    """From H A_x, H Q_x, the latter carried on by A_back, and L."""
    k = forward_substitution(root, c)
    nu = jnp.maximum(jnp.sum(q[block.observed] - sum(entry**2 for entry in k), axis=0), 0.0)
    return _OfBlock(_entries(of_state, x), _entries(k, x), nu)


def _together(sde: SDE, found: list[_OfBlock]) -> Weights:
    state, noise, nu = (by_output(sde, list(part)) for part in zip(*found, strict=True))
    return Weights(state, noise, jnp.stack([sum(blocks) for blocks in nu], axis=-1))


def _entry(entry: Array | None, x: Array) -> Array:
    return jnp.zeros((1, *x.shape), x.dtype) if entry is None else entry


def _carried(A: Table, q: list[Array]) -> list[Array]:
    """A q, entry by entry."""
    products = ([a * b for a, b in zip(row, q, strict=True) if a is not None] for row in A)
    return [sum(terms[1:], terms[0]) if terms else jnp.zeros_like(q[0]) for terms in products]


def forward_substitution(L: Float[Array, "count dim dim *times"], c: list[Array]) -> list[Array]:
    """L⁻¹ c for lower triangular L, entry by entry; a direction without noise gets zero."""
    k: list[Array] = []
    for i, target in enumerate(c):
        rest = target - sum(L[:, i, j] * x for j, x in enumerate(k))
        pivot = L[:, i, i]
        k.append(jnp.where(pivot > 0.0, rest / jnp.where(pivot > 0.0, pivot, 1.0), 0.0))
    return k


def _entries(entries: list[Array], x: Array) -> Float[Array, "tiles width size"]:
    """Entries (count, tiles, width) of `count` blocks in the order of the state, block after block."""
    count = max(entry.shape[0] for entry in entries)
    stacked = jnp.stack([jnp.broadcast_to(entry, (count, *x.shape)) for entry in entries], axis=-1)
    return jnp.moveaxis(stacked, 0, -2).reshape(*x.shape, -1)


def owner(sde: SDE) -> Float[np.ndarray, "outputs 2d"]:
    """1 where an entry of (u, e) bears on an output: on a latent function, if the kernel is one of time alone."""
    sizes = [sum(stack.count * stack.dim for stack in output.stacks) for output in sde.outputs]
    return np.tile(np.repeat(np.eye(len(sizes)), sizes, axis=1), 2)


def by_output(sde: SDE, along: list[Array]) -> tuple[tuple[Array, ...], ...]:
    """What belongs to each block, grouped by output."""
    found, start = [], 0
    for output in sde.outputs:
        found.append(tuple(along[start : start + len(output.blocks)]))
        start += len(output.blocks)
    return tuple(found)
