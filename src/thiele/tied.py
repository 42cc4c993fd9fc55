r"""Data that share sites: one Gaussian site for each segment between inducing times (paper, sections 3 and 4).

A site is about w = (u, e): the state at the start of the segment and the white noise that drives it to the next
(`thiele.bridges`). Its memory is O(d²), whatever the number of data; these pass by in tiles of fixed width, each inside
one segment, and nothing that is as long as the data is ever stored. Methods are those of `energies.Data`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from thiele.bridges import Bridges, weights
from thiele.chain import Chain, Information, Move, Posterior, Tabulated, log_normaliser, posterior
from thiele.chain.matrices import dense
from thiele.energies import LOCAL, Visit
from thiele.likelihoods import AbstractLikelihood
from thiele.rules.base import AbstractLocalRule, AbstractRule
from thiele.rules.cavity import Cavity, Marginal, Site, cavity
from thiele.rules.latents import log_prob


class Absorbed(NamedTuple):
    """A chain on the inducing states alone, with what the sites say about them, and the noise given the state.

    Within a segment e | u ~ N(g − G u, C), from the site and the prior.
    """

    chain: Chain
    information: Information
    log: Float[Array, ""]
    C: Float[Array, "S d d"]
    G: Float[Array, "S d d"]
    g: Float[Array, "S d"]


def absorb(at: Bridges, sites: Site) -> Absorbed:
    r"""Integrate the noise of every segment out of its site.

        C = (I + J_ee)⁻¹    G = C J_eu    g = C h_e
        u' = (A − L G) u + L g + N(0, L C L')        information on u:  J_uu − J_ue G,  h_u − J_ue g

    Neither Q nor the site is inverted. Segment 0 makes the prior of the first state; the last has no noise.
    """
    d = at.sde.dim
    A, L = (jnp.moveaxis(dense(x), -1, 0) for x in (at.A, at.L))
    J, h = sites.precision, sites.shift[..., None]
    J_uu, J_ue, J_ee, h_u, h_e = J[:, :d, :d], J[:, :d, d:], J[:, d:, d:], h[:, :d], h[:, d:]
    root = jnp.linalg.cholesky(jnp.eye(d, dtype=J.dtype) + J_ee)
    half = lax.linalg.triangular_solve(
        root,
        jnp.concatenate([jnp.broadcast_to(jnp.eye(d, dtype=J.dtype), J_ee.shape), _turned(J_ue), h_e], axis=-1),
        left_side=True,
        lower=True,
    )
    half_eye, half_J, half_h = half[..., :d], half[..., d : 2 * d], half[..., 2 * d :]
    C, G, g = (_turned(half_eye) @ x for x in (half_eye, half_J, half_h))
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)))
    log = 0.5 * (jnp.sum(half_h**2) - log_det)

    Lg, LC = (L @ g)[..., 0], L @ _turned(half_eye)
    Q = LC @ _turned(LC)
    precision = J_uu - _turned(half_J) @ half_J
    shift = (h_u - _turned(half_J) @ half_h)[..., 0]
    trailing = lambda x: jnp.moveaxis(x, 0, -1)  # noqa: E731
    move = Move((trailing((A - L @ G)[1:-1])[None],), (trailing(Q[1:-1])[None],), trailing(Lg[1:-1]))
    chain = Chain(Lg[0], (Q[0][None],), Tabulated(), move)
    return Absorbed(chain, Information(trailing(precision[1:]), trailing(shift[1:])), log, C, G, g[..., 0])


def segment_marginals(at: Bridges, absorbed: Absorbed, found: Posterior) -> Marginal:
    """q(w) of every segment, (S, 2d) and (S, 2d, 2d), from the posterior of the inducing states."""
    A, L = (jnp.moveaxis(dense(x), -1, 0) for x in (at.A, at.L))
    leading = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    nothing = jnp.zeros_like(absorbed.g[:1])
    m = jnp.concatenate([nothing, leading(found.m)])
    P = jnp.concatenate([jnp.zeros_like(absorbed.C[:1]), leading(found.P)])
    r = jnp.concatenate([found.r0[None], leading(found.r)])
    N = jnp.concatenate([found.N0[None], leading(found.N)])
    # Before the later information: u as filtered, e given u.
    G, g, C = absorbed.G, absorbed.g, absorbed.C
    GP = G @ P
    mean = jnp.concatenate([m, g - jnp.einsum("sij,sj->si", G, m)], axis=-1)
    cov = jnp.concatenate(
        [jnp.concatenate([P, -_turned(GP)], axis=-1), jnp.concatenate([-GP, C + GP @ _turned(G)], axis=-1)], axis=-2
    )
    # (r, N) bear on the prediction of the next state, A u + L e.
    to_next = jnp.concatenate([A, L], axis=-1) @ cov
    mean = mean + jnp.einsum("sij,si->sj", to_next, r)
    cov = cov - _turned(to_next) @ N @ to_next
    return Marginal(mean, 0.5 * (cov + _turned(cov)))


def _turned(X: Array) -> Array:
    return jnp.swapaxes(X, -1, -2)


class Projection(NamedTuple):
    """The latent values of some tiles as linear functions of their segments: f = W w + N(0, ν)."""

    W: Float[Array, "tiles L 2d width"]
    nu: Float[Array, "tiles L width"]

    def marginals(self, of_segment: Marginal) -> Marginal:
        """N(W μ, W Σ W' + ν) of every datum, (tiles, width, L) and (tiles, width, L, L)."""
        mean = jnp.einsum("kldt,kd->ktl", self.W, of_segment.mean)
        var = jnp.einsum("kldt,kmdt->ktlm", self.W, jnp.einsum("kde,klet->kldt", of_segment.var, self.W))
        return Marginal(mean, var + self.spread())

    def spread(self) -> Float[Array, "tiles width L L"]:
        """ν as matrices."""
        return jnp.einsum("klt,lm->ktlm", self.nu, jnp.eye(self.nu.shape[1], dtype=self.nu.dtype))


def project(at: Bridges, segment: Int[Array, " tiles"], x: Float[Array, "tiles width"]) -> Projection:
    """W and ν at times `x`, of which each row lies in one segment."""
    w, nu = weights(at, segment, x)
    return Projection(jnp.asarray(at.owner, w.dtype)[None, :, :, None] * w[:, None], nu)


class Tile(NamedTuple):
    """Some data of one segment; a group of tiles has a leading axis."""

    segment: Int[Array, ""]
    time: Float[Array, " width"]
    y: Float[Array, " width *k"]
    mask: Bool[Array, " width"]
    covariates: dict[str, Float[Array, " width"]]


class Tied(eqx.Module):
    """Observations in the order of time, cut into tiles; `thiele.inducing.tie` makes them.

    Tile k holds the `length[k]` data from `start[k]` on, all in one segment. Tiles come in groups that fit in memory.
    """

    time: Float[Array, " n"]
    y: Float[Array, " n *k"]
    mask: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]
    segment: Int[Array, "groups tiles"]
    start: Int[Array, "groups tiles"]
    length: Int[Array, "groups tiles"]
    tied: Float[Array, " S"]
    """How many observed data share each site."""
    width: int = eqx.field(static=True)

    def empty(self, chain: Bridges, latents: int) -> Site:
        """Sites that say nothing: q is the prior."""
        S, D = self.tied.shape[0], 2 * chain.sde.dim
        return Site(jnp.zeros((S, D), chain.z.dtype), jnp.zeros((S, D, D), chain.z.dtype))

    def smooth(self, chain: Bridges, sites: Site) -> tuple[Marginal, Float[Array, ""]]:
        """q(w) of every segment, and log Z."""
        absorbed = absorb(chain, sites)
        found, log_z = posterior(absorbed.chain, absorbed.information)
        return segment_marginals(chain, absorbed, found), log_z + absorbed.log

    def log_normaliser(self, chain: Bridges, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        absorbed = absorb(chain, sites)
        return log_normaliser(absorbed.chain, absorbed.information) + absorbed.log

    def terms(
        self, rule: AbstractRule, likelihood: AbstractLikelihood, chain: Bridges, marginals: Marginal, sites: Site
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The energy without log Z, and the size of its terms."""
        left = self._left(rule, marginals, sites)
        of_datum, _ = LOCAL[rule.energy]

        def one(model: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> tuple[Array, Array]:
            term = of_datum(rule, model, y, q, left.marginal)
            return term, jnp.abs(term)

        def group(tile: Tile) -> tuple[Array, Array]:
            found = self._each(one, likelihood, chain, tile, marginals, left)
            return tuple(jnp.sum(jnp.where(tile.mask, x, 0.0)) for x in found)

        terms, size = self._over_groups(chain, group, (jnp.zeros(()), jnp.zeros(())))
        of_sites = self._site_terms(rule, marginals, left, sites)
        return terms + jnp.sum(of_sites), size + jnp.sum(jnp.abs(of_sites))

    def visit(
        self, rule: AbstractLocalRule, likelihood: AbstractLikelihood, chain: Bridges, marginals: Marginal, sites: Site
    ) -> Visit:
        """The energy's terms and new sites, summed over the data of each segment."""
        left = self._left(rule, marginals, sites)
        of_datum, _ = LOCAL[rule.energy]

        def one(model: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> tuple[Array, Any]:
            return of_datum(rule, model, y, q, left.marginal), rule.propose(model, y, q, left)

        def group(tile: Tile) -> tuple[Array, Array, Site, Array]:
            projection = project(chain, tile.segment, tile.time)
            terms, (wanted, repaired, usable) = self._each(one, likelihood, chain, tile, marginals, left, projection)
            terms = jnp.where(tile.mask, terms, 0.0)
            used = tile.mask & usable
            shift, precision = wanted
            if rule.in_cavity:
                shift, precision = _through_noise(wanted, projection.spread(), rule.power)
            shift = jnp.where(used[..., None], shift, 0.0)
            precision = jnp.where(used[..., None, None], precision, 0.0)
            W = projection.W
            h = jnp.einsum("kldt,ktl->kd", W, shift)
            J = jnp.einsum("kldt,klet->kde", W, jnp.einsum("ktlm,kmet->klet", precision, W))
            # A datum whose new site cannot be used keeps its share of the old one.
            stays = jnp.sum(tile.mask & ~usable, axis=-1) / self.tied[tile.segment].clip(1.0)
            h = h + stays[:, None] * sites.shift[tile.segment]
            J = J + stays[:, None, None] * sites.precision[tile.segment]
            sums = Site(*(jnp.zeros_like(old).at[tile.segment].add(x) for old, x in zip(sites, (h, J), strict=True)))
            changed = jnp.sum(tile.mask & (repaired | ~usable))
            return jnp.sum(terms), jnp.sum(jnp.abs(terms)), sums, changed

        none = (jnp.zeros(()), jnp.zeros(()), jax.tree.map(jnp.zeros_like, sites), jnp.array(0))
        terms, size, target, repaired = self._over_groups(chain, group, none)
        of_sites = self._site_terms(rule, marginals, left, sites)
        return Visit(terms + jnp.sum(of_sites), size + jnp.sum(jnp.abs(of_sites)), target, repaired)

    def log_joint(
        self, likelihood: AbstractLikelihood, chain: Bridges, marginals: Marginal, sites: Site
    ) -> Float[Array, ""]:
        """log p(y | W m) − ½ m′ K⁻¹ m at the mean m of q, where K⁻¹ m = Σ (h − J m) because m maximises p(u) Π t."""

        def group(tile: Tile) -> tuple[Array]:
            terms = self._each(
                lambda model, y, q, _: log_prob(model, y, q.mean), likelihood, chain, tile, marginals, None
            )
            return (jnp.sum(jnp.where(tile.mask, terms, 0.0)),)

        (terms,) = self._over_groups(chain, group, (jnp.zeros(()),))
        weights = sites.shift - jnp.einsum("sij,sj->si", sites.precision, marginals.mean)
        return terms - 0.5 * jnp.sum(weights * marginals.mean)

    # Segment by segment.

    def _left(self, rule: AbstractRule, marginals: Marginal, sites: Site) -> Cavity:
        """What is left of q(w) without one datum's share of its site."""
        tied = self.tied.clip(1.0)
        if rule.energy == "power_ep":
            left = jax.vmap(lambda q, site, n: cavity(q, site, rule.power / n))(marginals, sites, tied)
            return left._replace(tied=tied)
        # Only the variance is asked for, to bound a negative precision: the share of it that one datum explains.
        share = jnp.einsum("sij,sji->s", marginals.var, sites.precision) / tied
        proper = share < 1.0
        widened = marginals.var / (1.0 - jnp.where(proper, share, 0.0))[:, None, None]
        return Cavity(marginals._replace(var=widened), proper, tied)

    def _site_terms(self, rule: AbstractRule, marginals: Marginal, left: Cavity, sites: Site) -> Float[Array, " S"]:
        _, of_site = LOCAL[rule.energy]
        found = jax.vmap(lambda *args: of_site(rule, *args))(marginals, left.marginal, sites, self.tied)
        return jnp.where(self.tied > 0, found, 0.0)

    # Datum by datum.

    def _each(
        self,
        function: Callable[..., Any],
        likelihood: AbstractLikelihood,
        chain: Bridges,
        tile: Tile,
        marginals: Marginal,
        left: Cavity | None,
        projection: Projection | None = None,
    ) -> Any:
        """`function(likelihood, y, q, left)` at every datum of a group of tiles."""
        projection = project(chain, tile.segment, tile.time) if projection is None else projection
        at = lambda x: x[tile.segment]  # noqa: E731
        q = projection.marginals(jax.tree.map(at, marginals))
        if left is not None:
            proper, tied = (jnp.broadcast_to(at(x)[:, None], tile.mask.shape) for x in (left.proper, left.tied))
            left = Cavity(projection.marginals(jax.tree.map(at, left.marginal)), proper, tied)

        def one(y: Array, covariates: dict[str, Array], q: Marginal, left: Cavity | None) -> Any:
            return function(likelihood.at(**covariates), y, q, left)

        return jax.vmap(jax.vmap(one))(tile.y, tile.covariates, q, left)

    def _over_groups(self, chain: Bridges, function: Callable[[Tile], Any], start: Any) -> Any:
        """The sum of `function` over all groups of tiles, one group in memory at a time, in derivatives too."""
        cut = (self.segment, self.start, self.length)

        def add(total: Any, group: tuple[Array, Array, Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, function(self._tiles(chain, *group))), None

        if self.segment.shape[0] == 1:
            return add(start, jax.tree.map(lambda x: x[0], cut))[0]
        return lax.scan(jax.checkpoint(add), start, cut)[0]

    def _tiles(self, chain: Bridges, segment: Array, start: Array, length: Array) -> Tile:
        place = jnp.arange(self.width, dtype=start.dtype)
        index = jnp.minimum(start[:, None] + place, self.time.shape[0] - 1)
        mask = (place < length[:, None]) & self.mask[index]
        # A place that holds no datum must still lie in its segment.
        edge = chain.z[jnp.minimum(segment, chain.z.shape[0] - 1)]
        time = jnp.where(mask, self.time[index], edge[:, None])
        return Tile(segment, time, self.y[index], mask, {name: x[index] for name, x in self.covariates.items()})


def _through_noise(site: Site, nu: Float[Array, "*data L L"], power: float) -> Site:
    """∫ N(f; W w, ν) t(f)^α df to the power 1/α: a site on f as one on W w, (I + α Λ ν)⁻¹ times its parameters."""
    size = nu.shape[-1]
    widened = jnp.eye(size, dtype=nu.dtype) + power * site.precision @ nu
    if size == 1:
        return Site(site.shift / widened[..., 0], site.precision / widened)
    precision = jnp.linalg.solve(widened, site.precision)
    shift = jnp.linalg.solve(widened, site.shift[..., None])[..., 0]
    return Site(shift, 0.5 * (precision + _turned(precision)))
