"""The tree of lanes on a GPU: `python -m benchmarks.gpu_tree [--sizes 1e5 1e6] [--steps 8 16 32] [--whole 16:50000]`.

How long the lanes should be, what the kernels gain over loops of XLA, and chains with information on whole states, as
inducing states are. On the device that JAX takes; from a source tree where nothing is installed, with `PYTHONPATH=src`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workers.chain import by_lanes
from benchmarks.workers.protocol import PROBLEMS, irregular_series
from thiele.chain import Chain, Information, Move, Tabulated, layouts, log_normaliser, one_kernel, posterior

REPEATS = 21
# Longer, and one lane of XLA's loop is not worth waiting for.
MOST_IN_ONE_LANE = 4000


def seconds(function: Callable[..., Any], *arguments: Any) -> str:
    """Median and fastest time of a call, and that of the first."""
    compiled, taken = jax.jit(function), []
    for _ in range(REPEATS + 1):
        begun = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        taken.append(time.perf_counter() - begun)
    middle, fastest = (statistic(taken[1:]) * 1e6 for statistic in (median, min))
    return f"{middle:9.0f} us (fastest {fastest:.0f} us, compiled in {taken[0]:.1f} s)"


def series(n: int, dtype: str) -> list[jax.Array]:
    t, y = irregular_series(n)
    return [jnp.asarray(x, dtype) for x in (PROBLEMS["matern32"].values, np.diff(t), y)]


def whole_states(d: int, n: int) -> tuple[Chain, Information]:
    """A stable chain with information on every state."""
    rng = np.random.default_rng(0)

    def semidefinite(*batch: int) -> jax.Array:
        root = rng.standard_normal((d, d, *batch)) / np.sqrt(d)
        return jnp.asarray(np.einsum("ik...,jk...->ij...", root, root))

    A = 0.9 * np.linalg.qr(rng.standard_normal((d, d)))[0]
    move = Move((jnp.asarray(np.repeat(A[None, :, :, None], n - 1, -1)),), (semidefinite(n - 1)[None],))
    chain = Chain(jnp.zeros(d), (semidefinite()[None],), Tabulated(), move)
    return chain, Information(semidefinite(n), jnp.asarray(rng.standard_normal((d, n))))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tree", description=__doc__)
    parser.add_argument("--sizes", nargs="*", type=lambda s: int(float(s)), default=[10**5, 10**6])
    parser.add_argument("--steps", nargs="*", type=int, default=[8, 16, 32])
    parser.add_argument("--precisions", nargs="*", default=["float64"])
    parser.add_argument("--operations", nargs="*", default=["value", "gradient", "condition"])
    parser.add_argument("--whole", nargs="*", default=["16:50000", "31:4000"], help="d:n of chains on whole states")
    parser.add_argument("--loops", action="store_true", help="the tree by loops of XLA too")
    options = parser.parse_args()
    print(jax.default_backend(), jax.devices()[0].device_kind, jax.__version__, flush=True)
    ways = {"kernels": one_kernel.walk}
    if options.loops:
        ways["loops"] = lambda lanes, step, carry, xs, reverse, interleaved: one_kernel.in_loop(
            lanes, step, reverse, carry, xs, interleaved
        )
    for way, walk in ways.items():
        one_kernel.walk = walk
        for steps in options.steps:
            layouts.STEPS_IN_KERNEL = steps
            for n in options.sizes:
                for dtype in options.precisions:
                    for operation in options.operations:
                        found = seconds(by_lanes(operation), *series(n, dtype))
                        print(f"{way}, {steps:3} steps, N = {n:8}, {dtype}, {operation:9} {found}", flush=True)
    for d, n in (map(int, each.split(":")) for each in options.whole):
        problem = whole_states(d, n)
        for lanes in (None, 1) if n <= MOST_IN_ONE_LANE else (None,):
            value = lambda chain, info, lanes=lanes: log_normaliser(chain, info, lanes)  # noqa: E731
            moments = lambda chain, info, lanes=lanes: posterior(chain, info, lanes)  # noqa: E731
            for name, function in {"value": value, "gradient": jax.grad(value, (0, 1)), "posterior": moments}.items():
                where = "tree" if lanes is None else "one lane"
                print(f"whole states, d = {d}, n = {n}, {where}, {name:9} {seconds(function, *problem)}", flush=True)


if __name__ == "__main__":
    # The choice of this script: both precisions are measured.
    jax.config.update("jax_enable_x64", True)
    main()
