"""Gaussian observation noise, on the data's own scale."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractContinuous, noise_variance
from thiele.likelihoods.quantiles import REAL_LINE, Interval
from thiele.likelihoods.special import (
    expected_normal_log_density,
    log_expected_normal_power,
    normal_log_density,
    normal_quantile,
)
from thiele.parameters import positive


class Gaussian(AbstractContinuous):
    """y | f ~ N(f, variance). Everything is in closed form."""

    variance: Array = positive(default=1.0)
    support: ClassVar[Interval] = REAL_LINE

    @property
    def conjugate(self) -> bool:
        return True

    def log_prob(self, y, f):
        return normal_log_density(y - f, self.variance)

    def conditional_mean(self, f):
        return f

    def conditional_variance(self, f):
        return self.variance + jnp.zeros_like(f)

    def cdf(self, y, f):
        return jax.scipy.special.ndtr((y - f) / jnp.sqrt(self.variance))

    def sample(self, key, f):
        return f + jnp.sqrt(self.variance) * jax.random.normal(key, dtype=f.dtype)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return expected_normal_log_density(y - mean, self.variance, var)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        return log_expected_normal_power(y - mean, self.variance, var, power)

    def predict_mean_var(self, mean, var, quadrature=None):
        return mean, var + self.variance

    def predictive_cdf(self, y, mean, var, quadrature=None):
        return jax.scipy.special.ndtr((y - mean) / jnp.sqrt(var + self.variance))

    def predictive_quantile(self, p, mean, var, quadrature=None):
        return normal_quantile(p, mean, var + self.variance)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        return {"variance": noise_variance(y)}
