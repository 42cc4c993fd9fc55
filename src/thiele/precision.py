"""Double precision for the library's own arithmetic, whatever the caller's JAX flag says.

JAX computes in float32 unless a global flag is set. A library must not touch that flag, and a Kalman recursion over a
million steps must not run in float32 by accident, so every public entry point opens this scope around its numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, ArrayLike, Float

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


def scalar_in_double(function: Callable[..., Float[Array, ""]]) -> Callable[..., Float[Array, ""]]:
    """A scalar function of pytrees of arrays whose gradient is computed inside the scope too.

    A caller's `grad` runs its backward pass outside of the scope, where JAX writes float32 constants into it. Here the
    gradient is formed inside, and what is left for the caller is a product with the tangent.
    """

    @jax.custom_jvp
    def value(arguments: tuple[Any, ...]) -> Float[Array, ""]:
        with jax.enable_x64(True):
            return function(*arguments)

    @partial(value.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
        leaves, structure = jax.tree.flatten(primals[0])
        slopes = jax.tree.leaves(tangents[0], is_leaf=lambda x: isinstance(x, SymbolicZero))
        moving = [i for i, slope in enumerate(slopes) if not isinstance(slope, SymbolicZero)]

        def of_moving(values: list[Array]) -> Float[Array, ""]:
            filled = dict(zip(moving, values, strict=True))
            return function(*structure.unflatten([filled.get(i, leaf) for i, leaf in enumerate(leaves)]))

        with jax.enable_x64(True):
            result, gradient = jax.value_and_grad(of_moving)([leaves[i] for i in moving])
            change = jnp.zeros_like(result)
            for i, slope in zip(moving, gradient, strict=True):
                change = change + jnp.sum(slope * slopes[i]).astype(result.dtype)
            return result, change

    @wraps(function)
    def scoped(*arguments: Any) -> Float[Array, ""]:
        return value(arguments)

    return scoped
