"""Ordered categories: grades, severities, ratings."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractInteger
from thiele.likelihoods.links import PROBABILITY_LINKS, choose
from thiele.parameters import increasing
from thiele.quadrature import log_expectation


class Ordinal(AbstractInteger):
    """P(y ≤ k | f) = Φ(c_k - f) for k = 0..K-2, y in {0, ..., K-1}; the K - 1 `cutpoints` c increase.

    A larger f makes larger categories likelier. The cut points and a constant shift of f say the same thing: hold one
    of the cut points, or leave the latent mean at zero.
    """

    cutpoints: Array = increasing()
    link: str = eqx.field(static=True, default="logit")

    def __check_init__(self):
        choose(PROBABILITY_LINKS, self.link, "Ordinal")

    @property
    def largest(self) -> int:
        return self.cutpoints.shape[-1]

    def _log_prob(self, y: Array, f: Array, scale: ArrayLike) -> Array:
        """log P(y) where the noise of the latent variable is `scale` times the link's own."""
        link = PROBABILITY_LINKS[self.link]
        k = jnp.asarray(y).astype(int)
        distances = (self.cutpoints - f) / scale
        first, last = k <= 0, k >= self.largest
        upper = distances[jnp.clip(k, 0, self.largest - 1)]
        lower = distances[jnp.clip(k - 1, 0, self.largest - 1)]
        ends = jnp.where(first, link.log_cdf(upper), link.log_cdf(-lower))
        # At either end one of the two is missing; a stand-in keeps the unused branch, and its gradient, finite.
        outside = first | last
        return jnp.where(outside, ends, link.log_between(jnp.where(outside, lower + 1.0, upper), lower))

    def log_prob(self, y, f):
        return self._log_prob(y, f, 1.0)

    def probabilities(self, f: Array) -> Array:
        """P(y = k | f) for k = 0..K-1."""
        return jnp.exp(jax.vmap(self.log_prob, (0, None))(jnp.arange(self.largest + 1), f))

    def conditional_mean(self, f):
        return jnp.sum(jnp.arange(self.largest + 1) * self.probabilities(f))

    def conditional_variance(self, f):
        labels, chances = jnp.arange(self.largest + 1), self.probabilities(f)
        return jnp.sum(jnp.square(labels - jnp.sum(labels * chances)) * chances)

    def cdf(self, y, f):
        k = jnp.floor(y).astype(int)
        below = PROBABILITY_LINKS[self.link].cdf(self.cutpoints[jnp.clip(k, 0, self.largest - 1)] - f)
        return jnp.where(k < 0, 0.0, jnp.where(k >= self.largest, 1.0, below))

    def sample(self, key, f):
        noise = PROBABILITY_LINKS[self.link].quantile(jax.random.uniform(key, dtype=f.dtype))
        return jnp.sum(f + noise > self.cutpoints).astype(f.dtype)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        link = PROBABILITY_LINKS[self.link]
        if link.marginal_scale is not None and isinstance(power, (int, float)) and power == 1:
            return self._log_prob(y, mean, link.marginal_scale(var))
        return log_expectation(lambda f: power * self.log_prob(y, f), mean, var, quadrature, one_hill=self.log_concave)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        values = np.asarray(y)[~np.isnan(y)]
        # Half a count in every category keeps the cut points finite and apart where a category was never seen.
        counts = 0.5 + np.array([np.sum(values == k) for k in range(self.largest + 1)])
        shares = np.cumsum(counts)[:-1] / counts.sum()
        return {"cutpoints": np.asarray(PROBABILITY_LINKS[self.link].quantile(shares))}
