r"""Sites of segments: each is about w = (u, e), the state at the start and the white noise that drives it to the next.

The noise is integrated out of every site at once; what is left is an ordinary chain on the states. From its posterior
come the moments of w.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele import chain
from thiele.chain import Chain, Information, Move, Posterior, Tabulated, posterior
from thiele.chain.matrices import dense, pack_blocks
from thiele.rules.cavity import Marginal, Site
from thiele.slopes import change
from thiele.small import inverse, product

Stacks = tuple[Float[Array, "count dim dim S"], ...]


class Steps(NamedTuple):
    """u' = A u + L e over every segment, as stacks of blocks. Segment 0 makes the first state; the last is empty."""

    A: Stacks
    L: Stacks


Arguments = tuple[Steps, Site]


class NoiseGivenState(NamedTuple):
    """Within a segment e | u ~ N(g − G u, C), from the site and the prior; and log det C⁻¹."""

    C: Float[Array, "S d d"]
    G: Float[Array, "S d d"]
    g: Float[Array, "S d"]
    log_det: Float[Array, " S"]


def noise_of_sites(sites: Site) -> NoiseGivenState:
    """C = (I + J_ee)⁻¹, G = C J_eu, g = C h_e."""
    d = sites.shift.shape[1] // 2
    C, log_det = jax.vmap(noise_left)(sites.precision[:, d:, d:])
    return NoiseGivenState(C, product(C, _turned(sites.precision[:, :d, d:])), _apply(C, sites.shift[:, d:]), log_det)


class Absorbed(NamedTuple):
    """A chain on the inducing states alone, with what the sites say about them, and the noise given the state."""

    chain: Chain
    information: Information
    log: Float[Array, ""]
    noise: NoiseGivenState


def absorb(at: Steps, sites: Site) -> Absorbed:
    r"""Integrate the noise of every segment out of its site.

        C = (I + J_ee)⁻¹    G = C J_eu    g = C h_e
        u' = (A − L G) u + L g + N(0, L C L')        information on u:  J_uu − J_ue G,  h_u − J_ue g

    Neither Q nor the site is inverted. Segment 0 makes the prior of the first state; the last has no noise.
    """
    L, (h, J) = between(at.L), sites
    d = h.shape[1] // 2
    J_uu, J_ue, h_u, h_e = J[:, :d, :d], J[:, :d, d:], h[:, :d], h[:, d:]
    noise = noise_of_sites(sites)
    C, G, g, log_det = noise
    log = 0.5 * (jnp.sum(h_e * g) - jnp.sum(log_det))
    Lg, Q = times(L, g[..., None])[..., 0], times(L, _turned(times(L, C)))
    precision, shift = J_uu - product(J_ue, G), h_u - _apply(J_ue, g)
    Q, precision = _symmetric(Q), _symmetric(precision)
    trailing = lambda x: jnp.moveaxis(x, 0, -1)  # noqa: E731
    A = jnp.moveaxis(dense(at.A), -1, 0) - times(L, G)
    move = Move((trailing(A[1:-1])[None],), (trailing(Q[1:-1])[None],), trailing(Lg[1:-1]))
    states = Chain(Lg[0], (Q[0][None],), Tabulated(), move)
    return Absorbed(states, Information(trailing(precision[1:]), trailing(shift[1:])), log, noise)


