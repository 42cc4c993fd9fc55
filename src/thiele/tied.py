r"""Data that share sites: one Gaussian site for each segment between inducing times (paper, sections 3 and 4).

A site is about the state at the start of the segment and the noise that drives it to the next (`thiele.bridges`). Its
memory is O(d²), whatever the number of data; these pass by in tiles of fixed width, each inside one segment, and
nothing that is as long as the data is ever stored. Methods are those of `energies.Data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from thiele.bridges import Bridges
from thiele.energies import LOCAL, Visit
from thiele.even import Polynomials, polynomials
from thiele.likelihoods import AbstractLikelihood
from thiele.projections import Projection
from thiele.rules import CVI
from thiele.rules.base import AbstractLocalRule, AbstractRule
from thiele.rules.cavity import Cavity, Left, Marginal, Site, cavity, through_noise
from thiele.rules.latents import log_expected_power, log_prob
from thiele.sums import total, total_with_slopes
from thiele.tiles import Cut, Rows, Sums, Tile, add_by_segment, by_place, by_row
from thiele.values import Values

Induced = Bridges | Values


class Tied(eqx.Module):
    """Observations in the order of time, cut into tiles; `thiele.inducing.tie` makes them.

    Tile k holds the `length[k]` data from `start[k]` on, all in one segment. Tiles come in groups that fit in memory.
    """

    tiled: ClassVar[bool] = True  # for the compiler

    time: Float[Array, " n"]
    y: Float[Array, " n *k"]
    mask: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]
    space: Float[Array, "n D"] | None
    segment: Int[Array, "groups tiles"]
    start: Int[Array, "groups tiles"]
    length: Int[Array, "groups tiles"]
    tied: Float[Array, " S"]
    """How many observed data share each site."""
    scale: Float[Array, ""]
    """What a sum over these tiles is multiplied by: above 1 where they are a sample of all."""
    width: int = eqx.field(static=True)
    sums: Sums | None = None
    """The tiles of each segment, where none has many."""
    rows: Rows | None = None
    """Where the data are, if many places of tiles are empty."""
    even: Polynomials | None = None
    """Those at the data of all groups, (groups, tiles, width, terms), where weights go by them."""
    seen: tuple[Tile, Projection] | None = None
    """All data and their weights, where these are one group and `with_weights` has found them."""

    def with_weights(self, chain: Induced) -> Tied:
        """The same, with the weights that all who visit the data need, if one group holds them all."""
        if self.segment.shape[0] > 1:
            return self
        return dataclasses.replace(self, seen=self._group(chain, jax.tree.map(lambda x: x[0], self._cut)))

    def evenly(self, z: Float[np.ndarray, " M"], terms: int) -> Tied:
        """The same, with weights by way of polynomials (`thiele.even`)."""
        index = np.minimum(np.asarray(self.start)[..., None] + np.arange(self.width), self.time.shape[0] - 1)
        return dataclasses.replace(self, even=polynomials(np.asarray(self.time)[index], z, terms))

    def batch(self, rng: np.random.Generator, size: int) -> Tied:
        """A sample of tiles with about `size` data; sums over it are scaled, so that they are right on average."""
        segment, start, length = (np.asarray(x).ravel() for x in (self.segment, self.start, self.length))
        full = np.flatnonzero(length)
        count = min(len(full), max(1, -(-size // self.width)))
        chosen = np.sort(rng.choice(full, count, replace=False))
        cut = {"segment": segment, "start": start, "length": length}
        picked = {name: x[chosen][None] for name, x in cut.items()}
        even = None if self.even is None else self.even.reshape(-1, *self.even.shape[2:])[chosen][None]
        scale = np.asarray(len(full) / count)
        return dataclasses.replace(self, **picked, even=even, scale=scale, sums=None, rows=None)

    def stationary(self, rule: AbstractRule) -> bool:
        """The ELBO is, at its optimum. Tied power EP averages natural parameters, and its energy is only nearly so."""
        return rule.stationary and rule.energy == "elbo"

    def empty(self, chain: Induced, latents: int) -> Site:
        """Sites that say nothing: q is the prior."""
        S, D = chain.segments, chain.dim
        return Site(jnp.zeros((S, D), chain.z.dtype), jnp.zeros((S, D, D), chain.z.dtype))

    def prior(self, chain: Induced) -> Marginal:
        """What `smooth` makes of sites that say nothing, without a filter."""
        return chain.prior()

    def smooth(self, chain: Induced, sites: Site, *, held: bool = False) -> tuple[Marginal, Float[Array, ""]]:
        """q(w) of every segment, and log Z. `held`: q has no derivative, and that of log Z keeps no tape."""
        return chain.smooth(sites, held=held)

    def log_normaliser(self, chain: Induced, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        return chain.log_normaliser(sites)

    def terms(
        self, rule: AbstractRule, likelihood: AbstractLikelihood, chain: Induced, marginals: Marginal, sites: Site
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The energy without log Z, and the size of its terms."""
        left = self.left(rule, marginals, sites)
        of_datum, _ = LOCAL[rule.energy]

        def one(model: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Array:
            return of_datum(rule, model, y, q, left.marginal)

        def share(seen: Any, tile: Tile, projection: Projection, size: Array) -> tuple[Array, Array]:
            likelihood, marginals, left = seen
            found = _each(one, likelihood, tile, projection, *_of_segments(tile, marginals, left))
            found = jnp.where(tile.mask, found, 0.0)
            return jnp.sum(found), size + jnp.sum(jnp.abs(found))

        terms, size = self._total(chain, share, (likelihood, marginals, left), jnp.zeros(()), held=True)
        of_sites = self._site_terms(rule, marginals, left, sites)
        return self.scale * terms + jnp.sum(of_sites), self.scale * size + jnp.sum(jnp.abs(of_sites))

    def visit(
        self, rule: AbstractLocalRule, likelihood: AbstractLikelihood, chain: Induced, marginals: Marginal, sites: Site
    ) -> Visit:
        """The energy's terms and new sites, summed over the data of each segment."""
        left = self.left(rule, marginals, sites)

        def share(seen: Any, tile: Tile, projection: Projection, carried: Any) -> tuple[Array, Any]:
            likelihood, *of_segments = seen
            terms, found, changed = tile_sums(rule, likelihood, tile, projection, *_of_segments(tile, *of_segments))
            size, target, repaired = carried
            target = jax.tree.map(partial(add_by_segment, tile), target, found)
            return jnp.sum(terms), (size + jnp.sum(jnp.abs(terms)), target, repaired + changed)

        none = jnp.zeros(()), jax.tree.map(jnp.zeros_like, sites), jnp.array(0)
        seen = likelihood, marginals, left, sites
        # A rule whose energy is stationary has its sites held; the sites of another follow the hyperparameters.
        terms, (size, target, repaired) = self._total(chain, share, seen, none, held=rule.stationary)
        of_sites = self._site_terms(rule, marginals, left, sites)
        return Visit(
            self.scale * terms + jnp.sum(of_sites),
            self.scale * size + jnp.sum(jnp.abs(of_sites)),
            jax.tree.map(lambda x: self.scale * x, target),
            repaired,
        )

    def leave_one_out(
        self, rule: AbstractRule, likelihood: AbstractLikelihood, chain: Induced, marginals: Marginal, sites: Site
    ) -> Float[Array, " n"]:
        """log p(y_n | the others), one for each datum, from q without what the datum itself says at convergence.

        That is its own site on W w, not a share of the one that it is tied to: it holds for any two data of a segment.
        """
        local = rule if isinstance(rule, AbstractLocalRule) else CVI(quadrature=rule.quadrature)
        left = self.left(local, marginals, sites)

        def one(model: AbstractLikelihood, y: Array, q: Marginal, left: Cavity, nu: Array) -> Array:
            site = local.propose(model, y, q, left).site
            if local.in_cavity:
                site = through_noise(site, nu, local.power)
            without = cavity(Marginal(q.mean, q.var - nu), site, 1.0).marginal
            return log_expected_power(model, y, without.mean, without.var + nu, 1.0, rule.quadrature)

        def group(place: Cut) -> Array:
            tile, projection = self._group(chain, place)
            return _each(one, likelihood, tile, projection, *_of_segments(tile, marginals, left), projection.spread())

        found = lax.map(group, self._cut)
        index = self.start[..., None] + jnp.arange(self.width, dtype=self.start.dtype)
        # Empty places of a tile are sent beyond the end, where they are dropped.
        inside = jnp.arange(self.width) < self.length[..., None]
        n = self.time.shape[0]
        return jnp.zeros(n).at[jnp.where(inside, index, n)].set(found, mode="drop")

    def slack(
        self, rule: AbstractRule, likelihood: AbstractLikelihood, chain: Induced, marginals: Marginal, sites: Site
    ) -> Float[Array, ""]:
        """½ Σ Λ_n ν_n, conditional variance times curvature: about what inducing times lose of log p(y)."""
        local = CVI(quadrature=rule.quadrature)
        left = self.left(local, marginals, sites)

        def share(seen: Any, tile: Tile, projection: Projection, _: None) -> tuple[Array, None]:
            likelihood, marginals, left = seen
            found = _each(local.propose, likelihood, tile, projection, *_of_segments(tile, marginals, left))
            lost = jnp.einsum("ktll,ktl->kt", jnp.maximum(found.site.precision, 0.0), projection.nu)
            return 0.5 * jnp.sum(jnp.where(tile.mask, lost, 0.0)), None

        return self._total(chain, share, (likelihood, marginals, left), None)[0]

    def log_joint(
        self, likelihood: AbstractLikelihood, chain: Induced, marginals: Marginal, sites: Site
    ) -> Float[Array, ""]:
        """log p(y | W m) − ½ m′ K⁻¹ m at the mean m of q, where K⁻¹ m = Σ (h − J m) because m maximises p(u) Π t."""

        def share(seen: Any, tile: Tile, projection: Projection, _: None) -> tuple[Array, None]:
            likelihood, marginals = seen
            at_mean = lambda model, y, q, _: log_prob(model, y, q.mean)  # noqa: E731
            terms = _each(at_mean, likelihood, tile, projection, *_of_segments(tile, marginals))
            return jnp.sum(jnp.where(tile.mask, terms, 0.0)), None

        terms = self.scale * self._total(chain, share, (likelihood, marginals), None)[0]
        weights = sites.shift - jnp.einsum("sij,sj->si", sites.precision, marginals.mean)
        return terms - 0.5 * jnp.sum(weights * marginals.mean)

    # Segment by segment.

    def left(self, rule: AbstractRule, marginals: Marginal, sites: Site) -> Left:
        """What is left of q(w) without one datum's share of its site."""
        return self.left_of(rule, marginals, sites, self.tied)

    @staticmethod
    def left_of(rule: AbstractRule, marginals: Marginal, sites: Site, tied: Float[Array, " S"]) -> Left:
        """The same for some segments, each with the number of data that share its site."""
        tied = tied.clip(1.0)
        if rule.energy == "power_ep":
            left = jax.vmap(lambda q, site, n: cavity(q, site, rule.power / n))(marginals, sites, tied)
            return Left(left.marginal, left.proper, tied, jnp.ones_like(tied))
        # Only the variance is asked for, to bound a negative precision: the share of it that one datum explains.
        share = jnp.einsum("sij,sji->s", marginals.var, sites.precision) / tied
        proper = share < 1.0
        return Left(None, proper, tied, 1.0 / (1.0 - jnp.where(proper, share, 0.0)))

    def _site_terms(self, rule: AbstractRule, marginals: Marginal, left: Left, sites: Site) -> Float[Array, " S"]:
        _, of_site = LOCAL[rule.energy]
        without = marginals if left.cavity is None else left.cavity
        return jax.vmap(lambda *args: of_site(rule, *args))(marginals, without, sites, self.tied)

    def _total(
        self,
        chain: Induced,
        share: Callable[[Any, Tile, Projection, Any], tuple[Array, Any]],
        seen: Any,
        start: Any,
        *,
        held: bool = False,
    ) -> tuple[Float[Array, ""], Any]:
        """The sum of the shares of all groups of tiles, and what they carry from one to the next; `held`: what is
        carried has no derivative.
        """
        at_hand = self.with_weights(chain).seen if self.seen is None else self.seen
        if at_hand is not None:
            return share(seen, *at_hand, start)

        def of_cut(theta: tuple[Tied, Induced, Any], cut: Cut, carried: Any) -> tuple[Array, Any]:
            data, chain, seen = theta
            return share(seen, *data._group(chain, cut), carried)

        return (total_with_slopes if held else total)(
            of_cut, (self, chain.for_weights(self.even is not None), seen), self._cut, start
        )

    @property
    def _cut(self) -> Cut:
        return Cut(self.segment, self.start, self.length, self.even, self.sums, self.rows)

    def _group(self, chain: Induced, cut: Cut) -> tuple[Tile, Projection]:
        tile = self.tiles(chain, cut)
        return tile, chain.project(tile.segment, tile.time, tile.space, cut.even)

    def tiles(self, chain: Induced, cut: Cut) -> Tile:
        """The data of a group of tiles."""
        place = jnp.arange(self.width, dtype=cut.start.dtype)
        index = jnp.minimum(cut.start[:, None] + place, self.time.shape[0] - 1)
        mask = (place < cut.length[:, None]) & self.mask[index]
        # A place that holds no datum must still lie in its segment.
        time = jnp.where(mask, self.time[index], chain.inside(cut.segment)[:, None])
        extra = {name: x[index] for name, x in self.covariates.items()}
        space = None if self.space is None else self.space[index]
        return Tile(cut.segment, time, self.y[index], mask, extra, space, cut.sums, cut.rows)


def tile_sums(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    tile: Tile,
    projection: Projection,
    q: Marginal,
    left: Left,
    old: Site,
) -> tuple[Float[Array, "tiles width"], Site, Int[Array, ""]]:
    """Each datum's term of the energy, what the data of each tile add to its site, and how many had to be repaired.

    `q`, `left` and `old` are those of the tiles' segments.
    """
    of_datum, _ = LOCAL[rule.energy]

    def one(model: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> tuple[Array, Any]:
        found = rule.propose(model, y, q, left)
        term = of_datum(rule, model, y, q, left.marginal) if found.term is None else found.term
        return term, found[:3]

    terms, (wanted, repaired, usable) = _each(one, likelihood, tile, projection, q, left)
    shift, precision = wanted
    if rule.in_cavity:
        shift, precision = through_noise(wanted, projection.spread(), rule.power)
    used = tile.mask & usable
    shift = jnp.where(used[..., None], shift, 0.0)
    precision = jnp.where(used[..., None, None], precision, 0.0)
    h, J = projection.gathered(Site(shift, precision))
    # A datum whose new site cannot be used keeps its share of the old one.
    stays = jnp.sum(tile.mask & ~usable, axis=-1) / left.tied
    h, J = h + stays[:, None] * old.shift, J + stays[:, None, None] * old.precision
    changed = jnp.sum(tile.mask & (repaired | ~usable))
    return jnp.where(tile.mask, terms, 0.0), Site(h, J), changed


def _of_segments(tile: Tile, *along: Any) -> Any:
    """What belongs to the segments of some tiles."""
    return jax.tree.map(lambda x: x[tile.segment], along)


def _each(
    function: Callable[..., Any],
    likelihood: AbstractLikelihood,
    tile: Tile,
    projection: Projection,
    q: Marginal,
    left: Left | None = None,
    *along: Any,
) -> Any:
    """`function(likelihood, y, q, left, *along)` at every datum of a group of tiles; `q` and `left` are by tile."""
    seen, without = projection.marginals(q), None
    if left is not None:
        proper, tied = (jnp.broadcast_to(jnp.asarray(x)[:, None], tile.mask.shape) for x in (left.proper, left.tied))
        if left.cavity is None:
            nu = projection.spread()
            known = Marginal(seen.mean, left.widening[:, None, None, None] * (seen.var - nu) + nu)
        else:
            known = projection.marginals(left.cavity)
        without = Cavity(known, proper, tied)

    def one(y: Array, covariates: dict[str, Array], q: Marginal, left: Cavity | None, *along: Any) -> Any:
        return function(likelihood.at(**covariates), y, q, left, *along)

    rows = by_row(tile, (tile.y, tile.covariates, seen, without, along))
    return by_place(tile, jax.vmap(lambda row: one(*row[:-1], *row[-1]))(rows))
