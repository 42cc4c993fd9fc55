"""Unordered classes, one latent function for each."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from thiele.likelihoods.base import AbstractLikelihood, refuse
from thiele.quadrature import expectation


class Categorical(AbstractLikelihood):
    """P(y = k | f) = exp(f_k) / Σ_j exp(f_j), y in {0, ..., classes - 1}.

    The linearising rules see the indicator vector of the class (`statistic`), with mean p and covariance
    diag(p) - p p'. That matrix is singular along (1, ..., 1), a direction in which the residual and the slope of the
    mean are zero too.
    """

    classes: int = eqx.field(static=True)

    def __check_init__(self):
        if not isinstance(self.classes, int) or self.classes < 2:
            raise ValueError(f"`classes` of Categorical must be an integer from 2, got {self.classes!r}")

    @property
    def latents(self) -> int:
        return self.classes

    def log_prob(self, y, f):
        return jax.nn.log_softmax(f)[jnp.asarray(y).astype(int)]

    def conditional_mean(self, f):
        return jax.nn.softmax(f)

    def conditional_variance(self, f):
        p = jax.nn.softmax(f)
        return jnp.diag(p) - jnp.outer(p, p)

    def statistic(self, y):
        return jax.nn.one_hot(jnp.asarray(y).astype(int), self.classes)

    def cdf(self, y, f):
        raise ValueError("the classes of Categorical have no order, so no distribution function; see Ordinal")

    def predictive_quantile(self, p, mean, var, quadrature=None):
        raise ValueError("the classes of Categorical have no order, so no quantiles; see Ordinal")

    def sample(self, key, f):
        return jax.random.categorical(key, f).astype(f.dtype)

    def predict_mean_var(self, mean, var, quadrature=None):
        """Class probabilities and the covariance of the indicators, diag(p) - p p' in the marginal p as well."""
        p = expectation(jax.nn.softmax, mean, var, quadrature)
        return p, jnp.diag(p) - jnp.outer(p, p)

    def check(self, y: ArrayLike) -> None:
        labels = f"an integer from 0 to {self.classes - 1}"
        refuse(y, lambda v: (v >= 0) & (v < self.classes) & (v == v.round()), labels, "Categorical")
