"""The exact Gaussian chain of a Matern-3/2 on this process's device: by thiele's lanes, and by an associative scan.

    {"do": "device"}                                                             -> {"platform": ..., "device": ...}
    {"do": "chain", "way": "lanes", "n": ..., "precision": ..., "operation": ...}
                                                       -> {"seconds": median, "compile": seconds, "answer": [numbers]}
    {"do": "iteration", "task": ...}                   -> {"seconds": median, "compile": seconds}

`way` is lanes, or calls or sums: the two ways to write the products of the scan. Both are given the same time steps,
and compute their transitions from the hyperparameters inside the compiled function. Conditioning answers with moments
at a hundred times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import thiele as th
from benchmarks import parallel_scan
from benchmarks.parallel_scan import PRODUCTS, Problem
from benchmarks.training import Training
from benchmarks.workers.answering import Unable, answer_requests
from benchmarks.workers.protocol import PROBLEMS, irregular_series
from experiments.tasks import TASKS
from thiele.chain import Chain, Information, log_normaliser, outputs
from thiele.chain.matrices import dense
from thiele.steps import Steps

# Calls of less than a millisecond, on a GPU, are repeated for so long: seven of them differ by half.
REPEATS, SECONDS = 7, 0.2
ITERATIONS = 5


def lanes(theta: jax.Array, step: jax.Array, y: jax.Array) -> tuple[Chain, Information]:
    """The chain on the data's times and the information in them, in the precision of `theta`."""
    cast = lambda x: x.astype(theta.dtype)  # noqa: E731
    sde = jax.tree.map(cast, th.Matern32(variance=theta[0], lengthscale=theta[1])).sde()
    # Steps, not times: in single precision a difference of times late in the series would have no digits left.
    cov = jax.tree.map(cast, sde.covariance(jnp.zeros((), theta.dtype)))
    chain = Chain(jnp.zeros(2, theta.dtype), cov, Steps(sde), (jnp.zeros_like(step), step))
    return chain, Information(jnp.full((1, 1, len(y)), 1.0 / theta[2]), None, y[None], np.asarray(sde.H))


def by_lanes(operation: str) -> Callable[..., Any]:
    def value(theta: jax.Array, step: jax.Array, y: jax.Array) -> jax.Array:
        # In single precision the library's choice would be square roots, which run in one lane.
        constant = -0.5 * len(y) * jnp.log(2.0 * jnp.pi * theta[2])
        return log_normaliser(*lanes(theta, step, y), form="covariance") + constant

    def condition(theta: jax.Array, step: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, _ = outputs(*lanes(theta, step, y), form="covariance")
        return found.mean[0], found.var[0, 0]

    return {"value": value, "gradient": jax.value_and_grad(value), "condition": condition}[operation]


def by_scan(operation: str, product: str) -> Callable[..., Any]:
    mul = PRODUCTS[product]

    def problem(theta: jax.Array, step: jax.Array, y: jax.Array) -> Problem:
        chain, info = lanes(theta, step, y)
        move = chain.moves(chain.moves.prepare(chain.inputs))
        A, Q = (jnp.moveaxis(dense(x), -1, 0) for x in (move.A, move.Q))
        return Problem(A, Q, dense(chain.cov), jnp.asarray(info.H, theta.dtype)[0], theta[2], y)

    def value(*arguments: jax.Array) -> jax.Array:
        return parallel_scan.log_likelihood(problem(*arguments), mul)

    def condition(*arguments: jax.Array) -> tuple[jax.Array, jax.Array]:
        return parallel_scan.conditioned(problem(*arguments), mul)

    return {"value": value, "gradient": jax.value_and_grad(value), "condition": condition}[operation]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = jax.block_until_ready(call())
    return time.perf_counter() - begun, found


def measured(way: str, n: int, precision: str, operation: str) -> dict[str, Any]:
    t, y = irregular_series(n)
    dtype = jnp.dtype(precision)
    arguments = [jnp.asarray(x, dtype) for x in (PROBLEMS["matern32"].values, np.diff(t), y)]
    compiled = jax.jit(by_lanes(operation) if way == "lanes" else by_scan(operation, way))
    first, found = timed(lambda: compiled(*arguments))
    again = timed(lambda: compiled(*arguments))[0]
    repeats = max(REPEATS, min(200, round(SECONDS / again)))
    seconds = median(timed(lambda: compiled(*arguments))[0] for _ in range(repeats))
    if operation == "condition":
        found = [x[:: max(1, n // 100)] for x in found]
    answer = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(found)])
    return {"seconds": seconds, "compile": first - seconds, "answer": answer.tolist()}


def iteration(task: str) -> dict[str, Any]:
    if task not in TASKS:
        raise Unable(f"the experiments have no task {task}")
    try:
        training = Training(task, "sparse", "CVI")
    except FileNotFoundError as missing:
        raise Unable(str(missing).splitlines()[0]) from None
    first, again = training.paper(1), training.paper(1)
    seconds = median(training.iterations(ITERATIONS).tolist())
    return {"seconds": seconds, "compile": first.seconds - again.seconds}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "device":
            return {"platform": jax.default_backend(), "device": jax.devices()[0].device_kind, "jax": jax.__version__}
        case "chain":
            return measured(*(request[key] for key in ("way", "n", "precision", "operation")))
        case "iteration":
            return iteration(request["task"])
    raise ValueError(f"`do` must be device, chain or iteration, got {request['do']!r}")


if __name__ == "__main__":
    # The choice of this script: one process measures both precisions.
    jax.config.update("jax_enable_x64", True)
    answer_requests(answer)
