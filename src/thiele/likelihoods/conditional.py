r"""Likelihoods that are linear and Gaussian in some latents once the others are known.

    y | z, g ~ N(a(g)' z, s(g)),    f = (z, g)

Given g, everything about z is in closed form, so only the g part is integrated numerically. With the Cholesky factor
of the covariance taken with g first, g = m_g + C_gg x and z | x ~ N(m_z + C_zg x, C_zz C_zz'), x ~ N(0, I): no inverse,
and nothing breaks when the covariance is singular.

`quadrature` is applied in as many dimensions as there are g; `None` takes the default of that dimension. The plain
integral over all latents is `thiele.quadrature.expectation(lambda f: likelihood.log_prob(y, f), mean, var, rule)`.
"""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from thiele.likelihoods.base import AbstractContinuous
from thiele.likelihoods.quantiles import REAL_LINE, Interval
from thiele.likelihoods.special import expected_normal_log_density, log_expected_normal_power, normal_log_density
from thiele.quadrature import (
    AbstractQuadrature,
    cholesky_columns,
    log_weighted_sum,
    standard_nodes,
    weighted_sum,
)


class Conditionals(NamedTuple):
    """y | g ~ N(mean, noise + spread) at each quadrature node, where `spread` is what z | g contributes."""

    mean: Float[Array, " n"]
    noise: Float[Array, " n"]
    spread: Float[Array, " n"]
    weights: np.ndarray


class AbstractConditionallyGaussian(AbstractContinuous):
    """y | f ~ N(a(g)' z, s(g)) with f = (z, g), z the first `linear` latents."""

    support: ClassVar[Interval] = REAL_LINE

    @property
    @abc.abstractmethod
    def linear(self) -> int:
        """How many latents, the first ones, enter linearly."""

    @abc.abstractmethod
    def loadings(self, g: Array) -> Array:
        """a(g), one number for each linear latent; trailing axes of g are several values of it."""

    @abc.abstractmethod
    def noise(self, g: Array) -> Array:
        """s(g), the variance of y given all latents; trailing axes as in `loadings`."""

    def log_prob(self, y, f):
        return normal_log_density(y - self.conditional_mean(f), self.conditional_variance(f))

    def conditional_mean(self, f):
        return jnp.dot(self.loadings(f[self.linear :]), f[: self.linear])

    def conditional_variance(self, f):
        return self.noise(f[self.linear :])

    def cdf(self, y, f):
        return ndtr((y - self.conditional_mean(f)) / jnp.sqrt(self.conditional_variance(f)))

    def sample(self, key, f):
        return self.conditional_mean(f) + jnp.sqrt(self.conditional_variance(f)) * jax.random.normal(key, dtype=f.dtype)

    def _given_nonlinear(self, mean: Array, var: Array, quadrature: AbstractQuadrature | None) -> Conditionals:
        rest = self.latents - self.linear
        # (g, z). A permutation by indices would be a scatter in derivatives.
        mean, columns = jnp.roll(mean, rest), cholesky_columns(jnp.roll(var, (rest, rest), (0, 1)))
        nodes, weights = standard_nodes(rest, var.dtype, quadrature)
        # Each latent at all nodes, and never a matrix product: sums of so few terms fuse into one loop over the data.
        f = [
            mean[i] + sum(columns[j][i - j] * nodes[:, j] for j in range(min(i + 1, rest))) for i in range(self.latents)
        ]
        g = jnp.stack(f[:rest])
        a = self.loadings(g)
        seen = sum(a[i] * f[rest + i] for i in range(self.linear))
        of_noise = [
            sum(a[i] * columns[j][rest + i - j] for i in range(j - rest, self.linear))
            for j in range(rest, self.latents)
        ]
        return Conditionals(seen, self.noise(g), sum(jnp.square(x) for x in of_noise), weights)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        q = self._given_nonlinear(mean, var, quadrature)
        return weighted_sum(expected_normal_log_density(y - q.mean, q.noise, q.spread), q.weights)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        q = self._given_nonlinear(mean, var, quadrature)
        return log_weighted_sum(log_expected_normal_power(y - q.mean, q.noise, q.spread, power), q.weights)

    def predict_mean_var(self, mean, var, quadrature=None):
        q = self._given_nonlinear(mean, var, quadrature)
        first = weighted_sum(q.mean, q.weights)
        return first, weighted_sum(q.noise + q.spread + jnp.square(q.mean - first), q.weights)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        q = self._given_nonlinear(mean, var, quadrature)
        return weighted_sum(ndtr((y - q.mean) / jnp.sqrt(q.noise + q.spread)), q.weights)
