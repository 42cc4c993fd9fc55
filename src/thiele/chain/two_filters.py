r"""The backward filter, in information form: what all later states say about one, whatever came before it.

    β_i(x_i) = ∫ p(x_{i+1}, … | x_i) Π_{j ≥ i} t_j dx = exp(log_i + h_i·x_i − ½ x_iᵀ J_i x_i)

    B = (I + J' Q)⁻¹,   J = J_t + Aᵀ B J' A,   h = h_t + Aᵀ B (h' − J' b)

It gives the normaliser from the other end, and from any place in between where the two filters meet (paper, appendix
B.2): what is needed after a change of one site. `smoothing` is the faster way to the marginals of all.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thiele.chain.layouts import choose_layout
from thiele.chain.matrices import dense
from thiele.chain.normaliser import log_normaliser
from thiele.chain.pairs import information_on_states
from thiele.chain.sweeps import predictions
from thiele.chain.types import Chain, Information


class Backward(NamedTuple):
    """β at every state."""

    J: Float[Array, "d d n"]
    h: Float[Array, "d n"]
    log: Float[Array, " n"]


def backward_information(chain: Chain, info: Information) -> Backward:
    """β from the last state to the first."""
    d, dtype = chain.mean.shape[0], chain.mean.dtype
    J_t, h_t, log_t = information_on_states(info, d)
    move = chain.moves(chain.moves.prepare(chain.inputs))
    A, Q = (jnp.moveaxis(dense(x).astype(dtype), -1, 0) for x in (move.A, move.Q))
    b = jnp.zeros((A.shape[0], d), dtype) if move.b is None else move.b.T
    J_t, h_t = jnp.moveaxis(J_t, -1, 0), h_t.T

    def step(after: tuple[Array, Array, Array], row: tuple[Array, ...]) -> tuple[tuple, tuple]:
        J, h, log = after
        A, Q, b, J_t, h_t, log_t = row
        spread = jnp.eye(d, dtype=dtype) + J @ Q
        solved = jnp.linalg.solve(spread, jnp.concatenate([J, (h - J @ b)[:, None]], axis=1))
        BJ, pull = 0.5 * (solved[:, :d] + solved[:, :d].T), solved[:, d]
        # log ∫ N(x'; b, Q) exp(h·x' − ½ x'ᵀ J x') dx' at x = 0.
        gone = h @ b - 0.5 * b @ J @ b + 0.5 * (h - J @ b) @ Q @ pull - 0.5 * jnp.linalg.slogdet(spread)[1]
        here = (J_t + A.T @ BJ @ A, h_t + A.T @ pull, log + log_t + gone)
        return here, here

    last = (J_t[-1], h_t[-1], log_t[-1])
    _, rest = jax.lax.scan(step, last, (A, Q, b, J_t[:-1], h_t[:-1], log_t[:-1]), reverse=True)
    J, h, log = (jnp.concatenate([x, end[None]]) for x, end in zip(rest, last, strict=True))
    return Backward(jnp.moveaxis(J, 0, -1), h.T, log)


def log_normaliser_at(chain: Chain, info: Information, place: Int[Array, ""] | int) -> Float[Array, ""]:
    """The log-normaliser where the filters meet: at state 0 by the backward filter alone, at the last by the forward
    filter up to it.
    """
    d, n = chain.mean.shape[0], info.precision.shape[-1]
    behind = jnp.arange(n) < place
    before = jax.tree.map(lambda x: jnp.where(behind, x, 0.0), info._replace(H=None))._replace(H=info.H)
    # Information before `place` alone: its normaliser is the forward filter's product of constants.
    m, P, _, _ = predictions(chain, before, choose_layout(n, d, info.precision.shape[0], lanes=1))
    ahead = backward_information(chain, info)
    J, h, log = (jnp.take(x, place, axis=-1) for x in ahead)
    m, P = (jnp.take(x, place, axis=-1) for x in (m, P))
    spread = jnp.eye(d, dtype=m.dtype) + P @ J
    e = h - J @ m
    meet = log + h @ m - 0.5 * m @ J @ m + 0.5 * e @ jnp.linalg.solve(spread, P @ e)
    return log_normaliser(chain, before, lanes=1) + meet - 0.5 * jnp.linalg.slogdet(spread)[1]
