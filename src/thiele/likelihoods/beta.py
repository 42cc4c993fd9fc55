"""Proportions strictly between zero and one."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractContinuous
from thiele.likelihoods.quantiles import UNIT_INTERVAL, Interval
from thiele.likelihoods.special import log_sigmoid
from thiele.parameters import positive


class Beta(AbstractContinuous):
    """p(y | f) = y^(a-1) (1-y)^(b-1) / B(a, b),  a = precision · σ(f),  b = precision · σ(-f).

    E[y | f] = σ(f) and Var[y | f] = σ(f) σ(-f) / (1 + precision).
    """

    precision: Array = positive(default=10.0)
    support: ClassVar[Interval] = UNIT_INTERVAL

    def _counts(self, f: Array) -> tuple[Array, Array]:
        return self.precision * jax.nn.sigmoid(f), self.precision * jax.nn.sigmoid(-f)

    def log_prob(self, y, f):
        a, b = self._counts(f)
        # log Γ(a) = log Γ(1 + a) - log a: the first is tame at a = 0, the second is linear in f there.
        log_a = jnp.log(self.precision) + log_sigmoid(f)
        log_b = jnp.log(self.precision) + log_sigmoid(-f)
        constant = gammaln(self.precision) - gammaln(1.0 + a) - gammaln(1.0 + b) + log_a + log_b
        return constant + (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y)

    def conditional_mean(self, f):
        return jax.nn.sigmoid(f)

    def conditional_variance(self, f):
        return jax.nn.sigmoid(f) * jax.nn.sigmoid(-f) / (1.0 + self.precision)

    def cdf(self, y, f):
        tiny = jnp.finfo(jnp.result_type(y, f)).tiny
        a, b = self._counts(f)
        return betainc(jnp.maximum(a, tiny), jnp.maximum(b, tiny), y)

    def sample(self, key, f):
        a, b = self._counts(f)
        return jax.random.beta(key, a, b, dtype=f.dtype)

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        m, v = float(np.nanmean(y)), float(np.nanvar(y))
        return {"precision": np.clip(m * (1.0 - m) / max(v, 1e-6) - 1.0, 1.0, 1000.0)}
