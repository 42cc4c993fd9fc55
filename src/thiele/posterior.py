r"""What a model knows about its latent function once it has seen data: moments and joint draws at any time.

From a chain on the data's own times: between states i and i + 1 the prediction N(m, P) is filtered state i moved
forward to t; the later information (r, N) is carried back from state i + 1 to t; then f(t) has the moments H (m + P r)
and H (P − P N P) Hᵀ. Before the first state N(m, P) is the prior; after the last there is nothing to carry back.

From inducing states: f(t) = W w + N(0, ν) with the state and the noise w of the segment that t lies in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thiele.bridges import bridges
from thiele.chain import Information, Posterior, sample, sample_prior
from thiele.chain.matrices import dense
from thiele.chain.smoothing import Outputs
from thiele.kernels import AbstractKernel
from thiele.mixtures import mixing
from thiele.programs import compiled
from thiele.rules import Marginal, Site
from thiele.sde import SDE
from thiele.spatial import cholesky
from thiele.steps import Steps, prior_chain
from thiele.tied import Induced
from thiele.values import values

# New times are handled this many entries of a covariance at a time, so that memory does not grow with their number.
ENTRIES_AT_ONCE = 2**21


class ChainPosterior(eqx.Module):
    """The posterior of a chain on the data's own times, and the information that made it."""

    times: Float[Array, " n"]
    states: Posterior
    information: Information
    """Without its emission matrix, which is a constant of the kernel."""

    @compiled
    def latent(
        self, kernel: AbstractKernel, t_new: Float[Array, " q"], places: Float[Array, "q D"] | None = None
    ) -> Outputs:
        """Marginals of f at `t_new`, in any order, and for a kernel in space at `places`."""
        sde = kernel.sde()

        def piece(t: Array, r: Array | None) -> Outputs:
            if r is None:
                return _predict_piece(sde, self.states, self.times, t, jnp.asarray(sde.H)[..., None])
            w, nu = mixing(kernel, t, r)
            found = _predict_piece(sde, self.states, self.times, t, jnp.einsum("qlg,gi->liq", w, jnp.asarray(sde.H)))
            return Outputs(found.mean, found.var + jnp.einsum("ql,lm->lmq", nu, jnp.eye(nu.shape[1])))

        return _in_pieces(piece, sde.dim, t_new, places)

    @compiled
    def draw(
        self,
        kernel: AbstractKernel,
        t_new: Float[Array, " q"],
        key: PRNGKeyArray,
        count: int,
        places: Float[Array, "q D"] | None = None,
    ) -> Float[Array, "count l q"]:
        """Joint draws, on the union of the data's times and the new ones, where the latter carry no information."""
        of_states, of_rest = jax.random.split(key)
        sde = kernel.sde()
        both, n = jnp.concatenate([self.times, t_new]), self.times.shape[0]
        order = jnp.argsort(both, stable=True)

        def merged(x: Array | None) -> Array | None:
            return None if x is None else jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, t_new.shape[0])])[..., order]

        info = self.information
        joined = Information(merged(info.precision), merged(info.shift), merged(info.centre), sde.H, merged(info.mix))
        states = sample(prior_chain(sde, both[order]), joined, of_states, count)
        new = jnp.einsum("li,sin->sln", jnp.asarray(sde.H), states)[..., jnp.argsort(order)[n:]]
        return new if places is None else _mixed_draws(kernel, new, t_new, places, of_rest)


class InducedPosterior(eqx.Module):
    """The posterior of inducing states or values: q(w) of every segment, and the sites that made it."""

    z: Float[Array, " M"]
    segments: Marginal
    sites: Site
    of: Literal["states", "values"] = eqx.field(static=True)

    @compiled
    def latent(
        self, kernel: AbstractKernel, t_new: Float[Array, " q"], places: Float[Array, "q D"] | None = None
    ) -> Outputs:
        """Marginals of f at `t_new`, in any order, and for a kernel in space at `places`."""
        at = induced(kernel, self.z, self.of)

        def piece(t: Array, r: Array | None) -> Outputs:
            segment = at.segment_of(t)
            here = jax.tree.map(lambda x: x[segment], self.segments)
            mean, var = at.project(segment, t[:, None], None if r is None else r[:, None]).marginals(here)
            return Outputs(mean[:, 0].T, jnp.moveaxis(var[:, 0], 0, -1))

        return _in_pieces(piece, at.dim, t_new, places)

    @compiled
    def draw(
        self,
        kernel: AbstractKernel,
        t_new: Float[Array, " q"],
        key: PRNGKeyArray,
        count: int,
        places: Float[Array, "q D"] | None = None,
    ) -> Float[Array, "count l q"]:
        """Joint draws: f* + W (w − w*), a draw of the prior bent so that it passes through a draw of q."""
        of_q, of_prior, of_rest = jax.random.split(key, 3)
        at, sde, M = induced(kernel, self.z, self.of), kernel.sde(), self.z.shape[0]
        both = jnp.concatenate([self.z, t_new])
        order = jnp.argsort(both, stable=True)
        prior = sample_prior(prior_chain(sde, both[order]), of_prior, count)[..., jnp.argsort(order)]
        gap = at.draw(self.sites, of_q, count) - at.whitened(prior[..., :M])
        segment = at.segment_of(t_new)
        W = at.project(segment, t_new[:, None], None if places is None else places[:, None]).W[:, 0]
        f = jnp.einsum("li,ciq->clq", jnp.asarray(sde.H), prior[..., M:])
        f = f if places is None else _mixed_draws(kernel, f, t_new, places, of_rest)
        return f + jnp.einsum("qld,cqd->clq", W, gap[:, segment])


