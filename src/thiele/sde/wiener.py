r"""Wiener processes and their integrals, on both sides of an origin.

x(origin) ~ N(0, P₀); to the right an ordinary (integrated) Wiener process, to the left its mirror image, the two sides
independent given the state at the origin.

Left of the origin a step forward in time is a step back towards it, from distance u to v = u - δ. With P(v) the
covariance at distance v and W = A(-δ) Q(δ) A(-δ)' (the noise seen from the near end),

    gain = P (P + W)⁻¹ A(-δ),  noise = (P⁻¹ + W⁻¹)⁻¹ = P (P + W)⁻¹ W.

For 2 x 2 matrices (P⁻¹ + W⁻¹)⁻¹ = (|W| P + |P| W)/|P + W|: a positive sum, which needs no inverse of P or of W.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.sde.block import AbstractBlock
from thiele.tables import Table, Times, add, congruence, matmul, table


class RandomWalk(AbstractBlock):
    """df = dw with E[dw²] = q dt."""

    variance: Float[Array, ""]
    initial_variance: Float[Array, ""]
    origin: float = eqx.field(static=True)

    count: ClassVar[int] = 1
    dim: ClassVar[int] = 1
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = True
    stationary: ClassVar[bool] = False

    def drift(self) -> Float[Array, "1 1 1"]:
        return jnp.zeros((1, 1, 1))

    def diffusion(self) -> Float[Array, "1 1 1"]:
        return jnp.reshape(self.variance, (1, 1, 1))

    def covariance(self, t: Times) -> Table:
        return table([[(self.initial_variance + self.variance * jnp.abs(t - self.origin))[None]]])

    def functions(self, start: Times, step: Times) -> tuple[()]:
        return ()

    def assemble(self, start: Times, step: Times, functions: tuple[()]) -> tuple[Table, Table]:
        left, right, distance = _sides(start - self.origin, step)
        P, W = self.initial_variance + self.variance * distance, self.variance * left
        A = P / (P + W)
        return table([[A[None]]]), table([[(A * W + self.variance * right)[None]]])


class IntegratedRandomWalk(AbstractBlock):
    """df = v dt,  dv = dw with E[dw²] = q dt: the state is (f, v)."""

    variance: Float[Array, ""]
    initial_variance: Float[Array, ""]
    initial_slope_variance: Float[Array, ""]
    origin: float = eqx.field(static=True)

    count: ClassVar[int] = 1
    dim: ClassVar[int] = 2
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = True
    stationary: ClassVar[bool] = False

    def drift(self) -> Float[Array, "1 2 2"]:
        return jnp.eye(2, k=1)[None]

    def diffusion(self) -> Float[Array, "1 2 2"]:
        return self.variance * jnp.diag(jnp.array([0.0, 1.0]))[None]

    def covariance(self, t: Times) -> Table:
        u = t - self.origin
        level, cross, slope = self._at_distance(jnp.abs(u))
        mirrored = jnp.where(u < 0.0, -cross, cross)
        return _symmetric(level, mirrored, slope)

    def functions(self, start: Times, step: Times) -> tuple[Table, Table]:
        left, right, distance = _sides(start - self.origin, step)
        inwards, inwards_noise = self._towards_origin(distance, left)
        ahead = _shift(right)
        noise = _symmetric(*self._noise(right))
        return matmul(ahead, inwards), add(congruence(ahead, inwards_noise), noise)

    def assemble(self, start: Times, step: Times, functions: tuple[Table, Table]) -> tuple[Table, Table]:
        return functions

    def _at_distance(self, u: Times) -> tuple[Array, Array, Array]:
        """The entries (0, 0), (0, 1) and (1, 1) of the covariance at distance `u` to the right of the origin."""
        level, cross, slope = self._noise(u)
        tilt = self.initial_slope_variance
        return self.initial_variance + tilt * u * u + level, tilt * u + cross, tilt + slope

    def _noise(self, step: Times) -> tuple[Array, Array, Array]:
        return self.variance * step**3 / 3.0, self.variance * step**2 / 2.0, self.variance * step

    def _towards_origin(self, distance: Times, left: Times) -> tuple[Table, Table]:
        """The step that ends at `distance` left of the origin and has length `left`."""
        q, v = self.variance, distance
        P00, P01, P11 = self._at_distance(v)
        W00, W01, W11 = self._noise(left)  # seen from the near end the sign of W01 is negative
        # The determinants are expanded so that only positive terms remain.
        det_W = q * q * left**4 / 12.0
        det_P = self.initial_variance * (self.initial_slope_variance + q * v)
        det_P = det_P + q * v**3 * (self.initial_slope_variance / 3.0 + q * v / 12.0)
        det_sum = det_P + det_W + P00 * W11 + P11 * W00 + 2.0 * P01 * W01
        w, p = det_W / det_sum, det_P / det_sum
        # P (P + W)^-1 = (|P| I + P adj W)/|P + W|
        kept = table(
            [
                [(p + (P00 * W11 + P01 * W01) / det_sum)[None], ((P00 * W01 + P01 * W00) / det_sum)[None]],
                [((P01 * W11 + P11 * W01) / det_sum)[None], (p + (P01 * W01 + P11 * W00) / det_sum)[None]],
            ]
        )
        gain = matmul(kept, _shift(-left))
        # The mirror flips the sign of the velocity, in the state that the step leaves and in the one it reaches.
        mirror = table([[jnp.ones_like(left)[None], None], [None, -jnp.ones_like(left)[None]]])
        mirrored = matmul(matmul(mirror, gain), mirror)
        return mirrored, _symmetric(w * P00 + p * W00, p * W01 - w * P01, w * P11 + p * W11)


def _sides(u: Times, step: Times) -> tuple[Array, Array, Array]:
    """How much of a step from `u` lies left and right of 0, and how far left of 0 it ends.

    A step on one side keeps its length to the last digit, which the difference of its ends would not.
    """
    right = jnp.clip(u + step, 0.0, step)
    return step - right, right, jnp.maximum(-(u + step), 0.0)


def _shift(step: Times) -> Table:
    """exp(F step) = [[1, step], [0, 1]]."""
    one = jnp.ones_like(step)[None]
    return table([[one, step[None]], [None, one]])


def _symmetric(first: Array, cross: Array, second: Array) -> Table:
    return table([[first[None], cross[None]], [cross[None], second[None]]])
