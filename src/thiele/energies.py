r"""Energies: what stands in for log p(y), given sites (paper, section 4.4 and appendix C).

All have one shape. With q ∝ p(f) Π t_n(f_n) and Z = ∫ p(f) Π t_n(f_n) df,

    energy = log Z + Σ_n (log p(y_n | f_n) − log t_n(f_n), averaged in the energy's own way)

    ELBO            E_q log p − E_q log t                                  appendix C.2.1
    power EP        (1/α) (log E₋ p^α − log E₋ t^α),  E₋ under the cavity  appendix C.3.2
    Laplace         log p − log t at the mean of q

so an energy is a function of one datum, listed in `LOCAL`. A Gaussian likelihood is its own site and each sum is zero.
The filter's approximate marginal likelihood (appendix C.4) is of another kind and stands by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from thiele.chain import Chain, Information, log_normaliser, outputs, posterior
from thiele.likelihoods import AbstractLikelihood
from thiele.rules.base import AbstractRule, Marginal, Site
from thiele.rules.cavity import cavity
from thiele.rules.latents import expected_log_prob, log_expected_power, log_prob

# Above this many data, those after the first batch wait for it: quadrature nodes times data must fit in memory.
BATCH = 65_536


class Data(NamedTuple):
    """Observations at the states of a chain, in its order; two at one time are two states with a step of zero.

    Where `mask` is False nothing was observed, and `y` and the covariates hold any value that the likelihood allows.
    """

    y: Float[Array, " n *k"]
    mask: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]


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


def smooth(chain: Chain, sites: Site, mask: Bool[Array, " n"]) -> tuple[Marginal, Float[Array, ""]]:
    """Marginals q(f_n) of all data, (n, L) and (n, L, L), and log Z, by one pass of filter and smoother."""
    found, log_z = outputs(chain, information(chain, sites, mask))
    return Marginal(found.mean.T, jnp.moveaxis(found.var, -1, 0)), log_z


# One datum's share of each energy.


def elbo_term(rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
    """E_q log p(y | f) − E_q log t(f)."""
    second = q.var + jnp.outer(q.mean, q.mean)
    expected_site = site.shift @ q.mean - 0.5 * jnp.sum(site.precision * second)
    return expected_log_prob(likelihood, y, *q, rule.quadrature) - expected_site


def power_ep_term(rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
    """(1/α) (log E₋ p(y | f)^α − log E₋ t(f)^α) under the cavity q / t^α."""
    alpha = rule.power
    left, _ = cavity(q, site, alpha)
    tilted = log_expected_power(likelihood, y, *left, alpha, rule.quadrature)
    return (tilted - log_expected_site(left, site, alpha)) / alpha


def log_expected_site(q: Marginal, site: Site, power: float) -> Float[Array, ""]:
    """log E t(f)^α = α log t(m) + ½ α² e′ D⁻¹ v e − ½ log det D,  D = I + α v Λ,  e = h − Λ m,  f ~ N(m, v)."""
    widened = jnp.eye(q.mean.shape[0], dtype=q.var.dtype) + power * q.var @ site.precision
    e = site.shift - site.precision @ q.mean
    at_mean = site.shift @ q.mean - 0.5 * q.mean @ site.precision @ q.mean
    if q.mean.shape[0] == 1:
        spread, log_det = (q.var / widened) @ e, jnp.log(widened[0, 0])
    else:
        spread, log_det = jnp.linalg.solve(widened, q.var @ e), jnp.linalg.slogdet(widened)[1]
    return power * at_mean + 0.5 * jnp.square(power) * e @ spread - 0.5 * log_det


def laplace_term(rule: AbstractRule, likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
    """log p(y | m) − log t(m) at the mean m of q."""
    return log_prob(likelihood, y, q.mean) - site.shift @ q.mean + 0.5 * q.mean @ site.precision @ q.mean


LOCAL: dict[str, Callable[..., Array]] = {"elbo": elbo_term, "power_ep": power_ep_term, "laplace": laplace_term}


def local_terms(
    rule: AbstractRule, likelihood: AbstractLikelihood, data: Data, marginals: Marginal, sites: Site
) -> Float[Array, " n"]:
    """Every datum's share of the rule's energy; zero where nothing was observed."""
    term = LOCAL[rule.energy]
    terms = each_datum(lambda *args: term(rule, *args), likelihood, data, marginals, sites)
    return jnp.where(data.mask, terms, 0.0)


# The whole.


def energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Chain, data: Data, sites: Site
) -> Float[Array, ""]:
    """The rule's approximation of log p(y), as a function of the likelihood and of the chain, with the sites held."""
    marginals, log_z = smooth(chain, sites, data.mask)
    return log_z + jnp.sum(local_terms(rule, likelihood, data, marginals, sites))


def converged_energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Chain, data: Data, sites: Site
) -> Float[Array, ""]:
    """`energy` at sites that have converged, with a derivative that lets the sites follow the hyperparameters.

    Where the rule makes its energy stationary, q is held in the sum over data (for the ELBO: the gradient with q held).
    What is left is the gradient of log Z, for which the chain keeps no tape. Where a site was repaired it is not quite
    stationary, and `energy` is the better choice.

    Laplace, EKS and PL move their sites by one sweep, of which the derivative is taken. A sweep of Newton's method
    forgets where it began, so for Laplace, and for EKS where it equals Newton's method (Poisson with the exponential
    and Bernoulli with the logistic link), that is exact. For PL and other EKS it is nearly so.
    """
    held, _ = smooth(*lax.stop_gradient((chain, sites)), data.mask)
    if rule.stationary:
        log_z = log_normaliser(chain, information(chain, sites, data.mask))
        return log_z + jnp.sum(local_terms(rule, likelihood, data, held, sites))
    fresh = each_datum(lambda *args: rule(*args).site, likelihood, data, held, sites)
    following, _ = smooth(chain, fresh, data.mask)
    fresh = each_datum(lambda *args: rule(*args).site, likelihood, data, following, fresh)
    return energy(rule, likelihood, chain, data, fresh)


def filter_energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, chain: Chain, data: Data, sites: Site
) -> Float[Array, ""]:
    """Σ log ∫ p(y_n | f_n) p(f_n | sites before n) df_n: one filter pass, for any rule (paper, section 4.4 and C.4).

    The prediction of f_n is the filtered marginal with the datum's own site taken out again.
    """
    found, _ = posterior(chain, information(chain, sites, data.mask))
    H = jnp.asarray(emission(chain), found.m.dtype)
    filtered = Marginal((H @ found.m).T, jnp.einsum("id,den,je->nij", H, found.P, H))

    def term(likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
        predicted, _ = cavity(q, site, 1.0)
        return log_expected_power(likelihood, y, *predicted, 1.0, rule.quadrature)

    return jnp.sum(jnp.where(data.mask, each_datum(term, likelihood, data, filtered, sites), 0.0))
