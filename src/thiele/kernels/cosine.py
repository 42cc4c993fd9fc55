r"""Waves of one frequency: undamped (Cosine) and slowly changing (Subband)."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel, lag
from thiele.kernels.matern import half_integer, matern_block, matern_correlation
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, Rotation, product


class Cosine(AbstractScalarKernel):
    """k(τ) = σ² cos(ωτ): a sinusoid of angular frequency ω with random amplitude and phase."""

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    frequency: Array = positive(default=1.0, unit=Unit.RATE)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.variance * jnp.cos(self.frequency * lag(t, s))

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return (Rotation(self.variance[None], self.frequency[None]),)


class Subband(AbstractScalarKernel):
    """k(τ) = σ² cos(ωτ) Matérn(τ; ℓ, order): a band of frequencies around ω, as wide as 1/ℓ."""

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    lengthscale: Array = positive(default=1.0, unit=Unit.TIME)
    frequency: Array = positive(default=1.0, unit=Unit.RATE)
    order: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        half_integer(self.order, "Subband")

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        p, tau = half_integer(self.order, "Subband"), lag(t, s)
        return self.variance * jnp.cos(self.frequency * tau) * matern_correlation(p, self.lengthscale, tau)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        carrier = Rotation(jnp.ones(1), self.frequency[None])
        envelope = matern_block(half_integer(self.order, "Subband"), self.variance, self.lengthscale)
        return product((carrier,), (envelope,))
