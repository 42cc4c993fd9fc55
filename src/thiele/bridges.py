r"""Inducing states: a chain on a few times, with one Gaussian site for each segment between them (paper, appendix B).

A site is about w = (u, e): the state at the start of the segment and the white noise that drives it to the next. The
noise is integrated out of every site at once; what is left is an ordinary chain on the states.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from thiele import even
from thiele.chain import Chain, Information, Move, Posterior, Tabulated, log_normaliser, posterior, sample
from thiele.chain.matrices import dense
from thiele.chain.square_root import semidefinite_root
from thiele.kernels import AbstractKernel, Emission
from thiele.rules.cavity import Marginal, Site
from thiele.sde import SDE
from thiele.small import inverse, product
from thiele.tables import as_array
from thiele.weights import Weights, forward_substitution, owner, weights


class Projection(NamedTuple):
    """The latent values of some tiles as linear functions of their segments: f = W w + N(0, ν)."""

    W: Float[Array, "tiles width L 2d"]
    nu: Float[Array, "tiles width L"]

    def marginals(self, of_segment: Marginal) -> Marginal:
        """N(W μ, W Σ W' + ν) of every datum, (tiles, width, L) and (tiles, width, L, L)."""
        mean = jnp.einsum("ktld,kd->ktl", self.W, of_segment.mean)
        return Marginal(mean, projected_variance(self.W, of_segment.var) + self.spread())

    def spread(self) -> Float[Array, "tiles width L L"]:
        """ν as matrices."""
        return jnp.einsum("ktl,lm->ktlm", self.nu, jnp.eye(self.nu.shape[-1], dtype=self.nu.dtype))


@jax.custom_jvp
def projected_variance(
    W: Float[Array, "tiles width L 2d"], var: Float[Array, "tiles 2d 2d"]
) -> Float[Array, "tiles width L L"]:
    """W Σ W' of every datum."""
    return jnp.einsum("ktld,ktmd->ktlm", W, jnp.einsum("ktle,ked->ktld", W, var))


@projected_variance.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # Σ is symmetric: its product with W serves the value and the derivative in W.
    (W, var), (dW, dvar) = primals, tangents
    spread = jnp.einsum("ktle,ked->ktld", W, var)
    half = jnp.einsum("ktld,ktmd->ktlm", dW, spread)
    value = jnp.einsum("ktld,ktmd->ktlm", W, spread)
    return value, half + jnp.swapaxes(half, -1, -2) + jnp.einsum("ktld,kde,ktme->ktlm", W, dvar, W)


class Bridges(NamedTuple):
    """The segments that sorted times z cut the line into, with their transitions as stacks of blocks, and a table for
    the weights where they are alike (`thiele.even`).
    """

    kernel: AbstractKernel
    sde: SDE
    z: Float[Array, " M"]
    A: tuple[Float[Array, "count dim dim S"], ...]
    L: tuple[Float[Array, "count dim dim S"], ...]
    table: even.Table | None = None

    @property
    def segments(self) -> int:
        """How many sites there are."""
        return self.z.shape[0] + 1

    @property
    def dim(self) -> int:
        """The dimension of what a site is about, w = (u, e)."""
        return 2 * self.sde.dim

    def segment_of(self, x: Float[Array, "*times"]) -> Int[Array, "*times"]:
        """The segment that each time lies in."""
        return jnp.searchsorted(self.z, x, side="right")

    def for_weights(self, known: bool) -> Bridges:
        """What `project` reads, where polynomials at the data are `known` or not."""
        return self._replace(A=(), L=() if known and self.table is not None else self.L)

    def inside(self, segment: Int[Array, "*tiles"]) -> Float[Array, "*tiles"]:
        """Some time of each segment."""
        return self.z[jnp.minimum(segment, self.z.shape[0] - 1)]

    def project(
        self,
        segment: Int[Array, " tiles"],
        x: Float[Array, "tiles width"],
        space: Float[Array, "tiles width D"] | None = None,
        known: even.Polynomials | None = None,
    ) -> Projection:
        """W and ν at times `x`, of which each row lies in one segment, and at places `space` for a kernel there; by the
        table where the polynomials at these times are `known`.
        """
        if known is None or self.table is None:
            found = weights(self.sde, self.z, self.L, segment, x)
        else:
            found = even.interpolated(self.sde, self.table, known)
        if space is None:
            w = jnp.concatenate([w for part in (found.state, found.noise) for blocks in part for w in blocks], axis=-1)
            return Projection(jnp.asarray(owner(self.sde), w.dtype) * w[:, :, None], found.nu)
        return _mixed(self.sde, found, self.kernel.emissions(x, space))

    def prior(self) -> Marginal:
        """p(w) of every segment: the state has the kernel's covariance, none before z_1, and the noise is white."""
        d, S, dtype = self.sde.dim, self.segments, self.z.dtype
        P = jnp.moveaxis(self.sde.dense(self.sde.covariance(self.z)), -1, 0)
        var = jnp.zeros((S, 2 * d, 2 * d), dtype).at[1:, :d, :d].set(P).at[:, d:, d:].set(jnp.eye(d, dtype=dtype))
        return Marginal(jnp.zeros((S, 2 * d), dtype), var)

    def smooth(self, sites: Site, *, held: bool = False) -> tuple[Marginal, Float[Array, ""]]:
        """q(w) of every segment, and log Z. `held`: q has no derivative, and that of log Z keeps no tape."""
        absorbed = absorb(self, sites)
        found, log_z = posterior(absorbed.chain, absorbed.information, held=held)
        of_q = lax.stop_gradient((self, absorbed)) if held else (self, absorbed)
        return segment_marginals(*of_q, found), log_z + absorbed.log

    def log_normaliser(self, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        absorbed = absorb(self, sites)
        return log_normaliser(absorbed.chain, absorbed.information) + absorbed.log

    def draw(self, sites: Site, key: PRNGKeyArray, count: int) -> Float[Array, "count S 2d"]:
        """Joint draws of w from q."""
        absorbed = absorb(self, sites)
        return self.whitened(sample(absorbed.chain, absorbed.information, key, count))

    def whitened(self, states: Float[Array, "count d M"]) -> Float[Array, "count S 2d"]:
        """w = (u, e) of every segment, from the states: e = L⁻¹ (u' − A u)."""
        nothing = jnp.zeros_like(states[..., :1])
        before, after = jnp.concatenate([nothing, states], axis=-1), jnp.concatenate([states, nothing], axis=-1)
        noise = after - jnp.einsum("ijs,cjs->cis", dense(self.A), before)
        e = forward_substitution(dense(self.L)[None], [noise[:, i] for i in range(noise.shape[1])])
        return jnp.moveaxis(jnp.concatenate([before, jnp.stack(e, axis=1)], axis=1), 1, 2)


def _mixed(sde: SDE, found: Weights, emissions: tuple[Emission, ...]) -> Projection:
    """W and ν of latent functions that mix the functions of time: w ⊗ (their weights in time)."""
    columns: list[list[Array]] = [[], []]  # of the state, of the noise: (tiles, width, L, size) for each stack
    nu = [emission.rest for emission in emissions]
    latent, used = 0, 0
    for i, output in enumerate(sde.outputs):
        if used == emissions[latent].w.shape[-1]:
            latent, used = latent + 1, 0
        w = emissions[latent].w[..., used : used + output.copies]
        used += output.copies
        nu[latent] = nu[latent] + jnp.sum(w**2, axis=-1) * found.nu[..., i]
        mine = jnp.asarray(np.eye(len(emissions))[latent], w.dtype)[:, None]
        for side, blocks in zip(columns, (found.state[i], found.noise[i]), strict=True):
            for in_time in blocks:
                both = (w[..., None] * in_time[..., None, :]).reshape(*in_time.shape[:2], -1)
                side.append(mine * both[..., None, :])
    return Projection(jnp.concatenate([*columns[0], *columns[1]], axis=-1), jnp.stack(nu, axis=-1))


def bridges(kernel: AbstractKernel, z: Float[Array, " M"], *, alike: bool = False) -> Bridges:
    """The segments between, before and after sorted times; `alike`: as `thiele.even` takes them."""
    sde = kernel.sde()
    first = sde.covariance(z[:1])
    inside = z.shape[0] - 1
    moves = sde.transition(z[:1], (z[-1:] - z[:1]) / inside) if alike else sde.transition(z[:-1], jnp.diff(z))
    A, L = [], []
    for P, (forward, noise) in zip(first, moves, strict=True):
        start = as_array(P)
        nothing = jnp.zeros_like(start)
        roots = semidefinite_root(jnp.concatenate([start, as_array(noise)], axis=-1))
        step, root = (jnp.broadcast_to(x, (*x.shape[:-1], inside)) for x in (as_array(forward), roots[..., 1:]))
        A.append(jnp.concatenate([nothing, step, nothing], axis=-1))
        L.append(jnp.concatenate([roots[..., :1], root, nothing], axis=-1))
    table = even.table(sde, (z[-1] - z[0]) / inside, tuple(stack[..., 1] for stack in L)) if alike else None
    return Bridges(kernel, sde, z, tuple(A), tuple(L), table)


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


def absorb(at: Bridges, sites: Site) -> Absorbed:
    r"""Integrate the noise of every segment out of its site.

        C = (I + J_ee)⁻¹    G = C J_eu    g = C h_e
        u' = (A − L G) u + L g + N(0, L C L')        information on u:  J_uu − J_ue G,  h_u − J_ue g

    Neither Q nor the site is inverted. Segment 0 makes the prior of the first state; the last has no noise.
    """
    d = at.sde.dim
    L = between(at.L)
    J, h = sites.precision, sites.shift
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
    chain = Chain(Lg[0], (Q[0][None],), Tabulated(), move)
    return Absorbed(chain, Information(trailing(precision[1:]), trailing(shift[1:])), log, noise)


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


def segment_marginals(at: Bridges, absorbed: Absorbed, found: Posterior) -> Marginal:
    """q(w) of every segment, (S, 2d) and (S, 2d, 2d), from the posterior of the inducing states."""
    leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    m = jnp.concatenate([jnp.zeros_like(found.r0)[None], leading(found.m)])
    P = jnp.concatenate([jnp.zeros_like(found.N0)[None], leading(found.P)])
    r = jnp.concatenate([found.r0[None], leading(found.r)])
    N = jnp.concatenate([found.N0[None], leading(found.N)])
    return pair_moments(between(at.A), between(at.L), absorbed.noise, m, P, r, N)


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
    rows = jnp.concatenate([var_u, _turned(cross)], axis=-1), jnp.concatenate([cross, var_e], axis=-1)
    mean = jnp.concatenate([m + _apply(_turned(to_u), r), e + _apply(_turned(to_e), r)], axis=-1)
    return Marginal(mean, _symmetric(jnp.concatenate(rows, axis=-2)))


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


def _turned(X: Array) -> Array:
    return jnp.swapaxes(X, -1, -2)


def _symmetric(X: Array) -> Array:
    return 0.5 * (X + _turned(X))


def _apply(X: Float[Array, "S i j"], x: Float[Array, "S j"]) -> Float[Array, "S i"]:
    return jnp.einsum("sij,sj->si", X, x)