@jax.custom_jvp
def noise_left(J: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """(I + J)⁻¹, the covariance of white noise after information J, and log det(I + J)."""
    return inverse(jnp.eye(J.shape[0], dtype=J.dtype) + J)


@noise_left.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """By products alone: see `thiele.rules.cavity.combined`."""
    found = noise_left(*primals)
    moved = product(found[0], tangents[0])
    return found, (-product(moved, found[0]), jnp.trace(moved))


def smooth(at: Steps, sites: Site) -> tuple[Marginal, Float[Array, ""]]:
    """q(w) of every segment, and log Z."""
    absorbed = absorb(at, sites)
    found, log_z = posterior(absorbed.chain, absorbed.information)
    q, _ = _pairs(between(at.A), between(at.L), absorbed.noise, *_by_segment(found))
    return q, log_z + absorbed.log


@jax.custom_jvp
def smooth_held(at: Steps, sites: Site) -> tuple[Marginal, Float[Array, ""]]:
    """The same, with q held: only log Z has a derivative, by what its moments tell."""
    return smooth(at, sites)


@partial(smooth_held.defjvp, symbolic_zeros=True)
def _(primals: Arguments, tangents: Arguments) -> tuple[tuple[Marginal, Array], tuple[Marginal, Array]]:
    q, log_z, slopes = value_and_slopes(*primals)
    return (q, log_z), (jax.tree.map(jnp.zeros_like, q), change(slopes, tangents))


@jax.custom_jvp
def log_normaliser(at: Steps, sites: Site) -> Float[Array, ""]:
    """log Z alone."""
    absorbed = absorb(at, sites)
    return chain.log_normaliser(absorbed.chain, absorbed.information) + absorbed.log


@partial(log_normaliser.defjvp, symbolic_zeros=True)
def _(primals: Arguments, tangents: Arguments) -> tuple[Array, Array]:
    _, log_z, slopes = value_and_slopes(*primals)
    return log_z, change(slopes, tangents)


def value_and_slopes(at: Steps, sites: Site) -> tuple[Marginal, Float[Array, ""], Arguments]:
    r"""q(w) of every segment, log Z and its gradient, from moments alone.

    A and L bear on the prediction u' = B w, B = (A, L), of which log Z is log E ℓ(B w) with w as it is filtered and ℓ
    what comes later, r = ∂ log Z / ∂u', N = −∂r / ∂u'. With Stein's identity, and E w all information given,

        ∂ log Z / ∂B = r (E w)' − N Cov(u', w).
    """
    absorbed = absorb(at, sites)
    found, log_z = posterior(absorbed.chain, absorbed.information)
    states = _by_segment(found)
    q, drawn = _pairs(between(at.A), between(at.L), absorbed.noise, *states)
    r, mean = states[2], jnp.split(q.mean, 2, axis=1)
    A, L = (pack_blocks(_outer(r, x) - back, stacks) for x, back, stacks in zip(mean, drawn, at, strict=True))
    by_sites = Site(q.mean, -0.5 * (_outer(q.mean, q.mean) + q.var))
    return q, log_z + absorbed.log, (Steps(A, L), by_sites)


def _by_segment(found: Posterior) -> tuple[Array, Array, Array, Array]:
    """(m, P) of the state at the start of every segment, as filtered, and (r, N) of the prediction of the next."""
    leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    m = jnp.concatenate([jnp.zeros_like(found.r0)[None], leading(found.m)])
    P = jnp.concatenate([jnp.zeros_like(found.N0)[None], leading(found.P)])
    r = jnp.concatenate([found.r0[None], leading(found.r)])
    N = jnp.concatenate([found.N0[None], leading(found.N)])
    return m, P, r, N


def pair_moments(
    A: BySegment,
    L: BySegment,
    noise: NoiseGivenState,
    m: Float[Array, "S d"],
    P: Float[Array, "S d d"],
    r: Float[Array, "S d"],
    N: Float[Array, "S d d"],
) -> Marginal:
    """q(w) of some segments, from the state N(m, P) at the start of each, as filtered, and (r, N) of the prediction of
    the next.
    """
    return _pairs(A, L, noise, m, P, r, N)[0]


def _pairs(
    A: BySegment, L: BySegment, noise: NoiseGivenState, m: Array, P: Array, r: Array, N: Array
) -> tuple[Marginal, tuple[Float[Array, "S d d"], Float[Array, "S d d"]]]:
    """The same, with N Cov(u', u) and N Cov(u', e)."""
    # Before the later information: u as filtered, e given u.
    C, G, g, _ = noise
    GP = product(G, P)
    e = g - _apply(G, m)
    var_e = C + product(GP, _turned(G))
    # (r, N) bear on the prediction of the next state, A u + L e: its covariances with u and with e.
    to_u, to_e = times(A, P) - times(L, GP), times(L, var_e) - times(A, _turned(GP))
    Nu, Ne = product(N, to_u), product(N, to_e)
    var_u, var_e = P - product(_turned(to_u), Nu), var_e - product(_turned(to_e), Ne)
    cross = -GP - product(_turned(to_e), Nu)
    mean = jnp.concatenate([m + _apply(_turned(to_u), r), e + _apply(_turned(to_e), r)], axis=-1)
    return Marginal(mean, _of_pairs(_symmetric(var_u), cross, _symmetric(var_e))), (Nu, Ne)


def _of_pairs(var_u: Array, cross: Array, var_e: Array) -> Float[Array, "S 2d 2d"]:
    """Var (u, e) from its blocks, written where they stay: a loop that asks for each number which block it is from
    takes three times as long.
    """
    S, d = var_u.shape[:2]
    whole = jnp.zeros((S, 2 * d, 2 * d), var_u.dtype)
    for block, i, j in ((var_u, 0, 0), (_turned(cross), 0, d), (cross, d, 0), (var_e, d, d)):
        whole = jax.lax.dynamic_update_slice(whole, block, (0, i, j))
    return whole


BySegment = tuple[Float[Array, "S count dim dim"], ...]


def between(stacks: tuple[Float[Array, "count dim dim S"], ...]) -> BySegment:
    """Stacks of blocks with the axis of segments first."""
    return tuple(jnp.moveaxis(stack, -1, 0) for stack in stacks)


def times(blocks: BySegment, X: Float[Array, "S d j"]) -> Float[Array, "S d j"]:
    """The product with a block-diagonal matrix: d j times the size of a block, not d² j."""
    parts, start = [], 0
    for stack in blocks:
        S, count, dim = stack.shape[:3]
        rows = X[:, start : start + count * dim].reshape(S, count, dim, -1)
        parts.append(product(stack, rows).reshape(S, count * dim, -1))
        start += count * dim
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def _outer(a: Float[Array, "S i"], b: Float[Array, "S j"]) -> Float[Array, "S i j"]:
    return a[:, :, None] * b[:, None]


def _turned(X: Array) -> Array:
    return jnp.swapaxes(X, -1, -2)


def _symmetric(X: Array) -> Array:
    return 0.5 * (X + _turned(X))


def _apply(X: Float[Array, "S i j"], x: Float[Array, "S j"]) -> Float[Array, "S i"]:
    return jnp.einsum("sij,sj->si", X, x)
