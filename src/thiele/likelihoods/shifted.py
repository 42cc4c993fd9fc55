"""A likelihood seen from a latent function that has had its mean taken out."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from thiele.likelihoods.base import AbstractLikelihood
from thiele.likelihoods.by_output import ByOutput


class Shifted(AbstractLikelihood):
    """p(y | g + offset): rules and energies work on g, whose prior mean is zero.

    Where data are about one of `outputs`, `at(output=...)` chooses the offset, if there is one for each.
    """

    likelihood: AbstractLikelihood
    offset: Float[Array, ""] | Float[Array, " l"]
    outputs: int = eqx.field(static=True, default=0)

    @property
    def latents(self) -> int:
        return self.likelihood.latents

    @property
    def conjugate(self) -> bool:
        return self.likelihood.conjugate

    @property
    def log_concave(self) -> bool:
        return self.likelihood.log_concave

    def at(self, **values):
        offset = self.offset
        if self.outputs and "output" in values:
            index = jnp.asarray(values["output"] if isinstance(self.likelihood, ByOutput) else values.pop("output"))
            offset = offset if offset.ndim == 0 else offset[index.astype(jnp.int32)]
        return Shifted(self.likelihood.at(**values), offset)

    def log_prob(self, y, f):
        return self.likelihood.log_prob(y, f + self.offset)

    def conditional_mean(self, f):
        return self.likelihood.conditional_mean(f + self.offset)

    def conditional_variance(self, f):
        return self.likelihood.conditional_variance(f + self.offset)

    def cdf(self, y, f):
        return self.likelihood.cdf(y, f + self.offset)

    def sample(self, key, f):
        return self.likelihood.sample(key, f + self.offset)

    def statistic(self, y):
        return self.likelihood.statistic(y)

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return self.likelihood.expected_log_prob(y, mean + self.offset, var, quadrature)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        return self.likelihood.log_expected_power(y, mean + self.offset, var, power, quadrature)

    def tilted_moments(self, y, mean, var, power, quadrature=None):
        return self.likelihood.tilted_moments(y, mean + self.offset, var, power, quadrature)

    def predict_mean_var(self, mean, var, quadrature=None):
        return self.likelihood.predict_mean_var(mean + self.offset, var, quadrature)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        return self.likelihood.predictive_cdf(y, mean + self.offset, var, quadrature)

    def predictive_quantile(self, p, mean, var, quadrature=None):
        return self.likelihood.predictive_quantile(p, mean + self.offset, var, quadrature)

    def check(self, y: ArrayLike) -> None:
        self.likelihood.check(y)
