"""Seconds of one training iteration: `python -m benchmarks.iteration [--tasks audio] [--kinds sparse] [--rules CVI]`.

An iteration is one sweep of the sites, the gradient of the energy with the sites held, and a step of Adam; the paper's
schedule takes 500 of them. Each case has a process of its own, so that its memory is its own; the fastest of several
iterations counts, since what other work on the machine adds is not the library's. Beside it are the figures of
BayesNewton, the published successor of the paper's programs, on two cores of a CPU; `benchmarks.reference` measures it
beside. `benchmarks.floor` says what the floor is. "CPU s" are the seconds of all cores in an iteration, on average,
which a busy machine inflates less. Compile seconds are what the first fit of one step takes longer than the second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks import floor
from benchmarks.training import KINDS, RULES, Training
from benchmarks.workers.answering import memory_peak


class Reference(NamedTuple):
    """BayesNewton's seconds for an iteration: sparse with CVI and with power EP (none: not a number), full with CVI."""

    sparse_cvi: float
    sparse_pep: float | None
    full_cvi: float

    def seconds(self, kind: str, rule: str) -> float | None:
        """Of one case; a full model was measured with CVI only."""
        sparse = {"CVI": self.sparse_cvi, "PEP": self.sparse_pep}
        return sparse[rule] if kind == "sparse" else {"CVI": self.full_cvi}.get(rule)


# A task of the experiments with an entry here is measured.
REFERENCES = {
    "motorcycle": Reference(0.0044, 0.0049, 0.0029),
    "coal": Reference(0.0009, 0.0011, 0.0011),
    "banana": Reference(7.3, 7.9, 3.0),
    "binary": Reference(0.124, 0.120, 0.068),
    "audio": Reference(4.7, 5.5, 2.2),
    "airline": Reference(46.0, None, 7.3),
    "electricity": Reference(71.0, None, 12.4),
}
COLUMNS = (
    *("task", "sites", "rule", "seconds", "BayesNewton", "times as fast", "times the floor"),
    *("CPU s", "compile s", "peak MB"),
)


def measure(task: str, kind: str, rule: str, iterations: int) -> dict[str, float]:
    """One case, in this process."""
    training = Training(task, kind, rule)
    # Only one fit at a time is in memory: a posterior of many states may be most of it.
    first = training.paper(1).seconds
    again, of_one = training.paper(1)[1:3]
    whole, steps = training.paper(1 + iterations)[2:]
    return {
        "seconds": float(np.min(np.diff(steps))),
        "floor": floor.seconds(training.sizes()),
        "cpu": (whole - of_one) / iterations,
        "compile": first - again,
        "peak": memory_peak() / 2**20,
    }


def row(task: str, kind: str, rule: str, found: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    published, seconds = REFERENCES[task].seconds(kind, rule), found["seconds"]
    reference, ratio = ("", "") if published is None else (f"{published:g}", f"{published / seconds:.1f}")
    rest = f"{seconds / found['floor']:.0f}", f"{found['cpu']:.4f}", f"{found['compile']:.1f}", f"{found['peak']:.0f}"
    return task, kind, rule, f"{seconds:.3g}", reference, ratio, *rest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=REFERENCES, default=list(REFERENCES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--here", action="store_true", help="one case, in this process, as JSON")
    options = parser.parse_args()
    cases = [(task, kind, rule) for task in options.tasks for kind in options.kinds for rule in options.rules]
    if options.here:
        print(json.dumps(measure(*cases[0], options.iterations)))
        return
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    for task, kind, rule in cases:
        command = [sys.executable, "-m", "benchmarks.iteration", "--here", "--iterations", str(options.iterations)]
        chosen = ["--tasks", task, "--kinds", kind, "--rules", rule]
        out = subprocess.run(command + chosen, check=True, capture_output=True, text=True).stdout
        print(f"| {' | '.join(row(task, kind, rule, json.loads(out)))} |", flush=True)


if __name__ == "__main__":
    main()
