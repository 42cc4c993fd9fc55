"""Inverse links: from a real latent value to a probability or to a positive rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from thiele.likelihoods.special import capped_exp, log_ndtr, log_sigmoid, log_softplus, softplus
from thiele.quadrature import AbstractQuadrature, expectation


class ProbabilityLink(NamedTuple):
    """A symmetric distribution function Φ with 1 - Φ(x) = Φ(-x)."""

    cdf: Callable[[Array], Array]
    log_cdf: Callable[[Array], Array]
    log_between: Callable[[Array, Array], Array]
    quantile: Callable[[Array], Array]
    marginal_scale: Callable[[Array], Array] | None
    """√(1 + var): E Φ(f) = Φ(mean/scale) under f ~ N(mean, var), where that holds."""


def _logit_log_between(upper: Array, lower: Array) -> Array:
    """log(σ(u) - σ(l)) = log σ(u) + log σ(-l) + log(1 - exp(l - u)), an identity without cancellation."""
    return log_sigmoid(upper) + log_sigmoid(-lower) + jnp.log(-jnp.expm1(lower - upper))


def _probit_log_between(upper: Array, lower: Array) -> Array:
    """log(Φ(u) - Φ(l)), reflected into the left tail, where Φ keeps its relative accuracy."""
    reflect = upper + lower > 0
    high = log_ndtr(jnp.where(reflect, -lower, upper))
    low = log_ndtr(jnp.where(reflect, -upper, lower))
    return high + jnp.log(-jnp.expm1(low - high))


PROBABILITY_LINKS = {
    "logit": ProbabilityLink(
        cdf=jax.nn.sigmoid,
        log_cdf=log_sigmoid,
        log_between=_logit_log_between,
        quantile=lambda p: jnp.log(p) - jnp.log1p(-p),
        marginal_scale=None,
    ),
    "probit": ProbabilityLink(
        cdf=ndtr,
        log_cdf=log_ndtr,
        log_between=_probit_log_between,
        quantile=ndtri,
        marginal_scale=lambda var: jnp.sqrt(1.0 + var),
    ),
}


def expected_probability(
    link: ProbabilityLink, mean: Float[Array, ""], var: Float[Array, ""], quadrature: AbstractQuadrature | None
) -> Float[Array, ""]:
    """E Φ(f), f ~ N(mean, var); closed form for the probit link."""
    if link.marginal_scale is not None:
        return link.cdf(mean / link.marginal_scale(var))
    return expectation(link.cdf, mean, var, quadrature)


class RateLink(NamedTuple):
    """A positive increasing function of the latent value, and its logarithm."""

    rate: Callable[[Array], Array]
    log_rate: Callable[[Array], Array]


RATE_LINKS = {
    "exp": RateLink(rate=capped_exp, log_rate=lambda f: f),
    "softplus": RateLink(rate=softplus, log_rate=log_softplus),
}


def rate_moments(
    name: str, mean: Float[Array, ""], var: Float[Array, ""], quadrature: AbstractQuadrature | None
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and variance of the rate under f ~ N(mean, var): log-normal moments for "exp", quadrature for others."""
    if name == "exp":
        first = capped_exp(mean + 0.5 * var)
        return first, jnp.square(first) * jnp.expm1(jnp.minimum(var, 80.0))
    rate = RATE_LINKS[name].rate
    first = expectation(rate, mean, var, quadrature)
    return first, expectation(lambda f: jnp.square(rate(f) - first), mean, var, quadrature)


def choose(links: Mapping[str, Any], name: str, owner: str) -> Any:
    """The link called `name`, or an error that lists what there is."""
    if name not in links:
        raise ValueError(f"`link` of {owner} must be one of {', '.join(map(repr, links))}, got {name!r}")
    return links[name]
