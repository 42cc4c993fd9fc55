"""From a kernel's SDE and a sorted series of times to a prior chain."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain import Chain, Move
from thiele.sde import SDE


class Steps(eqx.Module):
    """The moves of a chain whose inputs are (start, step): two arrays of times."""

    sde: SDE

    def prepare(self, inputs: tuple[Array, Array]) -> tuple:
        """The costly functions of every step."""
        return *inputs, self.sde.functions(*inputs)

    def __call__(self, prepared: tuple) -> Move:
        pairs = self.sde.assemble(*prepared)
        return Move(A=tuple(A for A, _ in pairs), Q=tuple(Q for _, Q in pairs))


def prior_chain(sde: SDE, times: Float[Array, " n"]) -> Chain:
    """The states of `sde` at sorted `times`."""
    return Chain(jnp.zeros(sde.dim, times.dtype), sde.covariance(times[0]), Steps(sde), (times[:-1], jnp.diff(times)))
