r"""A random constant."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, Level


class Constant(AbstractScalarKernel):
    """k(τ) = σ²: one unknown level, the same at all times."""

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return jnp.broadcast_to(self.variance, jnp.shape(t))

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return (Level(self.variance[None]),)
