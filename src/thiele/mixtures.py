r"""Data in space, or of several outputs, each with a site of its own: the latent value of a datum is a mixture of the
functions of time that the chain holds,

    f_n = a_n + N(0, ν_n),    a_n = w_n · g(t_n).

The site is about a_n. Data at one time are one state of the chain: with few of them the chain takes the mixtures one
by one, O(d²) for each; with more than there are functions it takes their sum as information on g.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float

from thiele.chain import Chain, Information, log_normaliser, outputs
from thiele.kernels import AbstractKernel
from thiele.rules.cavity import Marginal, Site
from thiele.series import Slots
from thiele.steps import prior_chain, prior_covariances


class MixedMarginal(NamedTuple):
    """q(a_n) of every datum, with the mean of g at its time and Cov(g, a_n)."""

    mean: Float[Array, "n L"]
    var: Float[Array, "n L L"]
    mixed: Float[Array, "n G"]
    cross: Float[Array, "n G L"]


class Mixture(NamedTuple):
    """A chain on the times of some data, and how each datum sees its functions."""

    chain: Chain
    w: Float[Array, "n L G"]
    nu: Float[Array, "n L"]
    slots: Slots

    @property
    def emission(self) -> np.ndarray:
        """H of the functions that are mixed: the chain's own, and not a leaf, which a transformation would trace."""
        return self.chain.moves.sde.H  # pyright: ignore[reportAttributeAccessIssue] - made by `prior_chain`

    def information(self, sites: Site, mask: Bool[Array, " n"]) -> Information:
        """The sites of observed data, as the chain takes them."""
        shift, precision = in_slots(self.slots, sites, mask)
        w = self.w[self.slots.row]
        S, p, L, G = w.shape
        if self._summed:
            J = jnp.einsum("splg,splm,spmh->ghs", w, precision, w)
            return Information(J, jnp.einsum("splg,spl->gs", w, shift), H=self.emission)
        apart = jnp.einsum("splm,pq->splqm", precision, jnp.eye(p, dtype=w.dtype)).reshape(S, p * L, p * L)
        return Information(
            jnp.moveaxis(apart, 0, -1),
            shift.reshape(S, p * L).T,
            H=self.emission,
            mix=jnp.moveaxis(w.reshape(S, p * L, G), 0, -1),
        )

    def prior(self) -> MixedMarginal:
        """The prior of a_n of all data."""
        P = prior_covariances(self.chain, self.slots.row.shape[0])[..., self.slots.step]
        of_g = jnp.einsum("gi,ijn,hj->ngh", self.emission, P, self.emission)
        cross = jnp.einsum("ngh,nlh->ngl", of_g, self.w)
        var, nothing = jnp.einsum("nlg,ngm->nlm", self.w, cross), jnp.zeros(cross.shape[:2], cross.dtype)
        return MixedMarginal(jnp.zeros(var.shape[:2], var.dtype), var, nothing, cross)

    def smooth(
        self, sites: Site, mask: Bool[Array, " n"], *, held: bool = False
    ) -> tuple[MixedMarginal, Float[Array, ""]]:
        """q(a_n) of all data, and log Z, by one pass of filter and smoother."""
        found, log_z = outputs(self.chain, self.information(sites, mask), held=held)
        w = self.w[self.slots.row]
        S, p, L, G = w.shape
        if self._summed:
            g, cross = found.mean, jnp.einsum("ghs,splh->spgl", found.var, w)
        else:
            g, cross = found.mixed, jnp.moveaxis(found.cross.reshape(G, p, L, S), (3, 1), (0, 1))
        g, cross = g.T[self.slots.step], cross[self.slots.step, self.slots.slot]
        var = jnp.einsum("nlg,ngm->nlm", self.w, cross)
        var = 0.5 * (var + jnp.swapaxes(var, 1, 2))
        q = MixedMarginal(jnp.einsum("nlg,ng->nl", self.w, g), var, g, cross)
        return (lax.stop_gradient(q) if held else q), log_z

    def log_normaliser(self, sites: Site, mask: Bool[Array, " n"]) -> Float[Array, ""]:
        """log Z alone."""
        return log_normaliser(self.chain, self.information(sites, mask))

    def seen(self, q: MixedMarginal) -> Marginal:
        """q(a_n), where q(g) is held and the mixture may have moved since."""
        return seen_through(self.w, q)

    @property
    def _summed(self) -> bool:
        p, (L, G) = self.slots.row.shape[1], self.w.shape[1:]
        return p * L > G


def in_slots(slots: Any, sites: Site, mask: Bool[Array, " n"]) -> Site:
    """The sites of observed data where `row` and `taken` of `slots` put them, (S, p, ...)."""
    there = slots.taken & mask[slots.row]
    return Site(
        jnp.where(there[..., None], sites.shift[slots.row], 0.0),
        jnp.where(there[..., None, None], sites.precision[slots.row], 0.0),
    )


@jax.custom_jvp
def seen_through(w: Float[Array, "n L G"], q: MixedMarginal) -> Marginal:
    """q(w·g): the value is q's own. Where q is held the derivative is that of w with q(g) held; else q has it all."""
    return Marginal(q.mean, q.var)


@partial(seen_through.defjvp, symbolic_zeros=True)
def _(primals: tuple[Array, MixedMarginal], tangents: tuple[Any, MixedMarginal]) -> tuple[Marginal, Marginal]:
    (w, q), (moved, change) = primals, tangents
    value = seen_through(w, q)
    if not isinstance(change.var, SymbolicZero):
        return value, Marginal(change.mean, change.var)
    if isinstance(moved, SymbolicZero):
        return value, jax.tree.map(jnp.zeros_like, value)
    half = jnp.einsum("nlg,ngm->nlm", moved, q.cross)
    return value, Marginal(jnp.einsum("nlg,ng->nl", moved, q.mixed), half + jnp.swapaxes(half, 1, 2))


def mixing(
    kernel: AbstractKernel, t: Float[Array, " n"], r: Float[Array, "n D"]
) -> tuple[Float[Array, "n L G"], Float[Array, "n L"]]:
    """w and ν of all latent functions of a kernel in space, at times t and places r."""
    emissions = kernel.emissions(t, r)
    total, start, rows = sum(e.w.shape[-1] for e in emissions), 0, []
    for e in emissions:
        size = e.w.shape[-1]
        rows.append(jnp.pad(e.w, [(0, 0), (start, total - start - size)]))
        start += size
    return jnp.stack(rows, axis=1), jnp.stack([e.rest for e in emissions], axis=1)


def mixture(kernel: AbstractKernel, t: Float[Array, " n"], r: Float[Array, "n D"], slots: Slots) -> Mixture:
    """The chain of a kernel in space on the times of some data."""
    sde = kernel.sde()
    w, nu = mixing(kernel, t, r)
    return Mixture(prior_chain(sde, jnp.asarray(slots.time), slots.repeated), w, nu, slots)
