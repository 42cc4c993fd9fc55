"""Several independent latent functions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractKernel, AbstractScalarKernel, require_one_latent
from thiele.sde import AbstractBlock


class Stacked(AbstractKernel):
    """f = (f₁, f₂, …), independent, each with its own kernel; made by `Stack(kernel, kernel, ...)`."""

    kernels: tuple[AbstractScalarKernel, ...]

    @property
    def latents(self) -> int:
        return len(self.kernels)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "latents *times"]:
        return jnp.stack([kernel.covariance(t, s) for kernel in self.kernels])

    def outputs(self) -> tuple[tuple[AbstractBlock, ...], ...]:
        return tuple(kernel.blocks() for kernel in self.kernels)

    def parts(self) -> tuple[AbstractScalarKernel, ...]:
        return tuple(part for kernel in self.kernels for part in kernel.parts())


def Stack(*kernels: AbstractKernel) -> Stacked:  # noqa: N802 - reads as the other kernels do
    """Several independent latent functions, for likelihoods that need them: `Stack(Matern32(), Matern52())`.

    `stack(t, s)` has shape (latents, *times): the covariance of each function; between functions it is zero.
    """
    if not kernels:
        raise ValueError("`kernels` of Stack must hold at least one kernel, got none")
    flat: list[AbstractScalarKernel] = []
    for kernel in kernels:
        if isinstance(kernel, Stacked):
            flat.extend(kernel.kernels)
        else:
            require_one_latent(kernel, "kernels", "Stack")
            flat.append(kernel)
    return Stacked(tuple(flat))
