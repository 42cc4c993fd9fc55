r"""Processes without noise: random constants and undamped rotations."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.sde.block import AbstractBlock
from thiele.tables import Table, Times, along, as_array, diagonal, empty, table


class Level(AbstractBlock):
    """dx = 0,  x ~ N(0, σ²): one random constant for each entry of `variance`."""

    variance: Float[Array, " count"]

    dim: ClassVar[int] = 1
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = False
    stationary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        return self.variance.shape[0]

    def drift(self) -> Float[Array, "count 1 1"]:
        return jnp.zeros((self.count, 1, 1))

    def diffusion(self) -> Float[Array, "count 1 1"]:
        return jnp.zeros((self.count, 1, 1))

    def covariance(self, t: Times) -> Table:
        return diagonal([self.variance], t)

    def functions(self, start: Times, step: Times) -> tuple[()]:
        return ()

    def assemble(self, start: Times, step: Times, functions: tuple[()]) -> tuple[Table, Table]:
        return diagonal([jnp.ones(self.count)], step), empty(self.count, 1, step)


class Rotation(AbstractBlock):
    """dx = [[0, -ω], [ω, 0]] x dt,  x ~ N(0, σ² I): one for each entry of `variance` and `frequency` (ω)."""

    variance: Float[Array, " count"]
    frequency: Float[Array, " count"]

    dim: ClassVar[int] = 2
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = False
    stationary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        return self.variance.shape[0]

    def drift(self) -> Float[Array, "count 2 2"]:
        return as_array(table([[None, -self.frequency], [self.frequency, None]]))

    def diffusion(self) -> Float[Array, "count 2 2"]:
        return jnp.zeros((self.count, 2, 2))

    def covariance(self, t: Times) -> Table:
        return diagonal([self.variance, self.variance], t)

    def functions(self, start: Times, step: Times) -> tuple[Array, Array]:
        angle = along(self.frequency, step) * step
        return jnp.cos(angle), jnp.sin(angle)

    def assemble(self, start: Times, step: Times, functions: tuple[Array, Array]) -> tuple[Table, Table]:
        cos, sin = functions
        return table([[cos, -sin], [sin, cos]]), empty(self.count, 2, step)
