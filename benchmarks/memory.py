"""Peak memory of a sparse model as the data grow, with the inducing states fixed: `python -m benchmarks.memory`.

A Poisson series with a Matérn-7/2 (d = 4) and M = 10,000 inducing times is conditioned at N = 10^5 and at N = 10^7,
each in a process of its own. Sites take O(M d²) and data pass by in tiles: all but the data should stay the same.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

import thiele as th

INDUCING = 10_000
PIECE = 100_000


def generated(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Irregular times and counts, made piece by piece so that making them takes no memory."""
    rng = np.random.default_rng(0)
    t, y = np.empty(n), np.empty(n)
    for start in range(0, n, PIECE):
        piece = slice(start, min(start + PIECE, n))
        size = piece.stop - piece.start
        t[piece] = 1e5 / n * (start + np.sort(rng.uniform(0.0, size, size)))
        y[piece] = rng.poisson(np.exp(np.sin(t[piece] / 30.0)))
    return t, y


def measure(n: int) -> None:
    """One line: N, the data in MB, peak memory in MB, seconds, sweeps, objective."""
    t, y = generated(n)
    began = time.perf_counter()
    fit = th.GP(th.Matern72(1.0, 50.0), th.Poisson(), inducing=INDUCING).condition(t, y)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert fit.inference is not None
    print(n, (t.nbytes + y.nbytes) / 2**20, peak, seconds, int(fit.inference.sweeps), fit.objective)


def main() -> None:
    """Both sizes, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, help="one size, in this process")
    parser.add_argument("--sizes", type=int, nargs=2, default=[10**5, 10**7])
    options = parser.parse_args()
    if options.only:
        measure(options.only)
        return
    rows = []
    print(f"{'N':>12} {'data MB':>9} {'peak MB':>9} {'apart MB':>9} {'s':>7} {'sweeps':>7}")
    for n in options.sizes:
        command = [sys.executable, "-m", "benchmarks.memory", "--only", str(n)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        _, data, peak, seconds, sweeps, _ = (float(x) for x in out)
        rows.append(peak - data)
        print(f"{n:>12} {data:>9.0f} {peak:>9.0f} {peak - data:>9.0f} {seconds:>7.1f} {sweeps:>7.0f}")
    print(f"peak memory apart from the data: {rows[1] / rows[0]:.2f} times")


if __name__ == "__main__":
    main()
