r"""The stochastically driven damped harmonic oscillator (the building block of celerite)."""

from __future__ import annotations

from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel, lag
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, DampedOscillator, damped_waves


class SHO(AbstractScalarKernel):
    r"""f'' + (ω/q) f' + ω² f = white noise, with k(0) = σ².

    k(τ) = σ² e^{-ω|τ|/2q} [cos(ηω|τ|) + sin(ηω|τ|)/(2qη)],  η = √|1 - 1/4q²|, with cosh and sinh for q < 1/2.

    `frequency` is the undamped angular frequency ω and `quality` is q: above 1/2 the process rings for about q/π
    cycles, at 1/2 it is a Matern32, below it decays without ringing. Foreman-Mackey et al. (2017), equation 20.
    """

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    frequency: Array = positive(default=1.0, unit=Unit.RATE)
    quality: Array = positive(default=1.0)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        damping = 0.5 / self.quality
        even, odd = damped_waves(damping, self.frequency * lag(t, s))
        return self.variance * (even + damping * odd)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return (DampedOscillator(self.variance[None], self.frequency[None], self.quality[None]),)
