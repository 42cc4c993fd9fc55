"""The two models that were published for the audio task, side by side on one fold.

    python -m experiments.audio_models [--method "sparse-PEP(1)"] [--iterations 10] [--fold 0]

The paper prints neither variances nor frequencies. The earlier programs, and the study of inducing points, hold the
variances and have subbands at 220, 440 and 660 Hz. A later program has subbands of ten times the variance, learns the
variances of the modulators, and multiplies the frequencies by 2π once more.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import thiele as th
from experiments.methods import METHODS
from experiments.run import run
from experiments.tasks import FOLDS, FUNDAMENTAL, TASKS, Start

TASK = TASKS["audio"]


def later(start: Start, **method: Any) -> th.GP:
    """The model of the later program."""
    frequencies = [2.0 * np.pi * d * FUNDAMENTAL for d in (1, 2, 3)]
    subbands = (
        th.Subband(variance=th.fixed(1.0), lengthscale=start(75.0), frequency=start(frequency))
        for frequency in frequencies
    )
    modulators = (th.Matern52(variance=start(0.5), lengthscale=start(10.0)) for _ in range(3))
    return th.GP(th.Stack(*subbands, *modulators), th.SubbandProduct(subbands=3, variance=start(0.3)), **method)


MODELS = {"earlier, the task": TASK, "later": TASK._replace(model=later)}


def main() -> None:
    """Run both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="sparse-PEP(1)")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--fold", type=int, choices=range(FOLDS), default=0)
    options = parser.parse_args()
    print("| model | iterations | energy | NLPD |\n|---|---|---|---|", flush=True)
    for name, task in MODELS.items():
        found = run(task._replace(iterations=options.iterations), METHODS[options.method], options.fold, "paper")
        print(f"| {name} | {options.iterations} | {found['energy']:.0f} | {found['nlpd']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
