r"""A damped harmonic oscillator driven by white noise.

f'' + (ω/q) f' + ω² f = w,  x = (f, f'/ω),  F = ω [[0, 1], [-1, -2d]],  P∞ = σ² I,  d = 1/(2q).

With θ = ωΔ and z = (d² - 1) θ², exp(FΔ) = e^{-dθ} (C(z) I + θ S(z) [[d, 1], [-1, -d]]), where C(z) = cosh √z and
S(z) = sinh(√z)/√z are entire: damped waves, critical damping and slow decay are one formula.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thiele.sde.block import AbstractBlock
from thiele.tables import Table, Times, along, as_array, diagonal, scale, table

TERMS = 12  # of the series in θ for the noise: 0.2^TERMS/TERMS! is below rounding
NEAR = 1e-2  # |z| below which C and S are summed: beyond it their quotients by √|z| lose at most two digits


class DampedOscillator(AbstractBlock):
    """One oscillator for each entry of `variance` (σ²), `frequency` (ω, undamped, angular) and `quality` (q)."""

    variance: Float[Array, " count"]
    frequency: Float[Array, " count"]
    quality: Float[Array, " count"]

    dim: ClassVar[int] = 2
    observed: ClassVar[int] = 0
    driven: ClassVar[bool] = True
    stationary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        return self.variance.shape[0]

    def drift(self) -> Float[Array, "count 2 2"]:
        w = self.frequency
        return as_array(table([[None, w], [-w, -w / self.quality]]))

    def diffusion(self) -> Float[Array, "count 2 2"]:
        return as_array(table([[None, None], [None, 2.0 * self.variance * self.frequency / self.quality]]))

    def covariance(self, t: Times) -> Table:
        return diagonal([self.variance, self.variance], t)

    def functions(self, start: Times, step: Times) -> tuple[Array, Array, Array, Array]:
        d, theta = self._damping_and_angle(step)
        even, odd = damped_waves(d, theta)
        lost = -jnp.expm1(-2.0 * d * theta)
        return even, odd, lost, _first_noise_series(d, jnp.where(_is_short(d, theta), theta, 0.0))

    def assemble(self, start: Times, step: Times, functions: tuple[Array, Array, Array, Array]) -> tuple[Table, Table]:
        """A, and I - A A' written with C² - (d² - 1) θ² S² = 1 so that every term carries the factor d.

        Only the first entry, of order θ³, still cancels at small steps; there its Taylor series is used.
        """
        even, odd, lost, series = functions
        d, theta = self._damping_and_angle(step)
        A = table([[even + d * odd, odd], [-odd, even - d * odd]])
        first = jnp.where(_is_short(d, theta), series, lost - 2.0 * d * odd * (even + d * odd))
        cross = 2.0 * d * odd * odd
        second = lost + 2.0 * d * odd * (even - d * odd)
        return A, scale(along(self.variance, step), table([[first, cross], [cross, second]]))

    def _damping_and_angle(self, step: Times) -> tuple[Array, Array]:
        return along(0.5 / self.quality, step), along(self.frequency, step) * step


def _is_short(d: Float[Array, "..."], theta: Float[Array, "..."]) -> Bool[Array, "..."]:
    return theta * jnp.maximum(1.0, 2.0 * d) < 0.1


def damped_waves(d: Float[Array, "..."], theta: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """e^{-dθ} C(z) and e^{-dθ} θ S(z): nothing overflows, and derivatives are finite through d = 1 and θ = 0."""
    excess = d * d - 1.0
    z = excess * theta * theta
    near = jnp.abs(z) < NEAR
    decay = jnp.exp(-d * theta)

    small = jnp.where(near, z, 0.0)
    even_near = decay * _even_series(small)
    odd_near = decay * theta * _odd_series(small)

    # Roots and quotients get harmless arguments wherever their value is not used: a NaN would survive in the gradient.
    rate = jnp.sqrt(jnp.where(excess == 0.0, 1.0, jnp.abs(excess)))
    angle = jnp.where(near, 1.0, rate * theta)
    even_wave, odd_wave = decay * jnp.cos(angle), decay * jnp.sin(angle) / rate

    slow, fast = jnp.exp(-theta / (d + rate)), jnp.exp(-theta * (d + rate))
    even_decay, odd_decay = 0.5 * (slow + fast), 0.5 * (slow - fast) / rate

    overdamped = excess > 0.0
    even_far, odd_far = jnp.where(overdamped, even_decay, even_wave), jnp.where(overdamped, odd_decay, odd_wave)
    return jnp.where(near, even_near, even_far), jnp.where(near, odd_near, odd_far)


def _even_series(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """C(z) for |z| <= NEAR."""
    total = jnp.ones_like(z)
    for k in range(5, 0, -1):
        total = 1.0 + total * z * (1.0 / (2 * k * (2 * k - 1)))
    return total


def _odd_series(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """S(z) for |z| <= NEAR."""
    total = jnp.ones_like(z)
    for k in range(5, 0, -1):
        total = 1.0 + total * z * (1.0 / (2 * k * (2 * k + 1)))
    return total


def _first_noise_series(d: Float[Array, "..."], theta: Float[Array, "..."]) -> Float[Array, "..."]:
    """The sum over k of θ^{k+1}/(k+1)! M_k[0, 0], with M_0 = L Qc L' and M_{k+1} = F M_k + M_k F'."""

    def following(entries: tuple[Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array], Array]:
        a, b, c = entries  # of M_k/(k+1)!
        return (2.0 * b / (k + 2), (c - a - 2.0 * d * b) / (k + 2), (-2.0 * b - 4.0 * d * c) / (k + 2)), a

    none = jnp.zeros_like(d)
    _, coefficients = jax.lax.scan(following, (none, none, 4.0 * d), jnp.arange(TERMS, dtype=d.dtype))
    total = jnp.zeros_like(theta)
    for k in range(TERMS - 1, 1, -1):  # the first two vanish
        total = (total + coefficients[k]) * theta
    return total * theta * theta
