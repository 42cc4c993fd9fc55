"""Successes in one trial or in several."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractInteger, refuse, refuse_unless_integer
from thiele.likelihoods.links import PROBABILITY_LINKS, choose, expected_probability
from thiele.precision import float64
from thiele.quadrature import expectation, log_expectation


class Bernoulli(AbstractInteger):
    """P(y = 1 | f) = Φ(f), y in {0, 1}; Φ is the logistic function ("logit") or the normal one ("probit").

    Labels -1 and +1 are refused rather than guessed at: a series of +1 alone would be ambiguous.
    """

    link: str = eqx.field(static=True, default="logit")

    def __check_init__(self):
        choose(PROBABILITY_LINKS, self.link, "Bernoulli")

    @property
    def log_concave(self) -> bool:
        return True

    @property
    def largest(self) -> float:
        return 1.0

    def log_prob(self, y, f):
        return PROBABILITY_LINKS[self.link].log_cdf((2.0 * y - 1.0) * f)

    def conditional_mean(self, f):
        return PROBABILITY_LINKS[self.link].cdf(f)

    def conditional_variance(self, f):
        cdf = PROBABILITY_LINKS[self.link].cdf
        return cdf(f) * cdf(-f)

    def cdf(self, y, f):
        return _staircase(y, PROBABILITY_LINKS[self.link].cdf(-f))

    def sample(self, key, f):
        return jax.random.bernoulli(key, self.conditional_mean(f)).astype(f.dtype)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        link = PROBABILITY_LINKS[self.link]
        if link.marginal_scale is not None and isinstance(power, (int, float)) and power == 1:
            return link.log_cdf((2.0 * y - 1.0) * mean / link.marginal_scale(var))
        return log_expectation(lambda f: power * self.log_prob(y, f), mean, var, quadrature, one_hill=self.log_concave)

    def predict_mean_var(self, mean, var, quadrature=None):
        link = PROBABILITY_LINKS[self.link]
        success = expected_probability(link, mean, var, quadrature)
        return success, success * expected_probability(link, -mean, var, quadrature)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        return _staircase(y, expected_probability(PROBABILITY_LINKS[self.link], -mean, var, quadrature))

    def predictive_quantile(self, p, mean, var, quadrature=None):
        failure = expected_probability(PROBABILITY_LINKS[self.link], -mean, var, quadrature)
        return (p > failure).astype(failure.dtype)

    def check(self, y: ArrayLike) -> None:
        hint = "; labels -1 and +1 become 0 and 1 by (y + 1) / 2" if np.any(np.asarray(y) == -1) else ""
        refuse(y, lambda v: (v == 0) | (v == 1), "0 or 1", "Bernoulli", hint=hint)


class Binomial(AbstractInteger):
    """P(y | f) = C(trials, y) Φ(f)^y (1 - Φ(f))^(trials - y); `trials` may be given per datum."""

    trials: Array = eqx.field(default=1.0, converter=float64)
    link: str = eqx.field(static=True, default="logit")
    covariates: ClassVar[tuple[str, ...]] = ("trials",)

    def __check_init__(self):
        choose(PROBABILITY_LINKS, self.link, "Binomial")

    @property
    def log_concave(self) -> bool:
        return True

    @property
    def largest(self) -> Array:
        return self.trials

    def log_prob(self, y, f):
        log_cdf, n = PROBABILITY_LINKS[self.link].log_cdf, self.trials
        ways = gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)
        return ways + y * log_cdf(f) + (n - y) * log_cdf(-f)

    def conditional_mean(self, f):
        return self.trials * PROBABILITY_LINKS[self.link].cdf(f)

    def conditional_variance(self, f):
        cdf = PROBABILITY_LINKS[self.link].cdf
        return self.trials * cdf(f) * cdf(-f)

    def cdf(self, y, f):
        k = jnp.floor(y)
        inside = (k >= 0) & (k < self.trials)
        safe = jnp.where(inside, k, 0.0)
        # At k = trials the incomplete beta function has a zero argument; any positive stand-in will do.
        remaining = jnp.where(inside, self.trials - safe, 1.0)
        tail = betainc(remaining, safe + 1.0, PROBABILITY_LINKS[self.link].cdf(-f))
        return jnp.where(inside, tail, (k >= self.trials).astype(tail.dtype))

    def sample(self, key, f):
        return jax.random.binomial(key, self.trials, PROBABILITY_LINKS[self.link].cdf(f), dtype=f.dtype)

    def predict_mean_var(self, mean, var, quadrature=None):
        link, n = PROBABILITY_LINKS[self.link], self.trials
        success = expected_probability(link, mean, var, quadrature)
        mixing = expectation(lambda f: jnp.square(link.cdf(f) - success), mean, var, quadrature)
        failure = expected_probability(link, -mean, var, quadrature)
        return n * success, n * (success * failure - mixing) + jnp.square(n) * mixing

    def check(self, y: ArrayLike) -> None:
        refuse(self.trials, lambda n: (n >= 1) & (n == np.floor(n)), "an integer from 1", "Binomial", name="trials")
        refuse_unless_integer(y, self.largest, "Binomial")


def _staircase(y: Array, failure: Array) -> Array:
    """P(Y ≤ y) for Y in {0, 1} with P(Y = 0) = failure."""
    return jnp.where(y < 0, 0.0, jnp.where(y < 1, failure, 1.0))
