r"""The chain in factors, P = L Lᵀ and J = F Fᵀ: symmetric and positive semidefinite whatever the rounding.

    filter        L L' → L (I + L' J_i L)⁻¹ L',   then  A L L' A' + Q            J_i = Hᵀ Λ_i H
    information   F F' → A' F (I + F' Q F)⁻¹ F' A + J_i                          (of a state's own data and all later)
    both          P − P N P = L (I + L' F F' L)⁻¹ L'

Every line is `shrink`, which only divides by numbers above one, or `compress`, an orthogonal rotation; nothing is
subtracted from a covariance. Means are those of the covariance form. One lane: this is the form for float32 and for
those who want the guarantee, at the price of one small QR per step and pass. The chain's mean sets the precision:
roots of Q, P0 and Λ are taken in the precision they come in and then rounded.

Derivatives: the log-normaliser can be differentiated twice, moments once (see `compress`); a moment's derivative in a
noise covariance that is exactly zero, where a root has none, is taken as zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.chain import matrices
from thiele.chain.matrices import dense, mul, transpose
from thiele.chain.recursions import Gain, Step, gain
from thiele.chain.smoothing import Marginals, Outputs
from thiele.chain.types import Blocks, Chain, Information, Posterior
from thiele.tables import as_array

# Beyond this many columns the rank-one updates of `shrink` are a loop: written out they take long to compile.
UNROLLED = 8


def semidefinite_root(S: Float[Array, "count dim dim *batch"]) -> Float[Array, "count dim dim *batch"]:
    """Lower triangular L with L Lᵀ = S to rounding, for S that may be singular or zero; finite whatever S is.

    Cholesky of the correlation matrix, its pivots kept above rounding: that moves S by no more than rounding itself
    does, where a pivot set to zero would lose the square root of it. A row of zero variance stays exactly zero.
    """
    variance = jnp.einsum("gii...->gi...", S)
    positive = variance > 0
    scale = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1.0)), 0.0)
    unit = jnp.where(positive, 1.0 / jnp.where(positive, scale, 1.0), 0.0)
    rest = S * unit[:, :, None] * unit[:, None, :]
    columns = []
    for k in range(S.shape[1]):
        pivot = jnp.sqrt(jnp.maximum(rest[:, k, k], jnp.finfo(S.dtype).eps))
        below = rest[:, k + 1 :, k] / pivot[:, None]
        column = jnp.concatenate([jnp.zeros_like(rest[:, :k, k]), pivot[:, None], below], axis=1)
        rest = rest - column[:, :, None] * column[:, None, :]
        columns.append(column * scale)
    return jnp.stack(columns, axis=2)


def block_roots(S: Blocks) -> Blocks:
    """`semidefinite_root` of every block."""
    return tuple(semidefinite_root(as_array(stack)) for stack in S)


def shrink(L: Float[Array, "d k"], G: Float[Array, "d columns"]) -> Float[Array, "d k"]:
    """A factor of L (I + Lᵀ G Gᵀ L)⁻¹ Lᵀ: the covariance L Lᵀ after information G Gᵀ.

    One column at a time (Potter): with w = Lᵀ g and s = 1 + w·w, (I + w wᵀ)⁻¹ is the square of I − w wᵀ/(s + √s).
    """

    def update(L: Array, g: Array) -> tuple[Array, None]:
        w = L.T @ g
        s = 1.0 + w @ w
        return L - jnp.outer(L @ w, w / (s + jnp.sqrt(s))), None

    return jax.lax.scan(update, L, G.T, unroll=min(G.shape[1], UNROLLED))[0]


def compress(M: Float[Array, "d k"]) -> Float[Array, "d d"]:
    """L with L Lᵀ = M Mᵀ and no more columns than rows, for k ≥ d: L = M U, the columns of U orthonormal.

    U is held fixed in derivatives: d(L Lᵀ) = dM Mᵀ + M dMᵀ is exact without it, also for a singular M, which does not
    determine U. That is so once; a second derivative through this function would miss a part.
    """
    U, _ = jnp.linalg.qr(jax.lax.stop_gradient(M.T))
    return M @ U


class _Row(NamedTuple):
    """One state's information and the move to the next: `sites` is a root of Hᵀ Λ H, `noise` a root of Q."""

    step: Step
    sites: Array
    noise: Array


class _Seen(NamedTuple):
    """What the forward pass leaves at one state: filtered mean and factor, p = P Hᵀ of the prediction, the gain."""

    m: Array
    L: Array
    p: Array
    gain: Gain


