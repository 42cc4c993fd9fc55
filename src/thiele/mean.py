"""The constant that a latent function varies about."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array

from thiele.parameters import Parametric, Unit, fixed, param, real


class ConstantMean(Parametric):
    """E f(t) = value. `decided` is False where the user said nothing: then the model decides whether to learn it."""

    value: Array = real(0.0, unit=Unit.LATENT, vector=True)
    decided: bool = eqx.field(static=True, default=True, repr=False)


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
