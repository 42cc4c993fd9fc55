r"""Information on whole states, f = x, as inducing states have it: the recursions with half the products.

With B = (I + Λ P)⁻¹ and M = B Λ at a prediction N(m, P), the filtered state is N(B' m + F h, F), F = P B, and the later
information (r', N') of the next prediction becomes, with N_f = A' N' A and r_f = A' r',

    N = M + B N_f B',    r = B (h + r_f) − M m

for this one. `thiele.chain.recursions` carries P Hᵀ and H beside P for the sake of few outputs of many states; here
these would be the same matrices again. One lane, everything at once; states of a few numbers are walked number by
number, in one function (`thiele.chain.one_function`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from thiele import small
from thiele.chain import lanes_of_scalars as scalars
from thiele.chain.layouts import Layout, choose_layout
from thiele.chain.matrices import dense
from thiele.chain.types import Chain, Information, Posterior, Tabulated

# Up to this size, a chain of so many states repays the seconds that it takes to compile number by number.
LARGEST_OF_MANY, MANY = 4, 512


def applies(chain: Chain, info: Information, lanes: int | None) -> bool:
    """Whether a chain is of this kind, and goes in one lane."""
    d, n = chain.mean.shape[0], info.precision.shape[-1]
    whole = info.H is None and info.mix is None and info.centre is None and info.shift is not None
    return whole and isinstance(chain.moves, Tabulated) and choose_layout(n, d, d, lanes).lanes == 1


class Rows(NamedTuple):
    """A chain and its information with the axis of the chain first; the last state moves nowhere."""

    A: Float[Array, "n d d"]
    Q: Float[Array, "n d d"]
    b: Float[Array, "n d"]
    Lam: Float[Array, "n d d"]
    h: Float[Array, "n d"]


class Start(NamedTuple):
    """The prior of the first state."""

    m: Float[Array, " d"]
    P: Float[Array, "d d"]


class Forward(NamedTuple):
    """At every state: B and M, the prediction's mean, and the filtered moments."""

    B: Array
    M: Array
    m: Array
    mf: Array
    F: Array


class Backward(NamedTuple):
    """(r, N) of the prediction of the next state, from all information at it and after it."""

    r: Array
    N: Array


class Update(NamedTuple):
    """B = (I + Λ P)⁻¹, M = B Λ (symmetric), and log det(I + Λ P)."""

    B: Float[Array, "d d"]
    M: Float[Array, "d d"]
    log_det: Float[Array, ""]


@jax.custom_jvp
def update(Lam: Float[Array, "d d"], P: Float[Array, "d d"]) -> Update:
    """What information Λ does to a covariance P. M is solved for: where Λ is large, B Λ would lose digits."""
    eye = jnp.eye(P.shape[0], dtype=P.dtype)
    found, log_det = small.solve(eye + Lam @ P, jnp.concatenate([eye, Lam], axis=1))
    B, M = jnp.split(found, 2, axis=1)
    return Update(B, _symmetric(M), log_det)


@update.defjvp
def _update_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Update, Update]:
    found = update(*primals)
    B, M, _ = found
    by_information, by_covariance = B @ tangents[0], M @ tangents[1]
    moved = by_information @ primals[1]
    return found, Update(
        -moved @ B - by_covariance @ B,
        by_information @ B.T - by_covariance @ M,
        jnp.trace(moved) + jnp.trace(by_covariance),
    )


def _symmetric(X: Array) -> Array:
    return 0.5 * (X + X.T)


def rows_of(chain: Chain, info: Information) -> tuple[Start, Rows]:
    """The chain as this file takes it."""
    move = chain.inputs
    leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    A, Q = (_padded(leading(dense(x))) for x in (move.A, move.Q))
    b = jnp.zeros_like(A[..., 0]) if move.b is None else _padded(leading(move.b))
    return Start(chain.mean, dense(chain.cov)), Rows(A, Q, b, leading(info.precision), leading(info.shift))


def _padded(x: Array) -> Array:
    return jnp.concatenate([x, jnp.zeros_like(x[:1])]) if x.shape[0] else jnp.zeros((1, *x.shape[1:]), x.dtype)


def forward(start: Start, rows: Rows, mapped: bool = False) -> tuple[Float[Array, ""], Forward]:
    """The filter and the log-normaliser."""
    if _by_numbers(rows, mapped):
        return _forward_by_numbers(start, rows)

    def step(carry: tuple[Array, Array, Array], row: Rows) -> tuple[tuple[Array, Array, Array], Forward]:
        m, P, log = carry
        B, M, log_det = update(row.Lam, P)
        F = _symmetric(P @ B)
        shrunk, Fh = m @ B, F @ row.h
        log = log - 0.5 * log_det + row.h @ (shrunk + 0.5 * Fh) - 0.5 * m @ (M @ m)
        mf = shrunk + Fh
        following = row.A @ mf + row.b, _symmetric(row.A @ F @ row.A.T) + row.Q, log
        return following, Forward(B, M, m, mf, F)

    (_, _, log), found = jax.lax.scan(step, (*start, jnp.zeros((), start.m.dtype)), rows)
    return log, found


