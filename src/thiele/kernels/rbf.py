r"""The squared exponential kernel, as the best ladder of a given order."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel, lag
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, Ladder, ladder_drift

# An infinite ladder with couplings √1, √2, √3, … is the squared exponential itself. Cut after `order` rungs, with the
# couplings and the damping of the last rung chosen to make the largest error of k(τ) over all τ as small as possible,
# each further rung divides that error by about 3.4. (couplings ..., damping), and the error in units of the variance:
LADDERS = {
    1: ((0.64278462,), 1.6e-1),
    2: ((1.2541332, 1.8942416), 2.8e-2),
    3: ((1.038593, 2.1034992, 3.2577704), 6.5e-3),
    4: ((1.0096004, 1.5439066, 2.9715602, 4.7232144), 1.7e-3),
    5: ((1.0027642, 1.4516074, 2.000913, 3.877541, 6.277355), 4.8e-4),
    6: ((1.0008523, 1.4264395, 1.8192298, 2.4512753, 4.827359, 7.9184434), 1.4e-4),
    7: ((1.0002722, 1.4184281, 1.7636932, 2.1601087, 2.9082051, 5.8202681, 9.6393875), 4.1e-5),
    8: ((1.0000883, 1.4156964, 1.7440151, 2.0630877, 2.4914894, 3.3757024, 6.8512942, 11.42855), 1.3e-5),
}


class RBF(AbstractScalarKernel):
    r"""k(τ) ≈ σ² exp(-τ²/2ℓ²), with `order` states.

    No finite state has exactly this covariance. `kernel(t, s)` is that of the state-space form, a sum of damped waves,
    so that the two statements agree; k(0) = σ². It differs from the squared exponential by at most
    `approximation_error()`: 1.4e-4 σ² for the default of 6 states.
    """

    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    lengthscale: Array = positive(default=1.0, unit=Unit.TIME)
    order: int = eqx.field(static=True, default=6)

    def __check_init__(self) -> None:
        if self.order not in LADDERS:
            raise ValueError(f"`order` of RBF must be an integer from 1 to {max(LADDERS)}, got {self.order!r}")

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        rates, angular, cosines, sines = _damped_waves(self.order)
        tau = lag(t, s) / self.lengthscale
        waves = (
            jnp.exp(-rate * tau) * (c * jnp.cos(w * tau) + d * jnp.sin(w * tau))
            for rate, w, c, d in zip(rates, angular, cosines, sines, strict=True)
        )
        return self.variance * sum(waves)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        *couplings, damping = LADDERS[self.order][0]
        return (Ladder(self.variance, self.lengthscale, tuple(couplings), damping),)

    def approximation_error(self) -> Float[Array, ""]:
        """A bound on |k(τ) - σ² exp(-τ²/2ℓ²)| over all τ."""
        return self.variance * LADDERS[self.order][1]


def _damped_waves(order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Entry (0, 0) of exp(Fτ) at unit lengthscale as Σ e^{-rate τ} (c cos wτ + d sin wτ), by partial fractions."""
    *couplings, damping = LADDERS[order][0]
    poles, vectors = np.linalg.eig(ladder_drift(tuple(couplings), damping))
    residues = vectors[0] * np.linalg.inv(vectors)[:, 0]
    return -np.real(poles), np.imag(poles), np.real(residues), -np.imag(residues)
