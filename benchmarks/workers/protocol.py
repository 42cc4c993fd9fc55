"""What every worker of `benchmarks.gaussian` shares: the problems, and the loop that answers requests.

A worker reads one JSON request a line on its standard input and writes one JSON answer a line on its standard output:

    {"do": "prepare", "kernel": ..., "operation": ..., "data": FILE, "out": FILE}   -> {"first": seconds}
    {"do": "time"}                                                                  -> {"seconds": seconds}
    {"do": "memory"}                                                                -> {"before": bytes, "peak": bytes}

`prepare` builds the call, runs it once (tracing, compilation and one run) and writes what it computed to `out`. `time`
runs it once more. A library that cannot do something raises `Unable`, and the answer carries the reason.

Only numpy and the standard library are used here, so that the file runs in any worker's environment.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np


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

Outputs = dict[str, Any]
Call = Callable[[], Outputs]


class Unable(Exception):
    """The library has no way to do this, or none that is linear in the data; the message says why."""


class Library(Protocol):
    """What a worker must offer."""

    def versions(self) -> dict[str, str]: ...

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        """A function without arguments that computes the operation and returns once the numbers are there.

        Its results are named `value`, `gradient` (in the order of the problem's names), `mean` and `var`.
        """
        ...


def _memory_now() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _memory_peak() -> int:
    # A child's ru_maxrss starts at the size of the parent that started it; VmHWM counts this process alone.
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Worker:
    def __init__(self, library: Library):
        self.library = library
        self.before = _memory_now()
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
                return {"before": self.before, "peak": _memory_peak()}
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
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = _Worker(library)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Unable as reason:
            answer = {"unable": str(reason)}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