def induced(
    kernel: AbstractKernel, z: Float[Array, " M"], of: Literal["states", "values"], *, alike: int | None = None
) -> Induced:
    """Inducing states or values at sorted times; `alike`: the segments, as `thiele.even` takes them, with
    so many terms.
    """
    return bridges(kernel, z, alike=alike) if of == "states" else values(kernel, z)


def _mixed_draws(
    kernel: AbstractKernel, g: Float[Array, "count G q"], t: Float[Array, " q"], r: Float[Array, "q D"], key: Array
) -> Float[Array, "count l q"]:
    """f = w·g and a joint draw of the rest, by dense algebra: it has no structure at places in any order."""
    w, _ = mixing(kernel, t, r)
    x = jnp.concatenate([t[:, None], r], axis=1)
    parts = kernel.each_latent()
    roots = jnp.stack([cholesky(part.rest_covariance(x[:, None], x[None])) for part in parts])
    noise = jax.random.normal(key, (g.shape[0], len(parts), x.shape[0]), g.dtype)
    return jnp.einsum("qlg,cgq->clq", w, g) + jnp.einsum("lqk,clk->clq", roots, noise)


def _in_pieces(
    predict: Callable[[Array, Array | None], Outputs],
    dim: int,
    t_new: Float[Array, " q"],
    places: Float[Array, "q D"] | None = None,
) -> Outputs:
    size = max(1, min(t_new.shape[0], ENTRIES_AT_ONCE // dim**2))
    pieces = -(-t_new.shape[0] // size)

    def cut(x: Array) -> Array:
        room = [(0, pieces * size - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, room, mode="edge").reshape(pieces, size, *x.shape[1:])

    mean, var, *_ = jax.lax.map(lambda x: predict(*x), (cut(t_new), None if places is None else cut(places)))
    join = lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., : t_new.shape[0]]  # noqa: E731
    return Outputs(join(mean), join(var))


def _predict_piece(sde: SDE, found: Posterior, times: Array, t: Array, H: Float[Array, "l d #q"]) -> Outputs:
    last = jnp.searchsorted(times, t, side="right") - 1
    early, here = last < 0, jnp.maximum(last, 0)
    following = jnp.where(early, times[0], times[jnp.minimum(last + 1, times.shape[0] - 1)])

    H = jnp.broadcast_to(H, (*H.shape[:2], t.shape[0]))
    steps = Steps(sde)
    # To be finite in both branches, a time before the first state is moved from itself.
    start = jnp.where(early, t, times[here])
    ahead = steps(steps.prepare((start, t - start)))
    A, Q = dense(ahead.A), dense(ahead.Q)
    m = jnp.where(early, 0.0, found.m[:, here])
    P = jnp.where(early, dense(sde.covariance(t)), found.P[:, :, here])
    HA = jnp.einsum("liq,ijq->ljq", H, A)
    mean = jnp.einsum("ljq,jq->lq", HA, m)
    p = jnp.einsum("ijq,jkq,lkq->ilq", A, P, HA) + jnp.einsum("ijq,ljq->ilq", Q, H)

    back = steps(steps.prepare((t, jnp.maximum(following - t, 0.0))))
    w = jnp.einsum("ijq,jlq->ilq", dense(back.A), p)
    r = jnp.where(early, found.r0[:, None], found.r[:, here])
    N = jnp.where(early, found.N0[:, :, None], found.N[:, :, here])
    mean = mean + jnp.einsum("ilq,iq->lq", w, r)
    var = jnp.einsum("liq,imq->lmq", H, p) - jnp.einsum("ilq,ijq,jmq->lmq", w, N, w)
    return Outputs(mean, _no_negative_variance(0.5 * (var + jnp.swapaxes(var, 0, 1))))


def _no_negative_variance(var: Float[Array, "l l q"]) -> Float[Array, "l l q"]:
    """Rounding may leave a variance of −1e-17 where f is known exactly."""
    index = jnp.arange(var.shape[0])
    return var.at[index, index].max(0.0)