def backward(rows: Rows, seen: Forward, mapped: bool = False) -> tuple[Backward, Backward]:
    """(r, N) of the first state's own prediction, and of the next one's at every state."""
    d, dtype = rows.h.shape[1], rows.h.dtype
    if _by_numbers(rows, mapped):
        return _backward_by_numbers(rows, seen)

    def step(after: Backward, x: tuple[Rows, Forward]) -> tuple[Backward, Backward]:
        row, at = x
        r, N = row.A.T @ after.r, row.A.T @ after.N @ row.A
        own = at.M + at.B @ N @ at.B.T
        return Backward(at.B @ (row.h + r) - at.M @ at.m, _symmetric(own)), after

    end = Backward(jnp.zeros(d, dtype), jnp.zeros((d, d), dtype))
    return jax.lax.scan(step, end, (rows, seen), reverse=True)


def _by_numbers(rows: Rows, mapped: bool) -> bool:
    n, d = rows.h.shape
    return (d <= small.LARGEST or (d <= LARGEST_OF_MANY and n >= MANY)) and not mapped


def _forward_by_numbers(start: Start, rows: Rows) -> tuple[Float[Array, ""], Forward]:
    n, d = rows.h.shape
    eye = scalars.selection(np.eye(d), start.m.dtype)

    def step(carry: tuple[Any, Any, Array], row: Rows) -> tuple[tuple[Any, Any, Array], Forward]:
        m, P, log = carry[0], scalars.unfold(carry[1]), carry[2]
        Lam = scalars.unfold(row.Lam)
        spread = scalars.add(eye, scalars.mul(Lam, P))
        sides = [
            [X.get((i, j), np.zeros((), start.m.dtype)) for X in (spread, eye, Lam) for j in range(d)] for i in range(d)
        ]
        found, log_det = small.eliminated(sides)
        B = {(i, j): found[i][j] for i, j in np.ndindex(d, d)}
        M = scalars.symmetric({(i, j): found[i][d + j] for i, j in np.ndindex(d, d)})
        F = scalars.symmetric(scalars.mul(P, B))
        shrunk, Fh = scalars.mul(scalars.transpose(B), m), scalars.mul(F, row.h)
        inner = scalars.scalar(scalars.mul(scalars.transpose(row.h), scalars.add(shrunk, scalars.scale(0.5, Fh))))
        log = log - 0.5 * log_det + inner - 0.5 * scalars.scalar(scalars.congruence(scalars.transpose(m), M))
        mf = scalars.add(shrunk, Fh)
        ahead = scalars.add(scalars.mul(row.A, mf), row.b)
        P = scalars.add(scalars.congruence(row.A, F), scalars.unfold(row.Q))
        return (ahead, scalars.fold(P), log), Forward(B, scalars.fold(M), m, mf, scalars.fold(F))

    first = _column(start.m[None]), scalars.fold(_square(start.P[None])), jnp.zeros(1, start.m.dtype)
    first = jax.tree.map(lambda x: x.reshape(1), first)
    (_, _, log), found = _walk(n, step, first, _numbers(rows))
    B, M, m, mf, F = found
    square = lambda X: _gathered(scalars.unfold(X), (d, d), n)  # noqa: E731
    column = lambda x: _gathered(x, (d, 1), n)[..., 0]  # noqa: E731
    return log[0], Forward(_gathered(B, (d, d), n), square(M), column(m), column(mf), square(F))


def _backward_by_numbers(rows: Rows, seen: Forward) -> tuple[Backward, Backward]:
    n, d = rows.h.shape

    def step(after: Backward, x: tuple[Rows, Forward]) -> tuple[Backward, Backward]:
        row, at = x
        At = scalars.transpose(row.A)
        N = scalars.congruence(At, scalars.unfold(after.N))
        own = scalars.add(scalars.unfold(at.M), scalars.congruence(at.B, N))
        r = scalars.mul(at.B, scalars.add(row.h, scalars.mul(At, after.r)))
        moved = Backward(scalars.sub(r, scalars.mul(scalars.unfold(at.M), at.m)), scalars.fold(own))
        return moved, after

    zero = jnp.zeros(1, rows.h.dtype)
    end = Backward({(i, 0): zero for i in range(d)}, {key: zero for key in np.ndindex(d, d) if key[0] <= key[1]})
    fold = lambda x: scalars.fold(_square(x))  # noqa: E731
    at = Forward(_square(seen.B), fold(seen.M), _column(seen.m), _column(seen.mf), fold(seen.F))
    first, after = _walk(n, step, end, (_numbers(rows), at), reverse=True)
    first = Backward(_gathered(first.r, (d, 1), 1)[0, :, 0], _gathered(scalars.unfold(first.N), (d, d), 1)[0])
    return first, Backward(_gathered(after.r, (d, 1), n)[..., 0], _gathered(scalars.unfold(after.N), (d, d), n))


