"""Beliefs about hyperparameters: `Matern32(lengthscale=param(4.0, prior=LogNormal(median=4.0, sigma=1.0)))`.

Each has `log_prob(value)`, the log density on the natural scale. They are frozen and hashable, as static metadata of a
model must be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from thiele.precision import double_precision, float64


def _check(prior: object, anything: tuple[str, ...] = ()) -> None:
    """Refuse arguments that are not finite numbers and, unless named in `anything`, not positive."""
    for field in fields(prior):
        value = getattr(prior, field.name)
        words = "a finite number" if field.name in anything else "a positive number"
        problem = f"`{field.name}` of {type(prior).__name__} must be {words}, got {value!r}"
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TypeError(problem) from None
        if not math.isfinite(number) or (field.name not in anything and number <= 0.0):
            raise ValueError(problem)
        object.__setattr__(prior, field.name, number)


_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class LogNormal:
    """log x ~ N(log median, sigma²)."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _check(self)

    @double_precision
    def log_prob(self, value: ArrayLike) -> Float[Array, "..."]:
        x = float64(value)
        z = (jnp.log(x) - math.log(self.median)) / self.sigma
        return -0.5 * z**2 - jnp.log(x) - math.log(self.sigma) - _HALF_LOG_2PI


@dataclass(frozen=True)
class Gamma:
    """p(x) ∝ x^{concentration - 1} e^{-rate x}; the mean is concentration/rate."""

    concentration: float
    rate: float

    def __post_init__(self) -> None:
        _check(self)

    @double_precision
    def log_prob(self, value: ArrayLike) -> Float[Array, "..."]:
        x, a, b = float64(value), self.concentration, self.rate
        return (a - 1.0) * jnp.log(x) - b * x + a * math.log(b) - math.lgamma(a)


@dataclass(frozen=True)
class InverseGamma:
    """p(x) ∝ x^{-concentration - 1} e^{-scale/x}: it keeps x away from zero."""

    concentration: float
    scale: float

    def __post_init__(self) -> None:
        _check(self)

    @double_precision
    def log_prob(self, value: ArrayLike) -> Float[Array, "..."]:
        x, a, b = float64(value), self.concentration, self.scale
        return -(a + 1.0) * jnp.log(x) - b / x + a * math.log(b) - math.lgamma(a)


@dataclass(frozen=True)
class HalfNormal:
    """p(x) ∝ e^{-x²/2 scale²} for x > 0."""

    scale: float

    def __post_init__(self) -> None:
        _check(self)

    @double_precision
    def log_prob(self, value: ArrayLike) -> Float[Array, "..."]:
        z = float64(value) / self.scale
        return -0.5 * z**2 - math.log(self.scale) - _HALF_LOG_2PI + math.log(2.0)


@dataclass(frozen=True)
class Normal:
    """x ~ N(mean, scale²)."""

    mean: float
    scale: float

    def __post_init__(self) -> None:
        _check(self, anything=("mean",))

    @double_precision
    def log_prob(self, value: ArrayLike) -> Float[Array, "..."]:
        z = (float64(value) - self.mean) / self.scale
        return -0.5 * z**2 - math.log(self.scale) - _HALF_LOG_2PI
