r"""Inducing states: a chain on a few times, with one Gaussian site for each segment between them (paper, appendix B).

A site is about w = (u, e): the state at the start of the segment and the white noise that drives it to the next
(`thiele.segments`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from thiele import even, segments
from thiele.chain import sample
from thiele.chain.matrices import dense
from thiele.chain.square_root import semidefinite_root
from thiele.kernels import AbstractKernel, Emission
from thiele.projections import Projection
from thiele.rules.cavity import Marginal, Site
from thiele.sde import SDE
from thiele.segments import Stacks, Steps
from thiele.tables import as_array
from thiele.weights import Weights, forward_substitution, owner, weights


class Bridges(NamedTuple):
    """The segments that sorted times z cut the line into, with their transitions as stacks of blocks, and a table for
    the weights where they are alike (`thiele.even`).
    """

    kernel: AbstractKernel
    sde: SDE
    z: Float[Array, " M"]
    A: Stacks
    L: Stacks
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
            return Projection(w, found.nu, tuple(np.argmax(owner(self.sde), axis=0).tolist()))
        return _mixed(self.sde, found, self.kernel.emissions(x, space))

    def prior(self) -> Marginal:
        """p(w) of every segment: the state has the kernel's covariance, none before z_1, and the noise is white."""
        d, S, dtype = self.sde.dim, self.segments, self.z.dtype
        P = jnp.moveaxis(self.sde.dense(self.sde.covariance(self.z)), -1, 0)
        var = jnp.zeros((S, 2 * d, 2 * d), dtype).at[1:, :d, :d].set(P).at[:, d:, d:].set(jnp.eye(d, dtype=dtype))
        return Marginal(jnp.zeros((S, 2 * d), dtype), var)

    @property
    def steps(self) -> Steps:
        """The transitions of all segments."""
        return Steps(self.A, self.L)

    def smooth(self, sites: Site, *, held: bool = False) -> tuple[Marginal, Float[Array, ""]]:
        """q(w) of every segment, and log Z. `held`: q has no derivative, and that of log Z keeps no tape."""
        return (segments.smooth_held if held else segments.smooth)(self.steps, sites)

    def log_normaliser(self, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        return segments.log_normaliser(self.steps, sites)

    def draw(self, sites: Site, key: PRNGKeyArray, count: int) -> Float[Array, "count S 2d"]:
        """Joint draws of w from q."""
        absorbed = segments.absorb(self.steps, sites)
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
    columns: list[list[Array]] = [[], []]  # of the state, of the noise: (tiles, width, size) for each stack
    owners: list[list[int]] = [[], []]
    nu = [emission.rest for emission in emissions]
    latent, used = 0, 0
    for i, output in enumerate(sde.outputs):
        if used == emissions[latent].w.shape[-1]:
            latent, used = latent + 1, 0
        w = emissions[latent].w[..., used : used + output.copies]
        used += output.copies
        nu[latent] = nu[latent] + jnp.sum(w**2, axis=-1) * found.nu[..., i]
        for side, blocks in enumerate((found.state[i], found.noise[i])):
            for in_time in blocks:
                both = (w[..., None] * in_time[..., None, :]).reshape(*in_time.shape[:2], -1)
                columns[side].append(both)
                owners[side] += [latent] * both.shape[-1]
    both = jnp.concatenate([*columns[0], *columns[1]], axis=-1)
    return Projection(both, jnp.stack(nu, axis=-1), (*owners[0], *owners[1]))


def bridges(kernel: AbstractKernel, z: Float[Array, " M"], *, alike: int | None = None) -> Bridges:
    """The segments between, before and after sorted times; `alike`: as `thiele.even` takes them, with so
    many terms.
    """
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
    table = even.table(sde, (z[-1] - z[0]) / inside, tuple(stack[..., 1] for stack in L), alike) if alike else None
    return Bridges(kernel, sde, z, tuple(A), tuple(L), table)
