"""Positive data whose scale is exp(f): waiting times, amounts, sizes.

All densities depend on f through y exp(-f), so log-normal moments give most Gaussian integrals in closed form.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaln, ndtr
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractContinuous, noise_variance
from thiele.likelihoods.links import rate_moments
from thiele.likelihoods.quantiles import HALF_LINE, POSITIVE_LINE, Interval
from thiele.likelihoods.special import (
    capped_exp,
    expected_normal_log_density,
    log_expected_normal_power,
    normal_log_density,
    normal_quantile,
)
from thiele.parameters import positive


class AbstractPositive(AbstractContinuous):
    """y = exp(f) · e with e > 0 independent of f, E[e] = `unit_mean` and Var[e] = `unit_variance`."""

    support: eqx.AbstractClassVar[Interval]

    @property
    @abc.abstractmethod
    def unit_mean(self) -> ArrayLike: ...

    @property
    @abc.abstractmethod
    def unit_variance(self) -> ArrayLike: ...

    def conditional_mean(self, f):
        return self.unit_mean * capped_exp(f)

    def conditional_variance(self, f):
        return self.unit_variance * jnp.square(capped_exp(f))

    def predict_mean_var(self, mean, var, quadrature=None):
        scale, spread = rate_moments("exp", mean, var, quadrature)
        second = jnp.square(scale) + spread
        return self.unit_mean * scale, self.unit_variance * second + jnp.square(self.unit_mean) * spread


class Gamma(AbstractPositive):
    """p(y | f) = (k/m)^k y^(k-1) exp(-k y/m) / Γ(k),  k = shape,  m = E[y | f] = exp(f)."""

    shape: Array = positive(default=1.0)
    support: ClassVar[Interval] = POSITIVE_LINE

    @property
    def unit_mean(self) -> float:
        return 1.0

    @property
    def unit_variance(self) -> Array:
        return 1.0 / self.shape

    def _log_prob(self, y, f, inverse_scale):
        k = self.shape
        return k * (jnp.log(k) - f) + (k - 1.0) * jnp.log(y) - k * y * inverse_scale - gammaln(k)

    def log_prob(self, y, f):
        return self._log_prob(y, f, capped_exp(-f))

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return self._log_prob(y, mean, capped_exp(-mean + 0.5 * var))

    def cdf(self, y, f):
        return gammainc(self.shape, self.shape * y * capped_exp(-f))

    def sample(self, key, f):
        return capped_exp(f) * jax.random.gamma(key, self.shape, dtype=f.dtype) / self.shape

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        return {"shape": np.clip(1.0 / noise_variance(np.log(y)), 0.2, 50.0)}


class Exponential(AbstractPositive):
    """p(y | f) = exp(-y/m) / m,  m = E[y | f] = exp(f)."""

    support: ClassVar[Interval] = HALF_LINE

    @property
    def unit_mean(self) -> float:
        return 1.0

    @property
    def unit_variance(self) -> float:
        return 1.0

    def log_prob(self, y, f):
        return -f - y * capped_exp(-f)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return -mean - y * capped_exp(-mean + 0.5 * var)

    def cdf(self, y, f):
        return -jnp.expm1(-y * capped_exp(-f))

    def sample(self, key, f):
        return capped_exp(f) * jax.random.exponential(key, dtype=f.dtype)


class Weibull(AbstractPositive):
    """p(y | f) = (k/s) (y/s)^(k-1) exp(-(y/s)^k),  k = shape,  s = exp(f)."""

    shape: Array = positive(default=1.0)
    support: ClassVar[Interval] = POSITIVE_LINE

    @property
    def unit_mean(self) -> Array:
        return jnp.exp(gammaln(1.0 + 1.0 / self.shape))

    @property
    def unit_variance(self) -> Array:
        return jnp.exp(gammaln(1.0 + 2.0 / self.shape)) - jnp.square(self.unit_mean)

    def _log_prob(self, y, f, hazard):
        return jnp.log(self.shape) + (self.shape - 1.0) * jnp.log(y) - self.shape * f - hazard

    def log_prob(self, y, f):
        return self._log_prob(y, f, capped_exp(self.shape * (jnp.log(y) - f)))

    def expected_log_prob(self, y, mean, var, quadrature=None):
        k = self.shape
        return self._log_prob(y, mean, capped_exp(k * (jnp.log(y) - mean) + 0.5 * jnp.square(k) * var))

    def cdf(self, y, f):
        return -jnp.expm1(-capped_exp(self.shape * (jnp.log(y) - f)))

    def sample(self, key, f):
        return jnp.exp(f + jnp.log(jax.random.exponential(key, dtype=f.dtype)) / self.shape)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        # The logarithm of a Weibull variable has standard deviation π/(√6 k).
        return {"shape": np.clip(math.pi / np.sqrt(6.0 * noise_variance(np.log(y))), 0.2, 20.0)}


class LogNormal(AbstractPositive):
    """log y | f ~ N(f, variance), so exp(f) is the median. Everything is in closed form."""

    variance: Array = positive(default=1.0)
    support: ClassVar[Interval] = POSITIVE_LINE

    @property
    def conjugate(self) -> bool:
        return True

    @property
    def unit_mean(self) -> Array:
        return jnp.exp(0.5 * self.variance)

    @property
    def unit_variance(self) -> Array:
        return jnp.exp(self.variance) * jnp.expm1(self.variance)

    def log_prob(self, y, f):
        return normal_log_density(jnp.log(y) - f, self.variance) - jnp.log(y)

    def cdf(self, y, f):
        return ndtr((jnp.log(y) - f) / jnp.sqrt(self.variance))

    def sample(self, key, f):
        return jnp.exp(f + jnp.sqrt(self.variance) * jax.random.normal(key, dtype=f.dtype))

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return expected_normal_log_density(jnp.log(y) - mean, self.variance, var) - jnp.log(y)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        return log_expected_normal_power(jnp.log(y) - mean, self.variance, var, power) - power * jnp.log(y)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        return ndtr((jnp.log(y) - mean) / jnp.sqrt(var + self.variance))

    def predictive_quantile(self, p, mean, var, quadrature=None):
        return capped_exp(normal_quantile(p, mean, var + self.variance))

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        return {"variance": noise_variance(np.log(y))}
