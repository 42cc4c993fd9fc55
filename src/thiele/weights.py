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
from thiele.tables import as_array


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
    of_state, of_noise, spread = [], [], []
    for i, block in enumerate(once.blocks):
        (A, Q), (A_back, _), seen = ahead[i], back[i], block.observed
        q = [jnp.where(first, _entry(P, x), _entry(N, x)) for P, N in zip(prior[i][seen], Q[seen], strict=True)]
        c = [_dot(row, q) for row in A_back]
        root = as_array(L[i])[: block.count][..., segment, None]
        k = forward_substitution(root, [jnp.where(last, 0.0, entry) for entry in c])
        of_state.append(_entries([jnp.where(first, 0.0, _entry(entry, x)) for entry in A[seen]], x))
        of_noise.append(_entries(k, x))
        spread.append(jnp.maximum(jnp.sum(q[seen] - sum(entry**2 for entry in k), axis=0), 0.0))
    state, noise, nu = (_by_output(once, entries) for entries in (of_state, of_noise, spread))
    return Weights(state, noise, jnp.stack([sum(blocks) for blocks in nu], axis=-1))


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


def _entries(entries: list[Array], x: Array) -> Float[Array, "tiles width size"]:
    """Entries (count, tiles, width) of `count` blocks in the order of the state, block after block."""
    count = max(entry.shape[0] for entry in entries)
    stacked = jnp.stack([jnp.broadcast_to(entry, (count, *x.shape)) for entry in entries], axis=1)
    return jnp.moveaxis(stacked.reshape(count * len(entries), *x.shape), 0, -1)


def owner(sde: SDE) -> Float[np.ndarray, "outputs 2d"]:
    """1 where an entry of (u, e) bears on an output: on a latent function, if the kernel is one of time alone."""
    sizes = [sum(stack.count * stack.dim for stack in output.stacks) for output in sde.outputs]
    return np.tile(np.repeat(np.eye(len(sizes)), sizes, axis=1), 2)


def _by_output(sde: SDE, along: list[Array]) -> tuple[tuple[Array, ...], ...]:
    """What belongs to each block, grouped by output."""
    found, start = [], 0
    for output in sde.outputs:
        found.append(tuple(along[start : start + len(output.blocks)]))
        start += len(output.blocks)
    return tuple(found)
