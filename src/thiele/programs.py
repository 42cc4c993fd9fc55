"""Compiled programs, with an optimiser that takes as long as the data deserve.

Nearly all that a user waits for with a few hundred data is the compiler. A program that will run for milliseconds is
not worth seconds of optimisation, and one that runs for seconds is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

P = ParamSpec("P")
R = TypeVar("R")

# So many numbers in the arguments are few: about 3000 data. There a fit gains more from the compiler than it loses.
FEW = 16_384
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`eqx.filter_jit`, and for few data on a CPU without the costly optimisations."""
    quick, thorough = eqx.filter_jit(function, compiler_options=QUICKLY), eqx.filter_jit(function)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves = jax.tree.leaves((args, kwargs))
        # Inside a caller's program, where all arithmetic is traced, it is the caller's options that count.
        traced = any(isinstance(leaf, Tracer) for leaf in (*leaves, jnp.zeros(())))
        few = sum(np.size(leaf) for leaf in leaves if eqx.is_array_like(leaf)) <= FEW
        return (quick if few and not traced and jax.default_backend() == "cpu" else thorough)(*args, **kwargs)

    return run
