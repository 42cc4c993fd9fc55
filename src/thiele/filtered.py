r"""The filter's approximate marginal likelihood: Σ log ∫ p(y_n | f_n) p(f_n | what came before) df_n (paper, C.4).

One pass forward, for any rule: sites stand in for the data that came before. Where data share a site, those to the left
of datum n in its segment are the fraction k_n of it; the rest of it is not used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from thiele.bridges import Bridges
from thiele.chain import Chain, posterior
from thiele.chain.layouts import choose_layout
from thiele.chain.sweeps import predictions
from thiele.energies import Data, each_datum, emission, information
from thiele.likelihoods import AbstractLikelihood
from thiele.rules.base import AbstractRule, Marginal, Site
from thiele.rules.cavity import cavity
from thiele.rules.latents import log_expected_power
from thiele.segments import absorb
from thiele.sequence import with_site
from thiele.tied import Tied
from thiele.tiles import Cut, Tile


def filter_energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Chain | Bridges, data: Data | Tied, sites: Site
) -> Float[Array, ""]:
    """Σ log p(y_n | the data before n), each as the sites before it predict it."""
    if isinstance(data, Tied):
        return _with_tied_sites(rule, likelihood, chain, data, sites)
    found, _ = posterior(chain, information(chain, sites, data.mask))
    H = jnp.asarray(emission(chain), found.m.dtype)
    filtered = Marginal((H @ found.m).T, jnp.einsum("id,den,je->nij", H, found.P, H))

    def term(likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
        # The filtered marginal with the datum's own site taken out again.
        predicted = cavity(q, site, 1.0).marginal
        return log_expected_power(likelihood, y, *predicted, 1.0, rule.quadrature)

    return jnp.sum(jnp.where(data.mask, each_datum(term, likelihood, data, filtered, sites), 0.0))


def _with_tied_sites(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Bridges, data: Tied, sites: Site
) -> Float[Array, ""]:
    d, M = chain.sde.dim, chain.z.shape[0]
    absorbed = absorb(chain.steps, sites)
    m, P, _, _ = predictions(absorbed.chain, absorbed.information, choose_layout(M, d, d, lanes=1))
    # w of each segment from the sites before it: nothing but noise in the first.
    mean = jnp.pad(m.T, [(1, 0), (0, d)])
    var = jnp.pad(jnp.moveaxis(P, -1, 0), [(1, 0), (0, d), (0, d)]).at[:, d:, d:].set(jnp.eye(d, dtype=m.dtype))
    seen = jnp.cumsum(data.mask)

    def add(total: Array, place: Cut) -> tuple[Array, None]:
        tile = data.tiles(chain, place)
        projection = chain.project(tile.segment, tile.time, tile.space)
        index = jnp.minimum(place.start[:, None] + jnp.arange(data.width), data.time.shape[0] - 1)
        first = jnp.searchsorted(data.time, jnp.concatenate([chain.z[:1] - jnp.inf, chain.z]), side="left")
        before = seen[index] - data.mask[index] - jnp.where(first > 0, seen[first - 1], 0)[tile.segment][:, None]
        share = before / data.tied[tile.segment].clip(1.0)[:, None]

        def one(tile: Tile, W: Array, nu: Array, q: Marginal, site: Site, share: Array) -> Array:
            def datum(y: Array, covariates: dict[str, Array], W: Array, nu: Array, share: Array) -> Array:
                known = with_site(q, Site(share * site.shift, share * site.precision))
                spread = W @ known.var @ W.T + jnp.diag(nu)
                model = likelihood.at(**covariates)
                return log_expected_power(model, y, W @ known.mean, spread, 1.0, rule.quadrature)

            return jax.vmap(datum)(tile.y, tile.covariates, W, nu, share)

        q = Marginal(mean[tile.segment], var[tile.segment])
        own = jax.tree.map(lambda x: x[tile.segment], sites)
        found = jax.vmap(one)(tile, projection.W, projection.nu, q, own, share)
        return total + jnp.sum(jnp.where(tile.mask, found, 0.0)), None

    return lax.scan(add, jnp.zeros(()), Cut(data.segment, data.start, data.length))[0]
