"""The numbers in print: Wilkinson, Solin and Adam (AISTATS 2021), table 1. Mean NLPD of 10 folds; smaller is better.

Three decimals were printed. A method that the paper could not run on a task is not listed there.
"""

from __future__ import annotations

TASKS = ("motorcycle", "coal", "banana", "binary", "audio", "airline", "electricity")

_ROWS = {
    "full-EKS": (0.871, 0.924, 0.212, 0.205, 0.412, 0.128, -0.420),
    "full-PL": (0.893, 0.924, 0.211, 0.189, -0.514, 0.128, -0.420),
    "full-PEP(1)": (0.429, 0.924, 0.211, 0.189, -1.441, 0.128, -0.420),
    "full-PEP(0.5)": (0.422, 0.924, 0.211, 0.189, -0.902, 0.128, -0.420),
    "full-PEP(0.01)": (0.416, 0.924, 0.211, 0.188, 0.169, 0.128, -0.420),
    "full-CVI": (0.415, 0.924, 0.211, 0.188, 0.671, 0.128, -0.420),
    "sparse-EKS": (0.870, 0.924, 0.212, 0.205, 0.218, 0.128, -0.085),
    "sparse-PL": (0.892, 0.925, 0.211, 0.189, 0.213, 0.128, -0.085),
    "sparse-PEP(1)": (0.456, 0.924, 0.211, 0.189, -1.326, 0.128, -0.085),
    "sparse-PEP(0.5)": (0.420, 0.924, 0.211, 0.189, -0.624, 0.128, -0.074),
    "sparse-PEP(0.01)": (0.428, 0.924, 0.211, 0.188, 0.624, 0.128, -0.153),
    "sparse-CVI": (0.428, 0.924, 0.211, 0.188, 0.681, 0.128, -0.152),
    "S2VGP": (0.434, 0.937, 0.215, 0.236),
    "SVGP": (0.440, 0.954, 0.226, 0.207),
}

NLPD: dict[tuple[str, str], float] = {
    (task, method): value for method, row in _ROWS.items() for task, value in zip(TASKS, row, strict=False)
}
"""By task and method."""
