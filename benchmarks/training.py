"""One task of the experiments trained by thiele: what `iteration` and `reference` measure of it."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

import thiele as th
from benchmarks.floor import Sizes
from experiments.methods import METHODS
from experiments.run import settings
from experiments.tasks import TASKS, split

KINDS = ("sparse", "full")
# Of `fit`, if it is not told otherwise.
MOST_STEPS = 200
RULES = {"CVI": "CVI", "PEP": "PEP(1)"}


class Ran(NamedTuple):
    """A fit, the seconds that it took, those of all cores, and when each of its steps was done."""

    fit: th.Fit
    seconds: float
    cpu: float
    steps: np.ndarray


class Training:
    """A task's first fold with one kind of sites and one rule, to be fitted as often as asked."""

    def __init__(self, task: str, kind: str, rule: str):
        self.task, self.method = TASKS[task], METHODS[f"{kind}-{RULES[rule]}"]
        self.data, self.rows = self.task.load(), split(self.task, 0)

    def sizes(self) -> Sizes:
        """What the floor is counted from."""
        kernel = self.task.model(float).kernel
        sde = kernel.sde()
        block = max(block.dim for block in sde.blocks)
        return Sizes(
            len(self.rows.train), self.task.inducing if self.method.sparse else 0, sde.dim, kernel.latents, block
        )

    def paper(self, steps: int) -> Ran:
        """So many steps of the paper's schedule, and nothing after them."""
        return self._fitted("paper", max_steps=steps, settle=False)

    def best(self, most: int = MOST_STEPS) -> Ran:
        """The library's own way to the maximum of the energy, or so many steps of it."""
        return self._fitted("best", max_steps=most)

    def reach(self, target: float | None) -> tuple[Ran, int, float]:
        """The shortest fit, of 1, 2, 4, … steps of the quasi-Newton search, whose NLPD is at most `target`, the steps
        allowed and the NLPD; the whole search where none is, or without a target. What it needs is compiled before. Of
        a fit of less than a second the median of several counts: a single one of milliseconds says little.
        """
        most = 1 if target is not None else MOST_STEPS
        while True:
            ran = self.best(most)
            nlpd = self.nlpd(ran.fit)
            if most >= MOST_STEPS or (target is not None and nlpd <= target):
                again = [self.best(most).seconds for _ in range(8)] if ran.seconds < 1.0 else []
                return ran._replace(seconds=float(np.median([ran.seconds, *again]))), most, nlpd
            most = min(2 * most, MOST_STEPS)

    def iterations(self, count: int) -> np.ndarray:
        """Seconds of each of `count` steps of the paper's schedule, after two that prepare."""
        return np.diff(self.paper(2 + count).steps)[1:]

    def nlpd(self, fit: th.Fit) -> float:
        """The mean negative log predictive density of the rows to test."""
        rows = self.rows.test
        return -float(np.mean(fit.log_density(self.data.time[rows], self.data.value[rows], **self.data.covariates)))

    def _fitted(self, schedule: str, **changes: object) -> Ran:
        task, data, rows = self.task, self.data, self.rows.train
        step, options, _ = settings(task, schedule)
        model = task.model(float, **self.method.settings(task.inducing, step, task.between))
        options = {**options, **changes, **data.covariates}
        wall, cpu = time.perf_counter(), time.process_time()
        fit = model.fit(data.time[rows], data.value[rows], progress=False, **options)
        assert fit.trace is not None
        return Ran(fit, time.perf_counter() - wall, time.process_time() - cpu, fit.trace.seconds)
