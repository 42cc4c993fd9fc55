r"""Inducing states, and a site for each datum: what a segment's data say about its state and noise w is then

    J = Σ_n W_n' λ_n W_n,    h = Σ_n W_n' h_n,

of which nothing but λ and h is kept. With fewer data in a segment than a state has entries this is the lesser matrix:
the chain takes the data of a segment as outputs f = W_u u + W_e e of its state, of which the second part is noise that
they share with the move u' = A u + L e, at a cost of d² for each datum and not of d³ for each segment.

At given hyperparameters the sums are what `thiele.tied` keeps, sweep for sweep. Between two steps of a search they are
not: a site λ on W w moves with W, as that of a full model does with its f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from thiele.bridges import Bridges, bridges
from thiele.chain import Chain, Information, Move, Noise, Tabulated, log_normaliser, outputs, posterior
from thiele.chain.layouts import LARGEST_SCALAR_STATE
from thiele.even import Polynomials, polynomials, terms_of
from thiele.kernels import AbstractKernel
from thiele.mixtures import MixedMarginal, in_slots, seen_through
from thiele.rules.cavity import Marginal, Site
from thiele.segments import between, noise_of_sites, pair_moments, times
from thiele.tables import as_array

# Numbers of each of the arrays that are made of some segments at a time.
NUMBERS_AT_ONCE = 2**21


class Grouped(NamedTuple):
    """Data in the order of time, by segments: segment s holds the rows `row[s]`, where `taken`; row n is in slot
    `slot[n]` of segment `step[n]`.
    """

    time: Float[Array, " n"]
    y: Float[Array, " n *k"]
    mask: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]
    row: Int[Array, "S p"]
    taken: Bool[Array, "S p"]
    step: Int[Array, " n"]
    slot: Int[Array, " n"]
    even: Polynomials | None = None

    def evenly(self, z: Float[np.ndarray, " M"], terms: int) -> Grouped:
        """The same, with weights by way of polynomials (`thiele.even`)."""
        return self._replace(even=polynomials(np.asarray(self.time)[self.row], z, terms))


def pays(kernel: AbstractKernel, most: int) -> bool:
    """Whether sites of their own are the lesser work, with at most so many data in a segment; small states, which
    matrices are soon done for, are not worth it, and float32 has no such form.
    """
    d = kernel.sde().dim
    return d > LARGEST_SCALAR_STATE and most * kernel.latents <= d and jnp.result_type(float) == jnp.float64


class OwnSites(NamedTuple):
    """A chain on inducing times, and how each datum sees the state and the noise of its segment."""

    at: Bridges
    W: Float[Array, "S p L 2d"]
    rest: Float[Array, "S p L"]
    data: Grouped

    @property
    def nu(self) -> Float[Array, "n L"]:
        """The variance of each latent value beyond W w."""
        return self.rest[self.data.step, self.data.slot]

    @property
    def w(self) -> Float[Array, "n L 2d"]:
        """W of each datum."""
        return self.W[self.data.step, self.data.slot]

    def prior(self) -> MixedMarginal:
        """The prior of W w of all data: the state has the kernel's covariance, none before z_1, and the noise is
        white.
        """
        blocks = (as_array(block) for block in self.at.sde.covariance(self.at.z))
        P = tuple(jnp.moveaxis(jnp.pad(block, [(0, 0)] * 3 + [(1, 0)]), -1, 0) for block in blocks)
        of_state, of_noise = self._by_slot
        cross = jnp.concatenate([times(P, _turned(of_state)), _turned(of_noise)], axis=1)
        cross = self._by_datum(cross)
        var, nothing = jnp.einsum("nlg,ngm->nlm", self.w, cross), jnp.zeros(cross.shape[:2], cross.dtype)
        return MixedMarginal(jnp.zeros(var.shape[:2], var.dtype), var, nothing, cross)

    def smooth(
        self, sites: Site, mask: Bool[Array, " n"], *, held: bool = False
    ) -> tuple[MixedMarginal, Float[Array, ""]]:
        """q(W w) of all data, and log Z, by one pass of filter and smoother."""
        info = self.information(sites, mask)
        found, log_z = outputs(self.chain, info, held=held)
        if held:
            found, info, L, of_noise = lax.stop_gradient((found, info, between(self.at.L), self._by_slot[1]))
        else:
            L, of_noise = between(self.at.L), self._by_slot[1]
        leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
        mean, var, u, cross, r, Z = (leading(x) for x in found)
        precision, Lt = leading(info.precision), tuple(_turned(stack) for stack in L)
        # The noise is known by way of the scores h − Λ f of its own data, and of all that comes later.
        score = leading(info.shift) - jnp.einsum("sij,sj->si", precision, mean)
        e = jnp.einsum("spi,sp->si", of_noise, score) + times(Lt, r[..., None])[..., 0]
        left = jnp.eye(var.shape[-1], dtype=var.dtype) - precision @ var
        cross = self._by_datum(jnp.concatenate([cross, _turned(of_noise) @ left - times(Lt, Z)], axis=1))
        S, p, count = *self.data.row.shape, self.W.shape[2]
        own = jnp.einsum("splpm->splm", var.reshape(S, p, count, p, count))[self.data.step, self.data.slot]
        f = mean.reshape(S, p, count)[self.data.step, self.data.slot]
        return MixedMarginal(f, own, jnp.concatenate([u, e], axis=1)[self.data.step], cross), log_z

    def log_normaliser(self, sites: Site, mask: Bool[Array, " n"]) -> Float[Array, ""]:
        """log Z alone."""
        return log_normaliser(self.chain, self.information(sites, mask))

    def seen(self, q: MixedMarginal) -> Marginal:
        """q(W w), where q(w) is held and the weights may have moved since."""
        return seen_through(self.w, q)

    @property
    def chain(self) -> Chain:
        """The states at the start of all segments: nothing before z_1, to which the first move leads."""
        Q = tuple(jnp.einsum("gijs,gkjs->giks", root, root)[..., :-1] for root in self.at.L)
        cov = tuple(jnp.zeros(stack.shape[:3], stack.dtype) for stack in self.at.A)
        move = Move(tuple(stack[..., :-1] for stack in self.at.A), Q)
        return Chain(jnp.zeros(self.at.sde.dim, self.W.dtype), cov, Tabulated(), move)

    def information(self, sites: Site, mask: Bool[Array, " n"]) -> Information:
        """The sites of observed data, as the chain takes them."""
        shift, precision = in_slots(self.data, sites, mask)
        S, p, count = shift.shape
        apart = jnp.einsum("splm,pq->splqm", precision, jnp.eye(p, dtype=shift.dtype)).reshape(S, p * count, p * count)
        trailing = lambda x: jnp.moveaxis(x, 0, -1)  # noqa: E731
        of_state, of_noise = self._by_slot
        shared = times(between(self.at.L), _turned(of_noise))
        noise = Noise(trailing(of_noise @ _turned(of_noise)), trailing(shared))
        return Information(trailing(apart), shift.reshape(S, -1).T, mix=trailing(of_state), noise=noise)

    def tied(self, sites: Site, mask: Bool[Array, " n"]) -> tuple[Marginal, Site]:
        """q(w) of every segment, and the sites of segments that these sites add up to."""
        found, _ = posterior(self.chain, self.information(sites, mask))
        leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
        states = tuple(leading(x) for x in (found.m, found.P, found.r, found.N))

        def some(x: tuple[Array, Site, tuple, tuple, tuple]) -> tuple[Marginal, Site]:
            W, (shift, precision), A, L, states = x
            h, half = jnp.einsum("spld,spl->sd", W, shift), jnp.einsum("splm,spmd->spld", precision, W)
            sites = Site(h, jnp.einsum("spld,sple->sde", W, half))
            return pair_moments(A, L, noise_of_sites(sites), *states), sites

        whole = self.W, in_slots(self.data, sites, mask), between(self.at.A), between(self.at.L), states
        return _in_groups(some, whole, self.at.dim**2)

    @property
    def _by_slot(self) -> tuple[Float[Array, "S pL d"], Float[Array, "S pL d"]]:
        """W of the state and of the noise, with a row for each latent value."""
        S, p, count, both = self.W.shape
        rows = self.W.reshape(S, p * count, both)
        return rows[..., : both // 2], rows[..., both // 2 :]

    def _by_datum(self, cross: Float[Array, "S g pL"]) -> Float[Array, "n g L"]:
        S, p = self.data.row.shape
        return cross.reshape(S, cross.shape[1], p, -1)[self.data.step, :, self.data.slot]


def own_sites(kernel: AbstractKernel, z: Float[Array, " M"], data: Grouped) -> OwnSites:
    """The chain of a kernel on inducing times, and the weights of all data."""
    at = bridges(kernel, z, alike=terms_of(data.even))
    segment = jnp.arange(at.segments)
    # A slot that holds no datum must still lie in its segment.
    x = jnp.where(data.taken, data.time[data.row], at.inside(segment)[:, None])
    if data.even is not None:
        found = at.project(segment, x, None, data.even)
    else:
        found = _in_groups(lambda x: at.project(*x), (segment, x), at.dim * x.shape[1])
    return OwnSites(at, found.W, found.nu, data)


def _in_groups(function: Callable[[Any], Any], along: Any, numbers: int) -> Any:
    """`function` of some segments at a time, in derivatives too, where it makes so many numbers of each.

    The last group begins where it ends with the last segment, and does some of the work again: nothing is padded, and
    what is found is written where it stays.
    """
    S = jax.tree.leaves(along)[0].shape[0]
    size = min(S, max(1, NUMBERS_AT_ONCE // numbers))
    function = jax.checkpoint(function)
    some = lambda start: jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), along)  # noqa: E731

    def put(k: Array, found: Any) -> Any:
        start = jnp.minimum(k * size, S - size)
        write = lambda x, new: lax.dynamic_update_slice_in_dim(x, new, start, 0)  # noqa: E731
        return jax.tree.map(write, found, function(some(start)))

    shapes = jax.eval_shape(function, jax.eval_shape(some, 0))
    empty = jax.tree.map(lambda x: jnp.zeros((S, *x.shape[1:]), x.dtype), shapes)
    return lax.fori_loop(0, -(-S // size), put, empty)


def _turned(X: Array) -> Array:
    return jnp.swapaxes(X, -1, -2)


def group(
    time: np.ndarray, y: np.ndarray, mask: np.ndarray, covariates: dict[str, np.ndarray], edges: Int[np.ndarray, " S+1"]
) -> Grouped:
    """Data in the order of time, of which segment s holds those from edges[s] to edges[s + 1]. Plain numpy."""
    inside = np.diff(edges)
    place = np.arange(max(1, int(np.max(inside))))
    taken = place < inside[:, None]
    row = np.where(taken, edges[:-1, None] + place, 0).astype(np.int32)
    step = np.repeat(np.arange(len(inside)), inside).astype(np.int32)
    slot = (np.arange(len(time)) - edges[:-1][step]).astype(np.int32)
    return Grouped(time, y, mask, covariates, row, taken, step, slot)