class Factors(NamedTuple):
    """Filtered N(m, L Lᵀ); then, attached to the prediction of the next state, r and the information F Fᵀ, and `T`, a
    factor of that information carried back over the move. `r0`, `F0` belong to the prediction of the first state.
    """

    m: Float[Array, "d n"]
    L: Float[Array, "d d n"]
    r: Float[Array, "d n"]
    F: Float[Array, "d d n"]
    T: Float[Array, "d d n"]
    r0: Float[Array, " d"]
    F0: Float[Array, "d d"]
    log: Float[Array, ""]


def factors(chain: Chain, info: Information) -> Factors:
    """Both passes over the chain."""
    d = chain.mean.shape[0]
    dtype = chain.mean.dtype
    H = jnp.asarray(_emission(chain, info), dtype)
    rows = _rows(chain, info, H)

    def forward(carry: tuple[Array, Array], row: _Row) -> tuple[tuple[Array, Array], _Seen]:
        m, L = carry
        p = L @ (L.T @ H.T)
        found = gain(matrices, H, row.step, m, p)
        filtered, spread = m + p @ found.xi, shrink(L, row.sites)
        ahead = mul(row.step.A, filtered)
        if row.step.b is not None:
            ahead = ahead + row.step.b
        root = compress(jnp.concatenate([mul(row.step.A, spread), row.noise], axis=1))
        return (ahead, root), _Seen(filtered, spread, p, found)

    def backward(carry: tuple[Array, Array], x: tuple[_Row, _Seen]) -> tuple[tuple[Array, Array], Any]:
        (r, F), (row, seen) = carry, x
        At = transpose(row.step.A)
        carried, T = mul(At, r), mul(At, shrink(F, row.noise))
        own = carried + H.T @ (seen.gain.xi - seen.gain.M @ (seen.p.T @ carried))
        return (own, compress(jnp.concatenate([row.sites, T], axis=1))), (r, F, T)

    start = chain.mean[:, None], dense(block_roots(chain.cov)).astype(dtype)
    _, seen = jax.lax.scan(forward, start, rows)
    end = jnp.zeros((d, 1), dtype), jnp.zeros((d, d), dtype)
    (r0, F0), later = jax.lax.scan(backward, end, (rows, seen), reverse=True)
    m, L, r, F, T = (jnp.moveaxis(x, 0, -1) for x in (seen.m, seen.L, *later))
    return Factors(m[:, 0], L, r[:, 0], F, T, r0[:, 0], F0, _total(seen.gain.log))


def _emission(chain: Chain, info: Information) -> np.ndarray:
    return np.eye(chain.mean.shape[0]) if info.H is None else info.H


def _rows(chain: Chain, info: Information, H: Array) -> _Row:
    """The chain with its steps on the leading axis; after the last state comes a move to nowhere."""
    dtype = H.dtype
    move = chain.moves(chain.moves.prepare(chain.inputs))

    def leading(x: Array) -> Array:
        return jnp.moveaxis(x, -1, 0).astype(dtype)

    def padded(x: Array) -> Array:
        return jnp.pad(leading(x), [(0, 1)] + [(0, 0)] * (x.ndim - 1))

    column = lambda x: None if x is None else leading(x)[..., None]  # noqa: E731
    step = Step(
        A=tuple(padded(as_array(stack)) for stack in move.A),
        Q=None,
        b=None if move.b is None else padded(move.b)[..., None],
        Lam=leading(info.precision),
        h=column(info.shift),
        c=column(info.centre),
    )
    return _Row(step, H.T @ leading(semidefinite_root(info.precision[None])[0]), padded(dense(block_roots(move.Q))))


def _total(terms: Float[Array, " n"]) -> Float[Array, ""]:
    """The sum of many terms, in rows of similar length: the rounding grows with √n, not with n."""
    n = terms.shape[0]
    width = max(1, round(n**0.5))
    return jnp.sum(jnp.sum(jnp.pad(terms, (0, -n % width)).reshape(-1, width), axis=1))


def _along(function: Any) -> Any:
    return jax.vmap(function, in_axes=-1, out_axes=-1)


def _square(L: Array) -> Array:
    return jnp.einsum("ik...,jk...->ij...", L, L)


def _smoothed_mean(found: Factors, A: Array) -> Array:
    """m + P Aᵀ r at every state but the last, where nothing follows."""
    Atr = jnp.einsum("ki...,k...->i...", A, found.r[:, :-1])
    mean = found.m[:, :-1] + jnp.einsum("ik...,jk...,j...->i...", found.L[..., :-1], found.L[..., :-1], Atr)
    return jnp.concatenate([mean, found.m[:, -1:]], axis=-1)


def _transitions(chain: Chain) -> tuple[Array, Array]:
    """A and a root of Q, written out, (d, d, n - 1)."""
    move = chain.moves(chain.moves.prepare(chain.inputs))
    return tuple(dense(x).astype(chain.mean.dtype) for x in (move.A, block_roots(move.Q)))


