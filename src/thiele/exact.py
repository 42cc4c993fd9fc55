r"""Gaussian noise: the posterior is exact, and each observation is its own site.

exp(−(y − f)²/2σ²) is information with precision 1/σ², centred at y: no approximation and no iteration.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.chain import Chain, Information, log_normaliser
from thiele.kernels import AbstractKernel
from thiele.likelihoods import Gaussian
from thiele.series import Series
from thiele.steps import prior_chain


def chain_and_information(
    kernel: AbstractKernel, likelihood: Gaussian, mean: Float[Array, ""], series: Series
) -> tuple[Chain, Information, Float[Array, ""]]:
    """The prior chain, the information in the data, and the log constant that the latter leaves out."""
    sde = kernel.sde()
    precision = jnp.where(series.observed, 1.0 / likelihood.variance, 0.0)
    info = Information(precision[None, None], None, (series.y - mean)[None], np.asarray(sde.H))
    constant = -0.5 * jnp.sum(series.observed) * jnp.log(2.0 * jnp.pi * likelihood.variance)
    return prior_chain(sde, jnp.asarray(series.time), series.repeated), info, constant


def log_likelihood(
    kernel: AbstractKernel, likelihood: Gaussian, mean: Float[Array, ""], series: Series
) -> Float[Array, ""]:
    """log p(y), exactly, in time linear in the data."""
    chain, info, constant = chain_and_information(kernel, likelihood, mean, series)
    return log_normaliser(chain, info) + constant
