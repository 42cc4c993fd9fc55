r"""Energies: what stands in for log p(y), given sites (paper, section 4.4 and appendix C).

All have one shape. With q ∝ p(f) Π t_n(f_n) and Z = ∫ p(f) Π t_n(f_n) df,

    energy = log Z + Σ_n (log p(y_n | f_n) − log t_n(f_n), averaged in the energy's own way)

    ELBO            E_q log p − E_q log t                                  appendix C.2.1
    power EP        (1/α) (log E₋ p^α − log E₋ t^α),  E₋ under the cavity  appendix C.3.2
    Laplace         log p − log t at the mean of q

so an energy is a function of one datum and one of its site, listed in `LOCAL`. A Gaussian likelihood is its own site
and each sum is zero.
The filter's approximate marginal likelihood (appendix C.4) is of another kind: see `thiele.filtered`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from thiele.chain import Chain, Information, log_normaliser, outputs
from thiele.likelihoods import AbstractLikelihood
from thiele.mixtures import Mixture
from thiele.own_sites import OwnSites
from thiele.rules.base import AbstractLocalRule, AbstractRule, Marginal, Site, Update
from thiele.rules.cavity import cavity, combined, widened
from thiele.rules.latents import expected_log_prob, log_expected_power, log_prob
from thiele.steps import prior_covariances

# Chains of which a datum sees a mixture, which its site is about.
Mixed = Mixture | OwnSites
# Above this many data, those after the first batch wait for it: quadrature nodes times data must fit in memory.
BATCH = 65_536


class Visit(NamedTuple):
    """What one pass over the data gives: the energy's sum over data and the size of its terms, the sites that the rule
    asks for, and how many it had to repair.
    """

    terms: Float[Array, ""]
    size: Float[Array, ""]
    target: Site
    repaired: Int[Array, ""]


class Data(NamedTuple):
    """Observations at the states of a chain, in its order, each with a site of its own; two at one time are two states
    with a step of zero.

    Where `mask` is False nothing was observed, and `y` and the covariates hold any value that the likelihood allows.
    `thiele.tied.Tied` has the same methods for data that share sites.
    """

    y: Float[Array, " n *k"]
    mask: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]

    def stationary(self, rule: AbstractRule) -> bool:
        """Whether the rule's energy is stationary in the sites where it has converged."""
        return rule.stationary

    def empty(self, chain: Chain | Mixed, latents: int) -> Site:
        """Sites that say nothing: q is the prior."""
        n = self.mask.shape[0]
        return Site(jnp.zeros((n, latents)), jnp.zeros((n, latents, latents)))

    def prior(self, chain: Chain | Mixed) -> Any:
        """What `smooth` makes of sites that say nothing, without a filter."""
        if isinstance(chain, Mixed):
            return chain.prior()
        H = jnp.asarray(emission(chain))
        var = jnp.einsum("li,ijn,mj->nlm", H, prior_covariances(chain, self.mask.shape[0]), H)
        return Marginal(jnp.zeros(var.shape[:2], var.dtype), var)

    def smooth(self, chain: Chain | Mixed, sites: Site, *, held: bool = False) -> tuple[Any, Float[Array, ""]]:
        """Marginals q(f_n) of all data, (n, L) and (n, L, L), and log Z, by one pass of filter and smoother.

        `held`: q has no derivative, and that of log Z keeps no tape.
        """
        if isinstance(chain, Mixed):
            return chain.smooth(sites, self.mask, held=held)
        found, log_z = outputs(chain, information(chain, sites, self.mask), held=held)
        return Marginal(found.mean.T, jnp.moveaxis(found.var, -1, 0)), log_z

    def log_normaliser(self, chain: Chain | Mixed, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        if isinstance(chain, Mixed):
            return chain.log_normaliser(sites, self.mask)
        return log_normaliser(chain, information(chain, sites, self.mask))

    def terms(
        self,
        rule: AbstractRule,
        likelihood: AbstractLikelihood,
        chain: Chain | Mixed,
        marginals: Marginal,
        sites: Site,
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The energy without log Z, and the size of its terms."""
        found = each_datum(partial(_terms, rule), likelihood, self, *_seen(chain, marginals, sites))
        found = jnp.where(self.mask, found, 0.0)
        return jnp.sum(found), jnp.sum(jnp.abs(found))

    def visit(
        self,
        rule: AbstractLocalRule,
        likelihood: AbstractLikelihood,
        chain: Chain | Mixed,
        marginals: Marginal,
        sites: Site,
    ) -> Visit:
        """The energy's terms, and new sites for all data; those of missing data are left alone."""

        def one(model: AbstractLikelihood, y: Array, q: Marginal, site: Site, nu: Any) -> tuple[Array, Update]:
            found, known = rule.with_term(model, y, q, site, nu)
            return _terms(rule, model, y, q, site, nu, known), found

        terms, (target, repaired) = each_datum(one, likelihood, self, *_seen(chain, marginals, sites))
        terms = jnp.where(self.mask, terms, 0.0)
        kept = Site(
            jnp.where(self.mask[:, None], target.shift, sites.shift),
            jnp.where(self.mask[:, None, None], target.precision, sites.precision),
        )
        return Visit(jnp.sum(terms), jnp.sum(jnp.abs(terms)), kept, jnp.sum(repaired & self.mask))

    def leave_one_out(
        self,
        rule: AbstractRule,
        likelihood: AbstractLikelihood,
        chain: Chain | Mixed,
        marginals: Marginal,
        sites: Site,
    ) -> Float[Array, " n"]:
        """log p(y_n | the others), one for each datum, from q without the datum's site."""

        def one(model: AbstractLikelihood, y: Array, q: Marginal, site: Site, nu: Any) -> Array:
            without = widened(cavity(q, site, 1.0).marginal, nu)
            return log_expected_power(model, y, *without, 1.0, rule.quadrature)

        return each_datum(one, likelihood, self, *_seen(chain, marginals, sites))

    def log_joint(
        self, likelihood: AbstractLikelihood, chain: Chain | Mixed, marginals: Marginal, sites: Site
    ) -> Float[Array, ""]:
        """log p(y | m) − ½ m′ K⁻¹ m at the mean of q, where K⁻¹ m = h − Λ m because m maximises p(f) Π t(f)."""
        m = _seen(chain, marginals, sites)[0].mean
        terms = each_datum(lambda model, y, f: log_prob(model, y, f), likelihood, self, m)
        weights = sites.shift - jnp.einsum("nij,nj->ni", sites.precision, m)
        return jnp.sum(jnp.where(self.mask, terms - 0.5 * jnp.sum(weights * m, axis=-1), 0.0))


def _seen(chain: Chain | Mixed, marginals: Any, sites: Site) -> tuple[Marginal, Site, Array | None]:
    """What each datum's site is about, the site, and the variance that the latent value has beyond that."""
    if isinstance(chain, Mixed):
        return chain.seen(marginals), sites, chain.nu
    return marginals, sites, None


def _terms(
    rule: AbstractRule,
    likelihood: AbstractLikelihood,
    y: Array,
    q: Marginal,
    site: Site,
    nu: Array | None,
    known: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """A datum's and its site's; `known`: that of the datum, where a rule has found it."""
    of_datum, of_site = LOCAL[rule.energy]
    left = cavity(q, site, rule.power).marginal if rule.energy == "power_ep" else q
    own = of_datum(rule, likelihood, y, widened(q, nu), widened(left, nu)) if known is None else known
    return own + of_site(rule, q, left, site, 1.0)


def observed(y: ArrayLike, **covariates: ArrayLike) -> Data:
    """Data with NaN in `y` for what is missing; an observed value fills its place. Works on concrete arrays."""
    values = np.asarray(y, dtype=np.float64)
    mask = ~np.isnan(values) if values.ndim == 1 else ~np.any(np.isnan(values), axis=-1)
    fill = values[mask][0] if np.any(mask) else 1.0
    filled = np.where(mask.reshape(mask.shape + (1,) * (values.ndim - 1)), values, fill)
    return Data(jnp.asarray(filled), jnp.asarray(mask), {name: jnp.asarray(v) for name, v in covariates.items()})


def each_datum(function: Callable[..., Any], likelihood: AbstractLikelihood, data: Data, *along: Any) -> Any:
    """`function(likelihood, y, *along)` for every datum, with that datum's covariates in the likelihood."""

    def one(item: tuple[Array, dict[str, Array], tuple]) -> Any:
        y, covariates, rest = item
        return function(likelihood.at(**covariates), y, *rest)

    items = (data.y, data.covariates, along)
    n = data.mask.shape[0]
    return jax.vmap(one)(items) if n <= BATCH else lax.map(one, items, batch_size=BATCH)


# From sites to marginals.


def emission(chain: Chain) -> np.ndarray:
    """H of a prior chain: f = H x."""
    return chain.moves.sde.H  # pyright: ignore[reportAttributeAccessIssue] - chains here are made by `prior_chain`


def information(chain: Chain, sites: Site, mask: Bool[Array, " n"]) -> Information:
    """The sites of observed data, as the chain takes them."""
    shift = jnp.where(mask[:, None], sites.shift, 0.0)
    precision = jnp.where(mask[:, None, None], sites.precision, 0.0)
    return Information(jnp.moveaxis(precision, 0, -1), shift.T, H=emission(chain))


# One datum's share of each energy, and one site's. `left` is q without the datum's own share of the site.


def expected_log_density(
    rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Marginal
) -> Float[Array, ""]:
    """E_q log p(y | f)."""
    return expected_log_prob(likelihood, y, *q, rule.quadrature)


def minus_expected_log_site(
    rule: AbstractRule, q: Marginal, left: Marginal, site: Site, tied: Array | float
) -> Float[Array, ""]:
    """−E_q log t(f)."""
    return 0.5 * jnp.sum(site.precision * (q.var + jnp.outer(q.mean, q.mean))) - site.shift @ q.mean


def log_tilted_power(
    rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Marginal
) -> Float[Array, ""]:
    """(1/α) log E₋ p(y | f)^α under the cavity."""
    return log_expected_power(likelihood, y, *left, rule.power, rule.quadrature) / rule.power


def minus_log_expected_sites(
    rule: AbstractRule, q: Marginal, left: Marginal, site: Site, tied: Array | float
) -> Float[Array, ""]:
    """−(n/α) log E₋ t(f)^(α/n) for a site that n data share."""
    share = rule.power / jnp.maximum(tied, 1.0)
    return -log_expected_site(left, site, share) / share


def log_expected_site(q: Marginal, site: Site, power: Array | float) -> Float[Array, ""]:
    """log E t(f)^α = α log t(m) + ½ α² e′ D⁻¹ v e − ½ log det D,  D = I + α v Λ,  e = h − Λ m,  f ~ N(m, v)."""
    var, log_det = combined(q.var, site.precision, jnp.asarray(power, q.var.dtype))
    e = site.shift - site.precision @ q.mean
    at_mean = site.shift @ q.mean - 0.5 * q.mean @ site.precision @ q.mean
    return power * at_mean + 0.5 * jnp.square(power) * e @ var @ e - 0.5 * log_det


def log_density_at_mean(
    rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Marginal
) -> Float[Array, ""]:
    """log p(y | m) at the mean m of q."""
    return log_prob(likelihood, y, q.mean)


def minus_log_site_at_mean(
    rule: AbstractRule, q: Marginal, left: Marginal, site: Site, tied: Array | float
) -> Float[Array, ""]:
    """−log t(m)."""
    return 0.5 * q.mean @ site.precision @ q.mean - site.shift @ q.mean


LOCAL: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "elbo": (expected_log_density, minus_expected_log_site),
    "power_ep": (log_tilted_power, minus_log_expected_sites),
    "laplace": (log_density_at_mean, minus_log_site_at_mean),
}


# The whole.


def energy(rule: AbstractRule, likelihood: AbstractLikelihood, chain: Any, data: Any, sites: Site) -> Float[Array, ""]:
    """The rule's approximation of log p(y), as a function of the likelihood and of the chain, with the sites held."""
    marginals, log_z = data.smooth(chain, sites)
    return log_z + data.terms(rule, likelihood, chain, marginals, sites)[0]


def converged_energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Any, data: Any, sites: Site, held: Any
) -> Float[Array, ""]:
    """`energy` at sites that have converged, with a derivative that lets the sites follow the hyperparameters; `held`
    are their marginals.

    Where the rule makes its energy stationary, q is held in the sum over data (for the ELBO: the gradient with q held).
    What is left is the gradient of log Z, for which the chain keeps no tape. Where a site was repaired it is not quite
    stationary, and `energy` is the better choice.

    Laplace, EKS and PL move their sites by one sweep, of which the derivative is taken. A sweep of Newton's method
    forgets where it began, so for Laplace, and for EKS where it equals Newton's method (Poisson with the exponential
    and Bernoulli with the logistic link), that is exact. For PL and other EKS it is nearly so.
    """
    if rule.stationary and not data.stationary(rule):
        # Power EP with tied sites: nearly stationary, and nearer with q following the hyperparameters.
        return energy(rule, likelihood, chain, data, sites)
    if rule.stationary:
        return data.log_normaliser(chain, sites) + data.terms(rule, likelihood, chain, held, sites)[0]
    fresh = data.visit(rule, likelihood, chain, held, sites).target
    following, _ = data.smooth(chain, fresh)
    fresh = data.visit(rule, likelihood, chain, following, fresh).target
    return energy(rule, likelihood, chain, data, fresh)