def _outputs(found: Factors, chain: Chain, info: Information) -> Outputs:
    A, _ = _transitions(chain)
    H = jnp.asarray(_emission(chain, info), chain.mean.dtype)
    HX = jnp.einsum("li,ik...->lk...", H, _along(shrink)(found.L, found.T))
    return Outputs(jnp.einsum("li,i...->l...", H, _smoothed_mean(found, A)), _square(HX))


def _posterior(found: Factors, chain: Chain) -> Posterior:
    A, noise = _transitions(chain)
    ahead = jnp.concatenate([jnp.einsum("ij...,jk...->ik...", A, found.L[..., :-1]), noise], axis=1)
    # (I + J P)⁻¹ J, with P the prediction: information seen from there. After the last state there is none.
    N = jnp.pad(_square(_along(shrink)(found.F[..., :-1], ahead)), [(0, 0), (0, 0), (0, 1)])
    first = shrink(found.F0, dense(block_roots(chain.cov)).astype(found.F0.dtype))
    return Posterior(found.m, _square(found.L), found.r, N, found.r0, _square(first))


def outputs(chain: Chain, info: Information) -> tuple[Outputs, Float[Array, ""]]:
    """The marginals of the outputs at every state, and the log-normaliser."""
    found = factors(chain, info)
    return _outputs(found, chain, info), found.log


def posterior(chain: Chain, info: Information) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior at every state, and the log-normaliser."""
    found = factors(chain, info)
    return _posterior(found, chain), found.log


def marginals(chain: Chain, info: Information) -> Marginals:
    """Posterior moments of every state and of every pair of neighbours, from a factor of the pair's covariance."""
    found = factors(chain, info)
    A, noise = _transitions(chain)

    def pair(L: Array, A: Array, noise: Array, F: Array) -> Array:
        # (x, x') = (x, A x + q): filtered x and the noise, then the information on x' alone.
        none = jnp.zeros_like(noise)
        both = jnp.block([[L, none], [A @ L, noise]])
        return shrink(both, jnp.concatenate([none, F]))

    X = _along(pair)(found.L[..., :-1], A, noise, found.F[..., :-1])
    here, there = jnp.split(X, 2)
    cov = jnp.concatenate([_square(here), _square(found.L[..., -1:])], axis=-1)
    return Marginals(_smoothed_mean(found, A), cov, jnp.einsum("ik...,jk...->ij...", there, here))


def log_normaliser(chain: Chain, info: Information) -> Float[Array, ""]:
    """log ∫ p(x) Π_i exp(shift_i·f_i − ½ (f_i − centre_i)ᵀ precision_i (f_i − centre_i)) dx.

    Its derivative is written in moments, ½ (r rᵀ − N) for Q and the like, so that it is exact also where a root has no
    derivative (Q = 0).
    """
    H = info.H

    @jax.custom_jvp
    def value(chain: Chain, info: Information) -> Array:
        return factors(chain, info._replace(H=H)).log

    @value.defjvp
    def _(primals: tuple[Chain, Information], tangents: tuple[Chain, Information]) -> tuple[Array, Array]:
        return _value_and_slope((primals[0], primals[1]._replace(H=H)), tangents)

    return value(chain, info._replace(H=None))


def _value_and_slope(primals: tuple[Chain, Information], tangents: tuple[Chain, Information]) -> tuple[Array, Array]:
    (chain, info), (dchain, dinfo) = primals, tangents
    found = factors(chain, info)
    f, V, *_ = _outputs(found, chain, info)
    m, P, r, N, r0, N0 = _posterior(found, chain)
    m, P, r, N = (x[..., :-1] for x in (m, P, r, N))
    move, dmove = jax.jvp(
        lambda moves, x: moves(moves.prepare(x)), (chain.moves, chain.inputs), (dchain.moves, dchain.inputs)
    )
    D = r[:, None] * r[None, :] - N
    away = f if info.centre is None else f - info.centre
    terms = [
        (r0, dchain.mean),
        (0.5 * (jnp.outer(r0, r0) - N0), dense(dchain.cov)),
        (r[:, None] * m[None, :] + jnp.einsum("ij...,jk...,kl...->il...", D, dense(move.A), P), dense(dmove.A)),
        (0.5 * D, dense(dmove.Q)),
        (r, dmove.b),
        (-0.5 * (away[:, None] * away[None, :] + V), dinfo.precision),
        (f, dinfo.shift),
        (jnp.einsum("ij...,j...->i...", info.precision, away), dinfo.centre),
    ]
    slope = sum(jnp.sum(by * change) for by, change in terms if change is not None)
    return found.log, jnp.asarray(slope, found.log.dtype)
