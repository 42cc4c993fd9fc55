r"""Information on neighbouring pairs, absorbed into the transition between them.

With u' = A u + b + q, q ~ N(0, Q), and exp(h·v − ½ vᵀ J v) on v = (u, u'),

    S  = I + Q J22            A~ = S⁻¹ (A − Q J12ᵀ)        Q~ = S⁻¹ Q        b~ = S⁻¹ (b + Q h2)
    J~ = J11 + Aᵀ (J22 A~ + J12ᵀ) + J12 A~
    h~ = h1 + Aᵀ (h2 − J22 b~) − J12 b~
    log c = ½ h2·b~ + ½ b·(h2 − J22 b~) − ½ log det S

leaves information (h~, J~) on u alone and the move u' = A~ u + b~ + N(0, Q~). Neither Q nor J is inverted, and all
pairs are done at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.chain.matrices import dense
from thiele.chain.types import Chain, Information, Move, Tabulated


class PairInformation(NamedTuple):
    """exp(shift·v − ½ vᵀ precision v) on v = (x_i, x_{i+1}), for each of the n - 1 pairs of neighbours."""

    precision: Float[Array, "2d 2d n-1"]
    shift: Float[Array, "2d n-1"]


def absorb(
    chain: Chain, pairs: PairInformation, info: Information | None = None
) -> tuple[Chain, Information, Float[Array, ""]]:
    """A chain with information on its states only that has the same posterior, and the log factor between the two:
    the log-normaliser of all is that of the result plus the factor. `info` is on the states already.
    """
    d, dtype = chain.mean.shape[0], chain.mean.dtype
    J, h = (jnp.moveaxis(x, -1, 0) for x in (pairs.precision, pairs.shift[:, None]))
    J11, J12, J22 = J[:, :d, :d], J[:, :d, d:], J[:, d:, d:]
    h1, h2 = h[:, :d], h[:, d:]
    move = chain.moves(chain.moves.prepare(chain.inputs))
    A, Q = (jnp.moveaxis(dense(x).astype(dtype), -1, 0) for x in (move.A, move.Q))
    b = jnp.zeros_like(h2) if move.b is None else jnp.moveaxis(move.b[:, None], -1, 0)

    S = jnp.eye(d, dtype=dtype) + Q @ J22
    found = jnp.linalg.solve(S, jnp.concatenate([A - Q @ _turned(J12), Q, b + Q @ h2], axis=-1))
    A_new, Q_new, b_new = found[..., :d], found[..., d : 2 * d], found[..., 2 * d :]
    pull = h2 - J22 @ b_new
    J_new = J11 + _turned(A) @ (J22 @ A_new + _turned(J12)) + J12 @ A_new
    h_new = h1 + _turned(A) @ pull - J12 @ b_new
    log = 0.5 * (jnp.sum(h2 * b_new) + jnp.sum(b * pull) - jnp.sum(jnp.linalg.slogdet(S)[1]))

    trailing = lambda x: jnp.moveaxis(x, 0, -1)  # noqa: E731
    inner = Move((trailing(A_new)[None],), (trailing(_symmetric(Q_new))[None],), trailing(b_new)[:, 0])
    precision = jnp.pad(trailing(_symmetric(J_new)), [(0, 0), (0, 0), (0, 1)])
    shift = jnp.pad(trailing(h_new)[:, 0], [(0, 0), (0, 1)])
    if info is not None:
        more, more_shift, more_log = information_on_states(info, d)
        precision, shift, log = precision + more, shift + more_shift, log + jnp.sum(more_log)
    return Chain(chain.mean, chain.cov, Tabulated(), inner), Information(precision, shift), log


def information_on_states(info: Information, d: int) -> tuple[Array, Array, Float[Array, " n"]]:
    """Information on f = H x about a centre as precision and shift on x, and the constants that the centre leaves."""
    H = jnp.asarray(np.eye(d) if info.H is None else info.H, info.precision.dtype)
    shift, log = jnp.zeros(info.precision.shape[1:], info.precision.dtype), jnp.zeros(info.precision.shape[2:])
    if info.shift is not None:
        shift = shift + info.shift
    if info.centre is not None:
        drawn = jnp.einsum("lm...,m...->l...", info.precision, info.centre)
        shift, log = shift + drawn, log - 0.5 * jnp.sum(info.centre * drawn, axis=0)
    return jnp.einsum("li,lm...,mj->ij...", H, info.precision, H), jnp.einsum("li,l...->i...", H, shift), log


def _turned(X: Array) -> Array:
    return jnp.swapaxes(X, -1, -2)


def _symmetric(X: Array) -> Array:
    return 0.5 * (X + _turned(X))
