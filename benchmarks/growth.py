"""How time and memory grow with the data and with the inducing times: `python -m benchmarks.growth`.

A sparse Poisson model with a Matern-7/2 (d = 4): seconds of one training iteration (a sweep of the sites, the gradient
of the energy, a step of Adam; the median of several), for N data at a fixed number M of inducing times, and for M at a
fixed N. The exponents are fitted slopes of log time in log size, over all sizes and over the last decade, where fixed
costs show least. Each case has a process of its own, whose peak memory is given, over what the imports left.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import thiele as th
from benchmarks.memory import generated
from benchmarks.workers.answering import memory_now, memory_peak

DATA = (10**3, 10**4, 10**5, 10**6)
INDUCING = (10, 10**2, 10**3, 10**4)
FIXED_INDUCING, FIXED_DATA = 100, 10**5
ITERATIONS = 7
COLUMNS = ("N", "M", "seconds", "CPU s", "data MB", "peak MB over the imports")


class Case(NamedTuple):
    """So many data and inducing times."""

    n: int
    m: int


def measure(case: Case, iterations: int) -> dict[str, float]:
    """One case, in this process."""
    before = memory_now()
    t, y = generated(case.n)
    model = th.GP(th.Matern72(variance=1.0, lengthscale=50.0), th.Poisson(), inducing=case.m)

    def fitted(steps: int) -> tuple[np.ndarray, float]:
        began = time.process_time()
        fit = model.fit(t, y, schedule="paper", max_steps=steps, settle=False, progress=False)
        assert fit.trace is not None
        return fit.trace.seconds, time.process_time() - began

    fitted(1)
    _, around = fitted(1)
    seconds, whole = fitted(1 + iterations)
    return {
        "seconds": float(np.median(np.diff(seconds))),
        "cpu": (whole - around) / iterations,
        "data": (t.nbytes + y.nbytes) / 2**20,
        "peak": (memory_peak() - before) / 2**20,
    }


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log time in log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def last_decade(sizes: list[int], seconds: list[float]) -> tuple[list[int], list[float]]:
    """The sizes from a tenth of the largest on."""
    kept = [(size, s) for size, s in zip(sizes, seconds, strict=True) if size >= max(sizes) / 10]
    return [size for size, _ in kept], [s for _, s in kept]


def row(case: Case, found: dict[str, float]) -> tuple[str, ...]:
    """One line of the table."""
    size = [f"{x:.0e}".replace("e+0", "e") for x in case]
    return *size, f"{found['seconds']:.4g}", f"{found['cpu']:.4g}", f"{found['data']:.1f}", f"{found['peak']:.0f}"


def summary(name: str, sizes: list[int], found: list[dict[str, float]]) -> str:
    """The exponents in a sentence, by the clock and by the seconds of all cores."""
    said = []
    for key, words in (("seconds", "time"), ("cpu", "CPU seconds")):
        seconds = [one[key] for one in found]
        over_all, at_last = exponent(sizes, seconds), exponent(*last_decade(sizes, seconds))
        said.append(f"{words} {over_all:.2f}, over the last decade {at_last:.2f}")
    return f"exponents in {name}: {'; '.join(said)}"


def in_a_process(case: Case, iterations: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--here", *(str(x) for x in case)]
    out = subprocess.run([*command, "--iterations", str(iterations)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout)


def main(arguments: list[str] | None = None) -> None:
    number = lambda s: int(float(s))  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", type=number, default=list(DATA), help="N, at a fixed M")
    parser.add_argument("--inducing", nargs="+", type=number, default=list(INDUCING), help="M, at a fixed N")
    parser.add_argument("--fixed", nargs=2, type=number, default=[FIXED_DATA, FIXED_INDUCING], metavar=("N", "M"))
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--here", nargs=2, type=int, metavar=("N", "M"), help="one case, in this process, as JSON")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(measure(Case(*options.here), options.iterations)))
        return
    n, m = options.fixed
    groups = {
        "N": (options.data, [Case(size, m) for size in options.data]),
        "M": (options.inducing, [Case(n, size) for size in options.inducing]),
    }
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f} at the start\n")
    everything: list[dict[str, Any]] = []
    for name, (sizes, cases) in groups.items():
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
        found = []
        for case in cases:
            found.append(in_a_process(case, options.iterations))
            print(f"| {' | '.join(row(case, found[-1]))} |", flush=True)
        everything += [{**case._asdict(), **one} for case, one in zip(cases, found, strict=True)]
        print(f"\n{summary(name, sizes, found)}\n" if len(sizes) > 1 else "")
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
