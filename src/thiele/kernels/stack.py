"""Several independent latent functions."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractKernel, AbstractOneLatent, of_time, require_one_latent
from thiele.sde import Output


class Stacked(AbstractKernel):
    """f = (f₁, f₂, …), independent, each with its own kernel; made by `Stack(kernel, kernel, ...)`."""

    kernels: tuple[AbstractOneLatent, ...]

    @property
    def latents(self) -> int:
        return len(self.kernels)

    @property
    def in_space(self) -> bool:
        return any(kernel.in_space for kernel in self.kernels)

    @property
    def outputs_observed(self) -> int:
        return max(kernel.outputs_observed for kernel in self.kernels)

    def covariance(self, t: Float[Array, "*inputs"], s: Float[Array, "*inputs"]) -> Float[Array, "latents ..."]:
        return jnp.stack([k.covariance(*(of_time(x, k, self) for x in (t, s))) for k in self.kernels])

    def outputs(self) -> tuple[Output, ...]:
        return tuple(output for kernel in self.kernels for output in kernel.outputs())

    def parts(self) -> tuple[AbstractOneLatent, ...]:
        return tuple(part for kernel in self.kernels for part in kernel.parts())

    def each_latent(self) -> tuple[AbstractOneLatent, ...]:
        return self.kernels

    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        return eqx.tree_at(lambda k: k.kernels, self, tuple(kernel.placed(places) for kernel in self.kernels))


def Stack(*kernels: AbstractKernel) -> Stacked:  # noqa: N802 - reads as the other kernels do
    """Several independent latent functions, for likelihoods that need them: `Stack(Matern32(), Matern52())`.

    `stack(t, s)` has shape (latents, *times): the covariance of each function; between functions it is zero.
    """
    if not kernels:
        raise ValueError("`kernels` of Stack must hold at least one kernel, got none")
    flat: list[AbstractOneLatent] = []
    for kernel in kernels:
        if isinstance(kernel, Stacked):
            flat.extend(kernel.kernels)
        else:
            require_one_latent(kernel, "kernels", "Stack")
            flat.append(kernel)
    return Stacked(tuple(flat))
