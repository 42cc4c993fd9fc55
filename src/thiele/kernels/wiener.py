r"""Random walks in continuous time: no mean to return to."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, IntegratedRandomWalk, RandomWalk


def _origin(value: Any) -> float:
    try:
        origin = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"`origin` must be one number on the axis of time, got {value!r}") from None
    if not math.isfinite(origin):
        raise ValueError(f"`origin` must be finite, got {value!r}")
    return origin


class Wiener(AbstractScalarKernel):
    r"""k(t, s) = v₀ + σ² min(|t|, |s|) on one side of the origin, v₀ across it.

    A random walk whose increments have variance σ² per unit of time, in both directions from `origin`, where its own
    variance is v₀ = `initial_variance`. As v₀ grows it tends to the intrinsic random walk of order 1 (INLA's `rw1`).
    """

    variance: Array = positive(default=1.0)
    initial_variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    origin: float = eqx.field(static=True, default=0.0, converter=_origin)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        near, _ = _shared_path(t - self.origin, s - self.origin)
        return self.initial_variance + self.variance * near

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return (RandomWalk(self.variance, self.initial_variance, self.origin),)


class IntegratedWiener(AbstractScalarKernel):
    r"""k(t, s) = v₀ + v₁ t s + σ² u² (3w - u)/6, with u = min(|t|, |s|) and w = max on one side, u = 0 across.

    A smooth trend whose slope is a random walk, in both directions from `origin`, where level and slope have variances
    v₀ and v₁. As these grow it tends to the intrinsic random walk of order 2 (INLA's `rw2`, a cubic smoothing spline).
    """

    variance: Array = positive(default=1.0)
    initial_variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    initial_slope_variance: Array = positive(default=1.0)
    origin: float = eqx.field(static=True, default=0.0, converter=_origin)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        t, s = t - self.origin, s - self.origin
        near, far = _shared_path(t, s)
        line = self.initial_variance + self.initial_slope_variance * (t * s)
        return line + self.variance * near * near * (3.0 * far - near) / 6.0

    def blocks(self) -> tuple[AbstractBlock, ...]:
        walk = IntegratedRandomWalk(self.variance, self.initial_variance, self.initial_slope_variance, self.origin)
        return (walk,)


def _shared_path(t: Float[Array, "*times"], s: Float[Array, "*times"]) -> tuple[Array, Array]:
    """The smaller and the larger distance from 0; the smaller is 0 where t and s lie on different sides."""
    near, far = jnp.minimum(jnp.abs(t), jnp.abs(s)), jnp.maximum(jnp.abs(t), jnp.abs(s))
    return jnp.where(t * s > 0.0, near, 0.0), far
