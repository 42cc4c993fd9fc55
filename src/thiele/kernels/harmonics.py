r"""Fourier coefficients of the periodic kernel, and how many of them to keep.

exp(-2 sin²(θ/2)/ℓ²) = Σ_j w_j cos(jθ),  w_0 = e^{-x} I_0(x),  w_j = 2 e^{-x} I_j(x),  x = 1/ℓ².
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from thiele.parameters import Default, param

TOLERANCE = 1e-6  # of the variance, at the lengthscale given
TOLERANCE_AT_HALF = 1e-3  # of the variance, if learning should halve the lengthscale
MOST = 64


def scaled_bessel(orders: int, x: Float[Array, ""]) -> Float[Array, " orders_and_zero"]:
    """e^{-x} I_j(x) for j = 0 … orders and x > 0.

    Miller's recurrence run on ratios, r_j = I_j/I_{j-1} = x/(2j + x r_{j+1}), from far above downwards: all terms are
    positive, nothing overflows, and small and large x are equally accurate.
    """
    top = orders + 128
    # An upper bound of the first ratio (Amos, 1974), so close that 128 steps down have forgotten the difference.
    start = x / (top + 0.5 + jnp.sqrt((top + 1.5) ** 2 + x * x))

    def down(ratio: Array, j: Array) -> tuple[Array, Array]:
        ratio = x / (2.0 * j + x * ratio)
        return ratio, ratio

    _, ratios = jax.lax.scan(down, start, jnp.arange(top, 0, -1, dtype=x.dtype))
    return _scaled_bessel_zero(x) * jnp.concatenate([jnp.ones(1), jnp.cumprod(ratios[::-1][:orders])])


def harmonic_weights(harmonics: int, lengthscale: Float[Array, ""]) -> Float[Array, " harmonics_and_zero"]:
    """w_0 … w_harmonics; they are positive and all of them together add up to 1."""
    doubled = np.array([1.0] + [2.0] * harmonics)
    return doubled * scaled_bessel(harmonics, 1.0 / lengthscale**2)


def _scaled_bessel_zero(x: Float[Array, ""]) -> Float[Array, ""]:
    """e^{-x} I_0(x) = (1/2π) ∫ exp(x (cos θ - 1)) dθ: the trapezium rule is exact up to I_512.

    The function of that name in JAX is expanded when the caller compiles, outside of the scope of double precision.
    """
    nodes = 2.0 * np.pi * np.arange(512) / 512
    return jnp.mean(jnp.exp(x * jnp.asarray(np.cos(nodes) - 1.0)))


def harmonic_sum(weights: Float[Array, " harmonics_and_zero"], angle: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """Σ_j w_j cos(jθ)."""
    return sum((w * jnp.cos(j * angle) for j, w in enumerate(weights[1:], start=1)), start=weights[0])


def resolve_harmonics(harmonics: Any, lengthscale: Any, owner: str) -> int:
    """The number of harmonics that a user stated or, for None, one that the lengthscale given calls for."""
    if harmonics is not None:
        if isinstance(harmonics, bool) or not isinstance(harmonics, (int, np.integer)) or harmonics < 1:
            raise ValueError(f"`harmonics` of {owner} must be a positive integer or None, got {harmonics!r}")
        return int(harmonics)
    value = lengthscale.value if isinstance(lengthscale, (param, Default)) else lengthscale
    if isinstance(value, Tracer):
        raise ValueError(
            f"`harmonics` of {owner} must be stated where `lengthscale` is traced by JAX: the number of states "
            "cannot depend on a value that is not known yet"
        )
    needed = max(_needed(float(value), TOLERANCE), _needed(0.5 * float(value), TOLERANCE_AT_HALF))
    if needed > MOST:
        raise ValueError(
            f"`lengthscale` of {owner} must be large enough for {MOST} harmonics (above 0.104), got {float(value):g}, "
            "which needs more; it counts in radians of the cycle, so sharper features than that are better given by "
            "a product of smoother kernels, or by stating `harmonics`"
        )
    return needed


def _needed(lengthscale: float, tolerance: float) -> int:
    """The fewest harmonics that leave less than `tolerance` out."""
    angles = 2.0 * np.pi * np.arange(1024) / 1024
    profile = np.exp(-2.0 * np.sin(0.5 * angles) ** 2 / lengthscale**2)
    weights = np.fft.rfft(profile).real / 1024
    left_out = 1.0 - weights[0] - 2.0 * np.cumsum(weights[1:-1])
    return 1 + int(np.argmax(left_out < tolerance)) if np.any(left_out < tolerance) else MOST + 1
