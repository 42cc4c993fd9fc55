r"""A ladder of coupled oscillators with one damped end: any all-pole spectral density, in well-scaled coordinates.

dx_k = (a_k x_{k+1} - a_{k-1} x_{k-1}) dt,  the last one also -c x dt + √(2c) σ dw,  f = x₀,  P∞ = σ² I.

The drift is skew-symmetric but for the damping (Schwarz form), so the stationary covariance is a multiple of the unit
matrix whatever the couplings a and the damping c > 0, and the process is always stable. Noise enters at one end and f
is read at the other: small steps keep the structure of a chain of integrators.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.sde.block import AbstractBlock
from thiele.sde.linear import discretise
from thiele.tables import Table, Times, along, as_table, diagonal, scale

FORGOTTEN = 40.0  # decay times of the slowest mode after which nothing of the state is left in double precision


class Ladder(AbstractBlock):
    """One ladder; `couplings` and `damping` are in units of 1/`timescale`."""

    variance: Float[Array, ""]
    timescale: Float[Array, ""]
    couplings: tuple[float, ...] = eqx.field(static=True)
    damping: float = eqx.field(static=True)

    count: ClassVar[int] = 1
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = True
    stationary: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        return len(self.couplings) + 1

    def drift(self) -> Float[Array, "1 dim dim"]:
        return (jnp.asarray(ladder_drift(self.couplings, self.damping)) / self.timescale)[None]

    def diffusion(self) -> Float[Array, "1 dim dim"]:
        return (self.variance / self.timescale * jnp.asarray(self._unit_diffusion()))[None]

    def covariance(self, t: Times) -> Table:
        return diagonal([self.variance[None]] * self.dim, t)

    def functions(self, start: Times, step: Times) -> tuple[Array, Array]:
        drift = ladder_drift(self.couplings, self.damping)
        horizon = FORGOTTEN / np.min(-np.linalg.eigvals(drift).real)
        doublings = math.ceil(math.log2(2.0 * np.linalg.norm(drift, 1) * horizon))
        return discretise(drift, self._unit_diffusion(), step / self.timescale, doublings)

    def assemble(self, start: Times, step: Times, functions: tuple[Array, Array]) -> tuple[Table, Table]:
        A, Q = functions
        return as_table(A), scale(along(self.variance, step), as_table(Q))

    def _unit_diffusion(self) -> np.ndarray:
        return np.diag([0.0] * len(self.couplings) + [2.0 * self.damping])


def ladder_drift(couplings: tuple[float, ...], damping: float) -> np.ndarray:
    """F at unit timescale: skew-symmetric couplings, and the damping in the last entry."""
    above = np.diag(couplings, 1)
    return above - above.T - np.diag([0.0] * len(couplings) + [damping])
