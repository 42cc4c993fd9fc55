"""The constant that a latent function varies about."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.parameters import Parametric, Unit, fixed, param, real


class ConstantMean(Parametric):
    """E f(t) = value. `decided` is False where the user said nothing: then the model decides whether to learn it."""

    value: Array = real(0.0, unit=Unit.LATENT, vector=True)
    decided: bool = eqx.field(static=True, default=True, repr=False)


def mean_at(mean: ConstantMean, outputs: int, places: Float[np.ndarray, "n D"] | None) -> Float[Array, "#l #n"]:
    """E f, lane last: of every latent function, or of the output that each place names."""
    if outputs and mean.value.ndim == 1 and places is not None:
        return jnp.asarray(mean.value)[places[:, -1].astype(int)][None]
    return jnp.reshape(mean.value, (-1, 1))


def as_mean(given: Any) -> ConstantMean:
    """None: 0, undecided. "learn": learnt. A number: held. A `param`: as it says."""
    if isinstance(given, ConstantMean):
        return given
    if given is None:
        return ConstantMean(fixed(0.0), decided=False)
    if isinstance(given, str):
        if given != "learn":
            raise ValueError(f'`mean` must be a number, "learn" or None, got {given!r}')
        return ConstantMean()
    try:
        return ConstantMean(given if isinstance(given, param) else fixed(given))
    except (TypeError, ValueError):
        raise ValueError(f'`mean` must be a finite number, "learn" or None, got {given!r}') from None
