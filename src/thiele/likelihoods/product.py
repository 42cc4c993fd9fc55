"""Carriers with changing amplitudes: the time-frequency model of the paper's audio task."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import noise_variance
from thiele.likelihoods.conditional import AbstractConditionallyGaussian
from thiele.likelihoods.product_integrals import expected_log_normal, log_expected_normal, tilted_slopes
from thiele.likelihoods.special import softplus
from thiele.parameters import positive


class SubbandProduct(AbstractConditionallyGaussian):
    """y | f ~ N(Σ_d softplus(g_d) z_d, variance),  f = (z_1, ..., z_k, g_1, ..., g_k),  k = `subbands`.

    Paper, appendix D. Exact in the carriers z, quadrature in k dimensions over the amplitudes g.
    """

    subbands: int = eqx.field(static=True, default=3)
    variance: Array = positive(default=0.3)

    def __check_init__(self):
        if not isinstance(self.subbands, int) or self.subbands < 1:
            raise ValueError(f"`subbands` of SubbandProduct must be a positive integer, got {self.subbands!r}")

    @property
    def latents(self) -> int:
        return 2 * self.subbands

    @property
    def linear(self) -> int:
        return self.subbands

    def loadings(self, g):
        return softplus(g)

    def noise(self, g):
        return self.variance + jnp.zeros_like(g[0])

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return expected_log_normal(quadrature, y, mean, var, self.variance)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        return log_expected_normal(quadrature, y, mean, var, self.variance, power)

    def tilted_moments(self, y, mean, var, power, quadrature=None):
        value = self.log_expected_power(y, mean, var, power, quadrature)
        return value, *tilted_slopes(quadrature, y, mean, var, self.variance, power)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        return {"variance": noise_variance(y)}
