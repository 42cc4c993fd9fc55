"""What every worker of `benchmarks.gaussian` shares: the problems, and what a request means.

A worker reads one JSON request a line on its standard input and writes one JSON answer a line on its standard output:

    {"do": "prepare", "kernel": ..., "operation": ..., "data": FILE, "out": FILE}   -> {"first": seconds}
    {"do": "time"}                                                                  -> {"seconds": seconds}
    {"do": "memory"}                                                                -> {"before": bytes, "peak": bytes}

`prepare` builds the call, runs it once (tracing, compilation and one run) and writes what it computed to `out`. `time`
runs it once more. A library that cannot do something raises `answering.Unable`, and the answer carries the reason.

Only numpy and the standard library are used here, so that the file runs in any worker's environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from benchmarks.workers.answering import answer_requests, memory_now, memory_peak


class Problem(NamedTuple):
    """Hyperparameters on their natural scale, in the order in which every worker reads them; the noise comes last."""

    names: tuple[str, ...]
    values: tuple[float, ...]


PROBLEMS = {
    "matern32": Problem(
        names=("variance", "lengthscale", "noise"),
        values=(1.2, 1.5, 0.1),
    ),
    # State dimension 7. The four kernels that all libraries state exactly (celerite2's Matern-3/2 up to its `eps`).
    "sum4": Problem(
        names=(
            *("matern32.variance", "matern32.lengthscale"),
            *("matern12.variance", "matern12.lengthscale"),
            *("sho.variance", "sho.frequency", "sho.quality"),
            *("subband.variance", "subband.lengthscale", "subband.frequency"),
            "noise",
        ),
        values=(1.2, 1.5, 0.5, 0.4, 0.8, 3.0, 2.0, 0.6, 5.0, 6.0, 0.1),
    ),
}

OPERATIONS = ("value", "gradient", "condition")


def irregular_series(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Irregular times, ten to a unit on average, and two waves in noise; the span grows with n."""
    rng = np.random.default_rng(n)
    t = np.cumsum(rng.exponential(0.1, n))
    return t, np.sin(t) + 0.5 * np.cos(6.0 * t) + rng.normal(0.0, 0.3, n)


Outputs = dict[str, Any]
Call = Callable[[], Outputs]


class Library(Protocol):
    """What a worker must offer."""

    def versions(self) -> dict[str, str]: ...

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        """A function without arguments that computes the operation and returns once the numbers are there.

        Its results are named `value`, `gradient` (in the order of the problem's names), `mean` and `var`.
        """
        ...


class _Worker:
    def __init__(self, library: Library):
        self.library = library
        self.before = memory_now()
        self.run: Call | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "versions":
                return {"versions": self.library.versions()}
            case "prepare":
                return self.prepare(request)
            case "time":
                return {"seconds": self.timed()[0]}
            case "memory":
                return {"before": self.before, "peak": memory_peak()}
        raise ValueError(f"`do` must be versions, prepare, time or memory, got {request['do']!r}")

    def timed(self) -> tuple[float, Outputs]:
        if self.run is None:
            raise RuntimeError("`time` was asked for before `prepare`")
        start = time.perf_counter()
        outputs = self.run()
        return time.perf_counter() - start, outputs

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        data = np.load(request["data"])
        self.run = None
        start = time.perf_counter()
        self.run = self.library.call(request["kernel"], request["operation"], data["t"], data["y"])
        building = time.perf_counter() - start
        seconds, outputs = self.timed()
        if request.get("out"):
            np.savez(Path(request["out"]), **{name: np.asarray(value) for name, value in outputs.items()})
        return {"first": building + seconds}


def serve(library: Library) -> None:
    """Answer requests until the input ends."""
    answer_requests(_Worker(library).answer)
