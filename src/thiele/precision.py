"""Double precision for the library's own arithmetic, whatever the caller's JAX flag says.

JAX computes in float32 unless a global flag is set. A library must not touch that flag, and a Kalman recursion over a
million steps must not run in float32 by accident, so every public entry point opens this scope around its numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

P = ParamSpec("P")
R = TypeVar("R")


def double_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with 64-bit types enabled; safe under `jit`, `grad` and `vmap` of the caller's."""

    @wraps(function)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return scoped


@double_precision
def float64(value: ArrayLike) -> Array:
    """`value` as a float64 array, also when the caller's default is float32."""
    return jnp.asarray(value, dtype=jnp.float64)
