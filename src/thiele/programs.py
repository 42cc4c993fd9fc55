"""Compiled programs, with an optimiser that takes as long as the data deserve.

Nearly all that a user waits for with a few hundred data is the compiler. A program that will run for milliseconds is
not worth seconds of optimisation, and one that runs for seconds is.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

P = ParamSpec("P")
R = TypeVar("R")
Options = dict[str, bool | int | str]

# So many numbers in the arguments are few: about 3000 data. There a fit gains more from the compiler than it loses.
FEW = 16_384
# The older way of writing loops for a CPU compiles programs of few data in two thirds of the time, and all with 160 to
# 580 MB less, into programs that are about as fast (benchmarks/results/emitters.txt).
TILED: Options = {"xla_cpu_use_fusion_emitters": False}
# Of what XLA hands to a library of kernels products gain, and sums over all data with what goes before them lose: an
# iteration of the full model of binary takes 4.1 ms without, and 6.2 with them. Sums over the data of a tile gain too:
# with a million data 0.22 s, and 0.32 or 0.41 without.
LEAN: Options = {**TILED, "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}
# With few data products are small, and sooner done by the thread that asks for them than handed to others.
FEW_THREADS = {**LEAN, "xla_cpu_multi_thread_eigen": False, "xla_cpu_experimental_ynn_fusion_type": ""}
QUICKLY = {**FEW_THREADS, "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Objects made between two searches for garbage while a program is called. To trace one makes millions, hardly any
# garbage, and Python would search after every 700: a tenth of a first fit whose programs are in JAX's cache.
BETWEEN_COLLECTIONS = 50_000


@cache
def known(name: str, value: bool | int | str) -> bool:
    """Whether the compiler that is installed has such an option."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@contextmanager
def _few_collections() -> Iterator[None]:
    first, *later = gc.get_threshold()
    gc.set_threshold(max(first, BETWEEN_COLLECTIONS) if first else 0, *later)
    try:
        yield
    finally:
        gc.set_threshold(first, *later)


def _program(function: Callable[P, R], options: Options) -> Callable[[], Callable[P, R]]:
    """`eqx.filter_jit`, told once it is asked for what the compiler understands of `options`."""
    return cache(
        lambda: eqx.filter_jit(function, compiler_options={name: x for name, x in options.items() if known(name, x)})
    )


def compiled(function: Callable[P, R], for_few: Options = QUICKLY) -> Callable[P, R]:
    """`eqx.filter_jit`, with options of its own for few data on a CPU, without the costly optimisations, and for data
    that say that they are `tiled`.
    """
    plain, small = eqx.filter_jit(function), _program(function, for_few)
    large, tiled = _program(function, LEAN), _program(function, TILED)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves = jax.tree.leaves((args, kwargs))
        # Inside a caller's program, where all arithmetic is traced, it is the caller's options that count.
        if jax.default_backend() != "cpu" or any(isinstance(leaf, Tracer) for leaf in (*leaves, jnp.zeros(()))):
            return plain(*args, **kwargs)
        size = sum(np.size(leaf) for leaf in leaves if eqx.is_array_like(leaf))
        many = tiled if any(getattr(arg, "tiled", False) for arg in args) else large
        with _few_collections():
            return (small if size <= FEW else many)()(*args, **kwargs)

    return run


# For a program that runs many times, however few the data.
optimised = partial(compiled, for_few=FEW_THREADS)