def _walk(n: int, step: Any, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    return Layout(1, 1, n, scalars).walk(step, carry, xs, reverse)


def _numbers(rows: Rows) -> Rows:
    """The same with matrices as `lanes_of_scalars` writes them, in one lane."""
    fold = lambda x: scalars.fold(_square(x))  # noqa: E731
    return Rows(_square(rows.A), fold(rows.Q), _column(rows.b), fold(rows.Lam), _column(rows.h))


def _square(X: Float[Array, "n i j"]) -> Any:
    return scalars.unpack(jnp.moveaxis(X, 0, -1)[..., None])


def _column(x: Float[Array, "n i"]) -> Any:
    return _square(x[..., None])


def _gathered(X: Any, shape: tuple[int, int], n: int) -> Float[Array, "n i j"]:
    return jnp.moveaxis(scalars.pack(X, shape, (n, 1))[..., 0], -1, 0)


def posterior(chain: Chain, info: Information, mapped: bool = False) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior at every state, and the log-normaliser; `mapped` as in `thiele.chain.forms`."""
    return _posterior(*rows_of(chain, info), mapped)


def held_posterior(chain: Chain, info: Information) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior, held: only the log-normaliser beside it has a derivative, by the same pass."""
    return _held_posterior(*rows_of(chain, info))


def log_normaliser(chain: Chain, info: Information) -> Float[Array, ""]:
    """The log-normaliser, with a derivative that keeps no tape and can be differentiated again."""
    return _log_normaliser(*rows_of(chain, info))


def _posterior(start: Start, rows: Rows, mapped: bool = False) -> tuple[Posterior, Array]:
    log, seen = forward(start, rows, mapped)
    return _put_together(seen, *backward(rows, seen, mapped)), log


def _put_together(seen: Forward, first: Backward, after: Backward) -> Posterior:
    trailing = lambda x: jnp.moveaxis(x, 0, -1)  # noqa: E731
    return Posterior(*(trailing(x) for x in (seen.mf, seen.F, *after)), *first)


Arguments = tuple[Start, Rows]


@jax.custom_jvp
def _log_normaliser(start: Start, rows: Rows) -> Array:
    return forward(start, rows)[0]


@partial(_log_normaliser.defjvp, symbolic_zeros=True)
def _log_normaliser_jvp(primals: Arguments, tangents: Arguments) -> tuple[Array, Array]:
    log, _, change = _value_and_change(primals, tangents)
    return log, change


@jax.custom_jvp
def _held_posterior(start: Start, rows: Rows) -> tuple[Posterior, Array]:
    return _posterior(start, rows)


@partial(_held_posterior.defjvp, symbolic_zeros=True)
def _held_posterior_jvp(
    primals: Arguments, tangents: Arguments
) -> tuple[tuple[Posterior, Array], tuple[Posterior, Array]]:
    log, found, change = _value_and_change(primals, tangents)
    return (found, log), (jax.tree.map(jnp.zeros_like, found), change)


def _value_and_change(primals: Arguments, tangents: Arguments) -> tuple[Array, Posterior, Array]:
    log, found, slopes = value_and_slopes(*primals)
    total = jnp.zeros_like(log)
    for slope, tangent in zip(jax.tree.leaves(slopes), jax.tree.leaves(tangents), strict=True):
        if not isinstance(tangent, SymbolicZero):
            total = total + jnp.sum(slope * tangent)
    return log, found, total


def value_and_slopes(start: Start, rows: Rows) -> tuple[Array, Posterior, Arguments]:
    """log Z, the posterior, and the gradient of log Z, by one forward and one backward recursion and no tape."""
    log, seen = forward(start, rows)
    first, after = backward(rows, seen)
    outer = lambda a, b: a[..., :, None] * b[..., None, :]  # noqa: E731
    turned = lambda X: jnp.swapaxes(X, -1, -2)  # noqa: E731
    D = outer(after.r, after.r) - after.N
    AF = rows.A @ seen.F
    mean = seen.mf + jnp.einsum("nij,ni->nj", AF, after.r)
    var = seen.F - turned(AF) @ after.N @ AF
    by_rows = Rows(
        A=outer(after.r, seen.mf) + D @ AF,
        Q=0.5 * D,
        b=after.r,
        Lam=-0.5 * (outer(mean, mean) + var),
        h=mean,
    )
    by_start = Start(first.r, 0.5 * (outer(first.r, first.r) - first.N))
    return log, _put_together(seen, first, after), (by_start, by_rows)
