"""The numbers in print: Wilkinson, Solin and Adam (AISTATS 2021), table 1. NLPD over 10 folds; smaller is better.

Means were printed with three decimals, standard deviations over the folds with two. A method that the paper could not
run on a task has no number for it.
"""

from __future__ import annotations

from math import sqrt

TASKS = ("motorcycle", "coal", "banana", "binary", "audio", "airline", "electricity")
FOLDS = 10

# Means and standard deviations, in the order of the tasks.
_ROWS = {
    "full-EKS": ((0.871, 0.924, 0.212, 0.205, 0.412, 0.128, -0.420), (0.16, 0.11, 0.01, 0.02, 0.01, 0.04, 0.01)),
    "full-PL": ((0.893, 0.924, 0.211, 0.189, -0.514, 0.128, -0.420), (0.15, 0.12, 0.01, 0.02, 0.18, 0.04, 0.01)),
    "full-PEP(1)": ((0.429, 0.924, 0.211, 0.189, -1.441, 0.128, -0.420), (0.31, 0.12, 0.01, 0.02, 0.02, 0.04, 0.01)),
    "full-PEP(0.5)": ((0.422, 0.924, 0.211, 0.189, -0.902, 0.128, -0.420), (0.31, 0.12, 0.01, 0.02, 0.05, 0.04, 0.01)),
    "full-PEP(0.01)": ((0.416, 0.924, 0.211, 0.188, 0.169, 0.128, -0.420), (0.32, 0.12, 0.01, 0.02, 0.08, 0.04, 0.01)),
    "full-CVI": ((0.415, 0.924, 0.211, 0.188, 0.671, 0.128, -0.420), (0.32, 0.12, 0.01, 0.02, 0.03, 0.04, 0.01)),
    "sparse-EKS": ((0.870, 0.924, 0.212, 0.205, 0.218, 0.128, -0.085), (0.16, 0.11, 0.01, 0.02, 0.00, 0.04, 0.02)),
    "sparse-PL": ((0.892, 0.925, 0.211, 0.189, 0.213, 0.128, -0.085), (0.15, 0.11, 0.01, 0.02, 0.11, 0.04, 0.02)),
    "sparse-PEP(1)": ((0.456, 0.924, 0.211, 0.189, -1.326, 0.128, -0.085), (0.37, 0.11, 0.01, 0.02, 0.01, 0.04, 0.02)),
    "sparse-PEP(0.5)": (
        (0.420, 0.924, 0.211, 0.189, -0.624, 0.128, -0.074),
        (0.35, 0.11, 0.01, 0.02, 0.07, 0.04, 0.02),
    ),
    "sparse-PEP(0.01)": (
        (0.428, 0.924, 0.211, 0.188, 0.624, 0.128, -0.153),
        (0.33, 0.11, 0.01, 0.02, 0.04, 0.04, 0.01),
    ),
    "sparse-CVI": ((0.428, 0.924, 0.211, 0.188, 0.681, 0.128, -0.152), (0.33, 0.11, 0.01, 0.02, 0.03, 0.04, 0.01)),
    "S2VGP": ((0.434, 0.937, 0.215, 0.236), (0.31, 0.10, 0.01, 0.01)),
    "SVGP": ((0.440, 0.954, 0.226, 0.207), (0.30, 0.12, 0.01, 0.02)),
}

METHODS = tuple(_ROWS)
"""In the order of the tables here: full, sparse, by gradients."""

NLPD: dict[tuple[str, str], float] = {
    (task, method): value for method, (row, _) in _ROWS.items() for task, value in zip(TASKS, row, strict=False)
}
"""By task and method."""

STANDARD_ERROR: dict[tuple[str, str], float] = {
    (task, method): sd / sqrt(FOLDS) for method, (_, row) in _ROWS.items() for task, sd in zip(TASKS, row, strict=False)
}
"""Of the same means."""


def best(task: str, *, full: bool) -> float:
    """The smallest NLPD in print for a task: of the methods with a site for each datum, or of the sparse ones."""
    return min(value for (t, method), value in NLPD.items() if t == task and method.startswith("full-") == full)
