"""From `import thiele` to a first finished fit, in a process that knows nothing yet: `python -m benchmarks.cold`.

The coal counts with 15 inducing times and `schedule="best"`. Cold: the compiler starts from nothing. With a warm cache:
JAX keeps compiled programs in a folder, which one process has filled before. Medians of `--repeats` processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

COLUMNS = ("compilation cache", "import s", "fit s", "from import to fit s", "whole process s")


def measure() -> dict[str, float]:
    """In this process, which has not imported the library: when it was there, and when the fit was."""
    begun = time.perf_counter()
    import thiele as th

    imported = time.perf_counter()
    counts = th.data.coal_counts()
    model = th.GP(th.Matern52(variance=1.0, lengthscale=4.0), th.Poisson(), inducing=15)
    fit = model.fit(counts.time, counts.value, exposure=counts.exposure, schedule="best", progress=False)
    assert fit.converged
    done = time.perf_counter()
    return {"import": imported - begun, "fit": done - imported, "all": done - begun}


def process(cache: str | None) -> dict[str, float]:
    """A fresh process, with a compilation cache in a folder or with none."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION_CACHE")}
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.cold", "--here"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return {**json.loads(out), "process": time.perf_counter() - begun}


def row(name: str, found: list[dict[str, float]]) -> tuple[str, ...]:
    """One line of the table: medians."""
    return name, *(f"{median(one[key] for one in found):.2f}" for key in ("import", "fit", "all", "process"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--here", action="store_true", help="one measurement, in this process, as JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure()))
        return
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    cold = [process(None) for _ in range(options.repeats)]
    print(f"| {' | '.join(row('none', cold))} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        process(folder)
        warm = [process(folder) for _ in range(options.repeats)]
    print(f"| {' | '.join(row('warm', warm))} |")


if __name__ == "__main__":
    main()
