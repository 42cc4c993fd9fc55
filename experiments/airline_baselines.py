"""What a rate without a model scores on the airline counts: `python -m experiments.airline_baselines`.

Day by day Poisson with a rate that is constant, or a Gaussian kernel estimate of some bandwidth from the days that
train: how much there is to be learnt at all, on the published folds and with the score of the table; and on the same
folds less the days that the published programs put in front of the series.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import gammaln

from experiments.choices import without_padding
from experiments.tasks import FOLDS, TASKS, Split

BANDWIDTHS = (30, 120, 365, 730, 1500, 3000, 6000)


def nlpd(y: np.ndarray, rate: np.ndarray) -> float:
    """The mean negative log density of Poisson counts."""
    return float(np.mean(rate - y * np.log(rate) + gammaln(y + 1.0)))


def smoothed(y: np.ndarray, train: np.ndarray, bandwidth: float) -> np.ndarray:
    """The rate of each day from the days that train."""
    there = np.zeros(len(y))
    there[train] = 1.0
    seen, weight = (gaussian_filter1d(x, bandwidth, mode="constant") for x in (there * y, there))
    return np.maximum(seen / weight, 1e-4)


def scores(y: np.ndarray, folds: list[Split]) -> dict[str, list[float]]:
    """The score of each estimate on each fold."""
    found = {"constant": [nlpd(y[rows.test], np.full(len(rows.test), np.mean(y[rows.train]))) for rows in folds]}
    for days in BANDWIDTHS:
        found[f"{days} days"] = [nlpd(y[rows.test], smoothed(y, rows.train, days)[rows.test]) for rows in folds]
    return found


def main() -> None:
    """Print the table."""
    task = TASKS["airline"]
    y = task.load().value.astype(float)
    padded, bare = (scores(y, [split(task, fold) for fold in range(FOLDS)]) for split in (task.split, without_padding))
    print("| rate | NLPD, all folds | standard deviation | folds 0 to 2 | without padding |\n|---|---|---|---|---|")
    for name, found in padded.items():
        less = f"{np.mean(found):.4f} | {np.std(found):.4f} | {np.mean(found[:3]):.4f} | {np.mean(bare[name]):.4f}"
        print(f"| {name} | {less} |")


if __name__ == "__main__":
    main()
