"""Noise whose size changes along the series."""

from __future__ import annotations

import math

import jax.numpy as jnp

from thiele.likelihoods.conditional import AbstractConditionallyGaussian
from thiele.likelihoods.special import log_cap, softplus


class HeteroscedasticGaussian(AbstractConditionallyGaussian):
    """y | f ~ N(f_1, softplus(f_2)²), softplus(x) = log(1 + exp(x)) (paper, appendix D).

    Exact in f_1, one-dimensional quadrature over f_2. The noise scale stays above exp(-95) in double precision.
    The mean of y says nothing of f_2, so the linearising rules leave the noise process at its prior.
    """

    @property
    def latents(self) -> int:
        return 2

    @property
    def linear(self) -> int:
        return 1

    def loadings(self, g):
        return jnp.ones_like(g)

    def noise(self, g):
        # The cube of this variance appears in second derivatives and must not underflow.
        return jnp.square(jnp.maximum(softplus(g[0]), math.exp(-0.3 * log_cap(g.dtype))))
