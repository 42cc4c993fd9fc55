r"""Matérn processes of half-integer order as a cascade of equal low-pass filters.

dx₀ = -λ x₀ dt + dw,  dx_k = λ (x_{k-1} - x_k) dt,  f = x_p,  λ = √(2p+1)/ℓ.

In this basis every entry of A and of Q is one positive term. The usual basis of derivatives needs differences that
lose all digits for small steps, where the noise of a Matérn-7/2 is of order step⁷.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.sde.block import AbstractBlock
from thiele.sde.incomplete_gamma import lower_gammas
from thiele.tables import Table, Times, along, table

# Beyond this many decay times the transition is below 1e-150 of the state. Stopping there keeps powers finite.
LONGEST = 400.0


class Cascade(AbstractBlock):
    """Matérn processes of order p + 1/2, one for each entry of `variance` and `rate` (λ)."""

    variance: Float[Array, " count"]
    rate: Float[Array, " count"]
    p: int = eqx.field(static=True)

    driven: ClassVar[bool] = True
    stationary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        return self.variance.shape[0]

    @property
    def dim(self) -> int:
        return self.p + 1

    @property
    def observed(self) -> int:
        return self.p

    def drift(self) -> Float[Array, "count dim dim"]:
        return self.rate[:, None, None] * (jnp.eye(self.dim, k=-1) - jnp.eye(self.dim))

    def diffusion(self) -> Float[Array, "count dim dim"]:
        entry = jnp.zeros((self.dim, self.dim)).at[0, 0].set(1.0)
        return (self._power() * self.rate)[:, None, None] * entry

    def covariance(self, t: Times) -> Table:
        shape = (self.count, *jnp.shape(t))
        return self._from_moments([math.factorial(k) * jnp.ones(shape) for k in range(2 * self.p + 1)])

    def functions(self, start: Times, step: Times) -> tuple[list[Array], list[Array]]:
        elapsed = jnp.minimum(along(self.rate, step) * step, LONGEST)
        decay = jnp.exp(-elapsed)
        poisson = [decay]  # e^{-a} a^k / k!
        for k in range(1, self.dim):
            poisson.append(poisson[-1] * elapsed / k)
        return poisson, lower_gammas(2 * self.p + 1, 2 * elapsed)

    def assemble(self, start: Times, step: Times, functions: tuple[list[Array], list[Array]]) -> tuple[Table, Table]:
        poisson, gammas = functions
        A = table([[poisson[i - j] if i >= j else None for j in range(self.dim)] for i in range(self.dim)])
        return A, self._from_moments(gammas)

    def _power(self) -> Float[Array, " count"]:
        """The noise power in units of λ that gives the last filter the stated variance."""
        return self.variance * (math.factorial(self.p) ** 2 * 2.0 ** (2 * self.p + 1) / math.factorial(2 * self.p))

    def _from_moments(self, moments: list[Float[Array, "count *times"]]) -> Table:
        """The covariances c/(i! j! 2^{i+j+1}) m_{i+j}, with m_k the integral of x^k e^{-x} over twice the step."""
        terms = [along(self._power(), moment[0]) * moment / 2.0 ** (k + 1) for k, moment in enumerate(moments)]
        factorial = math.factorial
        return table([[terms[i + j] / (factorial(i) * factorial(j)) for j in range(self.dim)] for i in range(self.dim)])
