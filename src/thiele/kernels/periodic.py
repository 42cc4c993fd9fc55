r"""Functions that repeat (Periodic), and that repeat with slow change (QuasiPeriodic)."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.kernels.harmonics import harmonic_sum, harmonic_weights, resolve_harmonics
from thiele.kernels.kernel import AbstractScalarKernel, lag
from thiele.kernels.matern import half_integer, matern_block, matern_correlation
from thiele.parameters import Parametric, Unit, positive
from thiele.precision import double_precision
from thiele.sde import AbstractBlock, Level, Rotation, product


class Periodic(AbstractScalarKernel):
    r"""k(τ) = σ² exp(-2 sin²(πτ/period)/ℓ²), as its first Fourier terms.

    The series is cut after `harmonics` terms and not rescaled: k(0) falls short of σ² by `truncation_error()`, and
    nowhere is the error larger. With `harmonics=None` the number is chosen from the lengthscale given, so that the
    error is below 1e-6 σ² there and below 1e-3 σ² if learning halves the lengthscale. `kernel(t, s)` is the cut
    series, which is what the state-space form has too.
    """

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    lengthscale: Array = positive(default=1.0)
    period: Array = positive(default=1.0, unit=Unit.TIME)
    harmonics: int | None = eqx.field(static=True, default=None)

    def __post_init__(self) -> None:
        lengthscale = self.lengthscale
        Parametric.__post_init__(self)
        self.harmonics = resolve_harmonics(self.harmonics, lengthscale, "Periodic")

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        weights = harmonic_weights(self.harmonics, self.lengthscale)
        return self.variance * harmonic_sum(weights, 2.0 * jnp.pi / self.period * lag(t, s))

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return harmonic_blocks(self.harmonics, self.variance, self.lengthscale, self.period)

    @double_precision
    def truncation_error(self) -> Float[Array, ""]:
        """The largest difference from the full kernel, that at τ = 0."""
        return self.variance * (1.0 - jnp.sum(harmonic_weights(self.harmonics, self.lengthscale)))


class QuasiPeriodic(AbstractScalarKernel):
    r"""k(τ) = σ² exp(-2 sin²(πτ/period)/ℓ²) Matérn(τ; decay, order): a shape that repeats and slowly changes.

    `decay` is the lengthscale of the change, in units of time; for `harmonics` see `Periodic`.
    """

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    lengthscale: Array = positive(default=1.0)
    period: Array = positive(default=1.0, unit=Unit.TIME)
    decay: Array = positive(default=1.0, unit=Unit.TIME)
    order: float = eqx.field(static=True, default=0.5)
    harmonics: int | None = eqx.field(static=True, default=None)

    def __post_init__(self) -> None:
        lengthscale = self.lengthscale
        Parametric.__post_init__(self)
        half_integer(self.order, "QuasiPeriodic")
        self.harmonics = resolve_harmonics(self.harmonics, lengthscale, "QuasiPeriodic")

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        weights, tau = harmonic_weights(self.harmonics, self.lengthscale), lag(t, s)
        envelope = matern_correlation(half_integer(self.order, "QuasiPeriodic"), self.decay, tau)
        return self.variance * harmonic_sum(weights, 2.0 * jnp.pi / self.period * tau) * envelope

    def blocks(self) -> tuple[AbstractBlock, ...]:
        shape = harmonic_blocks(self.harmonics, self.variance, self.lengthscale, self.period)
        envelope = matern_block(half_integer(self.order, "QuasiPeriodic"), jnp.ones(()), self.decay)
        return product(shape, (envelope,))

    @double_precision
    def truncation_error(self) -> Float[Array, ""]:
        """The largest difference from the full kernel, that at τ = 0."""
        return self.variance * (1.0 - jnp.sum(harmonic_weights(self.harmonics, self.lengthscale)))


def harmonic_blocks(
    harmonics: int, variance: Float[Array, ""], lengthscale: Float[Array, ""], period: Float[Array, ""]
) -> tuple[AbstractBlock, ...]:
    """The level and the rotations of a periodic kernel: 1 + 2 `harmonics` states."""
    weights = variance * harmonic_weights(harmonics, lengthscale)
    frequencies = 2.0 * jnp.pi / period * np.arange(1.0, harmonics + 1)
    return Level(weights[:1]), Rotation(weights[1:], frequencies)
