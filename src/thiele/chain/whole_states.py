r"""Information on whole states, f = x, as inducing states have it: the recursions with half the products.

With B = (I + Λ P)⁻¹ and M = B Λ at a prediction N(m, P), the filtered state is N(B' m + F h, F), F = P B, and the later
information (r', N') of the next prediction becomes, with N_f = A' N' A and r_f = A' r',

    N = M + B N_f B',    r = B (h + r_f) − M m

for this one. `thiele.chain.recursions` carries P Hᵀ and H beside P for the sake of few outputs of many states; here
these would be the same matrices again. One lane, everything at once; states of a few numbers are walked in one function
(`thiele.one_function`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele import one_function, small
from thiele.chain.layouts import backend, choose_layout
from thiele.chain.matrices import dense
from thiele.chain.types import Chain, Information, Posterior, Tabulated
from thiele.slopes import change

# One function is plain loops, which up to this size are sooner done than the library's are asked for.
LARGEST_IN_ONE_FUNCTION = 5


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
    few = P.shape[0] <= LARGEST_IN_ONE_FUNCTION
    found, log_det = (small.eliminated if few else small.solve)(eye + Lam @ P, jnp.concatenate([eye, Lam], axis=1))
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

    def step(carry: tuple[Array, Array, Array], row: Rows) -> tuple[tuple[Array, Array, Array], Forward]:
        m, P, log = carry
        B, M, log_det = update(row.Lam, P)
        F = _symmetric(P @ B)
        shrunk, Fh = m @ B, F @ row.h
        log = log - 0.5 * log_det + row.h @ (shrunk + 0.5 * Fh) - 0.5 * m @ (M @ m)
        mf = shrunk + Fh
        following = row.A @ mf + row.b, _symmetric(row.A @ F @ row.A.T) + row.Q, log
        return following, Forward(B, M, m, mf, F)

    (_, _, log), found = _walk(step, (*start, jnp.zeros((), start.m.dtype)), rows, mapped)
    return log, found


def backward(rows: Rows, seen: Forward, mapped: bool = False) -> tuple[Backward, Backward]:
    """(r, N) of the first state's own prediction, and of the next one's at every state."""
    d, dtype = rows.h.shape[1], rows.h.dtype

    def step(after: Backward, x: tuple[Rows, Forward]) -> tuple[Backward, Backward]:
        row, at = x
        r, N = row.A.T @ after.r, row.A.T @ after.N @ row.A
        own = at.M + at.B @ N @ at.B.T
        return Backward(at.B @ (row.h + r) - at.M @ at.m, _symmetric(own)), after

    end = Backward(jnp.zeros(d, dtype), jnp.zeros((d, d), dtype))
    return _walk(step, end, (rows, seen), mapped, reverse=True)


def _walk(step: Any, carry: Any, xs: Any, mapped: bool, reverse: bool = False) -> tuple[Any, Any]:
    few = carry[0].shape[0] <= LARGEST_IN_ONE_FUNCTION and backend() == "cpu" and not mapped
    return one_function.walk(step, carry, xs, reverse) if few else jax.lax.scan(step, carry, xs, reverse=reverse)


def posterior(chain: Chain, info: Information, mapped: bool = False) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior at every state, and the log-normaliser; `mapped` as in `thiele.chain.forms`."""
    return _posterior(*rows_of(chain, info), mapped)


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
def _(primals: Arguments, tangents: Arguments) -> tuple[Array, Array]:
    log, slopes = value_and_slopes(*primals)
    return log, change(slopes, tangents)


def value_and_slopes(start: Start, rows: Rows) -> tuple[Array, Arguments]:
    """log Z and its gradient, by one forward and one backward recursion and no tape."""
    log, seen = forward(start, rows)
    first, after = backward(rows, seen)
    outer = lambda a, b: a[..., :, None] * b[..., None, :]  # noqa: E731
    turned = lambda X: jnp.swapaxes(X, -1, -2)  # noqa: E731
    D = outer(after.r, after.r) - after.N
    AF = small.product(rows.A, seen.F)
    mean = seen.mf + jnp.einsum("nij,ni->nj", AF, after.r)
    var = seen.F - small.product(small.product(turned(AF), after.N), AF)
    by_rows = Rows(
        A=outer(after.r, seen.mf) + small.product(D, AF),
        Q=0.5 * D,
        b=after.r,
        Lam=-0.5 * (outer(mean, mean) + var),
        h=mean,
    )
    by_start = Start(first.r, 0.5 * (outer(first.r, first.r) - first.N))
    return log, (by_start, by_rows)
