"""Counts: Poisson, with more variance than Poisson, and with more zeros than Poisson.

The latent function gives the rate per unit of exposure, exp(f) or log(1 + exp(f)). Beyond f of about 319 in double
precision the exponential goes on as its tangent (`special.capped_exp`), so that nothing overflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaincc, gammaln
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractInteger, refuse, refuse_unless_integer
from thiele.likelihoods.links import RATE_LINKS, choose, rate_moments
from thiele.likelihoods.special import capped_exp, log_rising, log_sigmoid
from thiele.parameters import between, positive
from thiele.precision import float64
from thiele.quadrature import expectation


class AbstractCounts(AbstractInteger):
    """Counts whose mean given f is in proportion to exposure · rate(f), with Var[y | f] = m + c m² for their mean m."""

    covariates: ClassVar[tuple[str, ...]] = ("exposure",)

    if TYPE_CHECKING:  # Every one has these fields, each in the place that suits its constructor.
        link: str
        exposure: Array

    def __check_init__(self):
        choose(RATE_LINKS, self.link, type(self).__name__)

    @property
    def largest(self) -> float:
        return jnp.inf

    @property
    def share(self) -> ArrayLike:
        """The mean of y as a share of exposure · rate."""
        return 1.0

    @property
    def overdispersion(self) -> ArrayLike:
        """c in Var[y | f] = m + c m²."""
        return 0.0

    def rate(self, f: Array) -> Array:
        """λ, the exposure times the link's rate."""
        return self.exposure * RATE_LINKS[self.link].rate(f)

    def log_rate(self, f: Array) -> Array:
        """log of `rate`."""
        return jnp.log(self.exposure) + RATE_LINKS[self.link].log_rate(f)

    def conditional_mean(self, f):
        return self.share * self.rate(f)

    def conditional_variance(self, f):
        m = self.conditional_mean(f)
        return m + self.overdispersion * jnp.square(m)

    def predict_mean_var(self, mean, var, quadrature=None):
        rate, spread = rate_moments(self.link, mean, var, quadrature)
        scale = self.share * self.exposure
        m, s = scale * rate, jnp.square(scale) * spread
        return m, m + self.overdispersion * (jnp.square(m) + s) + s

    def check(self, y: ArrayLike) -> None:
        refuse(self.exposure, lambda e: e > 0, "positive", type(self).__name__, name="exposure")
        refuse_unless_integer(y, self.largest, type(self).__name__)


class Poisson(AbstractCounts):
    """P(y | f) = λ^y e^(-λ) / y!,  λ = exposure · rate(f); `exposure` may be given per datum."""

    link: str = eqx.field(static=True, default="exp")
    exposure: Array = eqx.field(default=1.0, converter=float64)

    @property
    def log_concave(self) -> bool:
        return True

    def log_prob(self, y, f):
        return _poisson_log_prob(y, self.log_rate(f), self.rate(f))

    def cdf(self, y, f):
        return _poisson_cdf(y, self.rate(f))

    def sample(self, key, f):
        return jax.random.poisson(key, self.rate(f)).astype(f.dtype)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        if self.link == "exp":
            return _poisson_log_prob(y, self.log_rate(mean), self.exposure * capped_exp(mean + 0.5 * var))
        return expectation(lambda f: self.log_prob(y, f), mean, var, quadrature)


class NegativeBinomial(AbstractCounts):
    """P(y | f) = Γ(y + r)/(Γ(r) y!) (r/(r + m))^r (m/(r + m))^y,  m = exposure · rate(f),  r = 1/dispersion.

    E[y | f] = m and Var[y | f] = m + dispersion · m²: Poisson as the dispersion tends to zero.
    """

    dispersion: Array = positive(default=1.0)
    link: str = eqx.field(static=True, default="exp")
    exposure: Array = eqx.field(default=1.0, converter=float64)

    @property
    def overdispersion(self) -> Array:
        return self.dispersion

    def log_prob(self, y, f):
        r = 1.0 / self.dispersion
        log_odds = self.log_rate(f) - jnp.log(r)
        ways = log_rising(r, y) - gammaln(y + 1.0)
        return ways + r * log_sigmoid(-log_odds) + y * log_sigmoid(log_odds)

    def cdf(self, y, f):
        r = 1.0 / self.dispersion
        k = jnp.floor(y)
        stays = jax.nn.sigmoid(jnp.log(r) - self.log_rate(f))
        return jnp.where(k >= 0, betainc(r, jnp.maximum(k, 0.0) + 1.0, stays), 0.0)

    def sample(self, key, f):
        mixing, counting = jax.random.split(key)
        r = 1.0 / self.dispersion
        rate = self.rate(f) * jax.random.gamma(mixing, r, dtype=f.dtype) / r
        return jax.random.poisson(counting, rate).astype(f.dtype)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        m, v = float(np.nanmean(y)), float(np.nanvar(y))
        return {"dispersion": np.clip((v - m) / max(m, 1e-6) ** 2, 0.05, 5.0)}


class ZeroInflatedPoisson(AbstractCounts):
    """P(y | f) = inflation · [y = 0] + (1 - inflation) · Poisson(y; exposure · rate(f))."""

    inflation: Array = between(0.0, 1.0, default=0.1)
    link: str = eqx.field(static=True, default="exp")
    exposure: Array = eqx.field(default=1.0, converter=float64)

    @property
    def share(self) -> Array:
        return 1.0 - self.inflation

    @property
    def overdispersion(self) -> Array:
        return self.inflation / (1.0 - self.inflation)

    def log_prob(self, y, f):
        counted = jnp.log1p(-self.inflation) + _poisson_log_prob(y, self.log_rate(f), self.rate(f))
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(self.inflation), counted), counted)

    def cdf(self, y, f):
        counted = (1.0 - self.inflation) * _poisson_cdf(y, self.rate(f))
        return jnp.where(y >= 0, self.inflation + counted, 0.0)

    def sample(self, key, f):
        choosing, counting = jax.random.split(key)
        count = jax.random.poisson(counting, self.rate(f)).astype(f.dtype)
        return jnp.where(jax.random.bernoulli(choosing, self.inflation), 0.0, count)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        zeros = np.nanmean(np.where(np.isnan(y), np.nan, np.asarray(y) == 0))
        return {"inflation": np.clip(zeros - np.exp(-np.nanmean(y)), 0.02, 0.9)}


def _poisson_log_prob(y: Array, log_rate: Array, rate: Array) -> Array:
    return y * log_rate - rate - gammaln(y + 1.0)


def _poisson_cdf(y: Array, rate: Array) -> Array:
    k = jnp.floor(y)
    return jnp.where(k >= 0, gammaincc(jnp.maximum(k, 0.0) + 1.0, rate), 0.0)
