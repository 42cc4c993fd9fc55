"""Noise with heavier tails than the Gaussian: outliers pull less, or not at all."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln, ndtr
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractContinuous, noise_variance
from thiele.likelihoods.quantiles import REAL_LINE, Interval
from thiele.likelihoods.special import capped_exp, log_ndtr
from thiele.parameters import positive
from thiele.quadrature import standard_deviation


class StudentT(AbstractContinuous):
    """p(y | f) ∝ (1 + r²/df)^(-(df + 1)/2) / scale,  r = (y - f)/scale.

    Not log-concave: its second derivative in f is positive for |r| > √df, so that sites may have negative precision.
    The variance given f is infinite for df ≤ 2, and the linearising rules then take nothing from the data.
    """

    df: Array = positive(default=4.0)
    scale: Array = positive(default=1.0)
    support: ClassVar[Interval] = REAL_LINE

    def log_prob(self, y, f):
        r = (y - f) / self.scale
        constant = gammaln(0.5 * (self.df + 1.0)) - gammaln(0.5 * self.df) - 0.5 * jnp.log(math.pi * self.df)
        return constant - jnp.log(self.scale) - 0.5 * (self.df + 1.0) * jnp.log1p(jnp.square(r) / self.df)

    def conditional_mean(self, f):
        return f

    def conditional_variance(self, f):
        excess = jnp.where(self.df > 2.0, self.df - 2.0, 1.0)
        variance = jnp.where(self.df > 2.0, jnp.square(self.scale) * self.df / excess, jnp.inf)
        return variance + jnp.zeros_like(f)

    def cdf(self, y, f):
        r = (y - f) / self.scale
        tail = 0.5 * betainc(0.5 * self.df, 0.5 * jnp.ones_like(self.df), self.df / (self.df + jnp.square(r)))
        return jnp.where(r < 0, tail, 1.0 - tail)

    def sample(self, key, f):
        return f + self.scale * jax.random.t(key, self.df, dtype=f.dtype)

    def predict_mean_var(self, mean, var, quadrature=None):
        return mean, var + self.conditional_variance(mean)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        # The robust guess sees the quartiles, at which a t with four degrees is 1.1 times as wide as a Gaussian.
        return {"scale": np.sqrt(noise_variance(y)) / 1.1}


class LaplaceNoise(AbstractContinuous):
    """p(y | f) = exp(-|y - f|/scale) / (2 scale). Integrals over a Gaussian f are in closed form.

    The kink at y = f defeats quadrature, so none is used. The second derivative in f is zero wherever it exists.
    """

    scale: Array = positive(default=1.0)
    support: ClassVar[Interval] = REAL_LINE

    def log_prob(self, y, f):
        return -jnp.abs(y - f) / self.scale - jnp.log(2.0 * self.scale)

    def conditional_mean(self, f):
        return f

    def conditional_variance(self, f):
        return 2.0 * jnp.square(self.scale) + jnp.zeros_like(f)

    def cdf(self, y, f):
        tail = 0.5 * jnp.exp(-jnp.abs(y - f) / self.scale)
        return jnp.where(y < f, tail, 1.0 - tail)

    def sample(self, key, f):
        return f + self.scale * jax.random.laplace(key, dtype=f.dtype)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        """E|y - f| is the mean of a folded normal."""
        sd, r = standard_deviation(var), y - mean
        density = jnp.exp(-0.5 * jnp.square(r / sd)) / math.sqrt(2.0 * math.pi)
        folded = r * (1.0 - 2.0 * ndtr(-r / sd)) + 2.0 * sd * density
        return -folded / self.scale - jnp.log(2.0 * self.scale)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        """Two halves of a Gaussian integral, one on each side of the kink."""
        sd, r, slope = standard_deviation(var), y - mean, power / self.scale
        left, right = _exponential_tails(r, sd, slope)
        return jnp.logaddexp(left, right) - power * jnp.log(2.0 * self.scale)

    def predict_mean_var(self, mean, var, quadrature=None):
        return mean, var + self.conditional_variance(mean)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        sd, r = standard_deviation(var), y - mean
        left, right = _exponential_tails(r, sd, 1.0 / self.scale)
        return ndtr(r / sd) + 0.5 * (capped_exp(left) - capped_exp(right))

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        return {"scale": np.sqrt(0.5 * noise_variance(y))}


def _exponential_tails(r: Array, sd: Array, slope: Array) -> tuple[Array, Array]:
    """log E[exp(slope · e) 1(e < 0)] and log E[exp(-slope · e) 1(e > 0)] for e ~ N(r, sd²)."""
    half = 0.5 * jnp.square(slope * sd)
    left = slope * r + half + log_ndtr(-r / sd - slope * sd)
    right = -slope * r + half + log_ndtr(r / sd - slope * sd)
    return left, right
