"""One run: a task, a method, a fold and a schedule make a record."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np

import thiele as th
from experiments.methods import Method
from experiments.tasks import Task

# "paper": the settings of the published experiment. "best": the library's own, the maximum of the energy. "map": the
# same with a belief about each hyperparameter, for data too few to tell.
SCHEDULES = ("best", "paper", "map")
# Of the belief: the logarithm of a hyperparameter is within so much of that of its published starting value.
WIDTH = 0.5


class Settings(NamedTuple):
    """The step of the rule, the arguments of `fit`, and the width of the belief."""

    step: float
    options: dict[str, Any]
    width: float | None = None

    def start(self, value: float) -> Any:
        """A hyperparameter that starts from `value`."""
        return value if self.width is None else th.param(value, prior=th.priors.LogNormal(value, self.width))


def settings(task: Task, schedule: str) -> Settings:
    """What a schedule means for a task."""
    if schedule == "paper":
        options = {"schedule": "paper", "learning_rate": task.adam, "max_steps": task.iterations}
        options |= {} if task.settle else {"settle": False}
        return Settings(task.newton, options)
    return Settings(1.0, {"schedule": "best"}, WIDTH if schedule == "map" else None)


def run(task: Task, method: Method, fold: int, schedule: str) -> dict[str, Any]:
    """Fit on nine parts and score the tenth by the mean negative log predictive density (NLPD)."""
    data, rows = task.load(), task.split(task, fold)
    step, options, width = chosen = settings(task, schedule)
    model = task.model(chosen.start, **method.settings(task.inducing, step, task.between))
    begun = time.perf_counter()
    fit = model.fit(data.time[rows.train], data.value[rows.train], progress=False, **options, **data.covariates)
    seconds = time.perf_counter() - begun
    densities = fit.log_density(data.time[rows.test], data.value[rows.test], **data.covariates)
    record = {
        "task": task.name,
        "method": method.name,
        "fold": fold,
        "schedule": schedule,
        "seed": None,  # nothing is drawn at random
        "settings": {**options, "step": step, "width": width, "inducing": task.inducing if method.sparse else None},
        "version": th.__version__,
        "device": jax.devices()[0].device_kind,
        "nlpd": -float(np.mean(densities)),
        "energy": fit.objective,
        "converged": fit.converged,
        "seconds": round(seconds, 2),  # the first run of a shape compiles
        "sweeps": int(fit.trace.sweeps[-1]),
        "peak_memory_mib": round(_peak_memory_mib()),
    }
    if isinstance(fit.likelihood, th.Bernoulli):
        guess = fit.predict(data.time[rows.test]).y_mean > 0.5
        record["error"] = float(np.mean(guess != (data.value[rows.test] > 0.5)))
    return record


def _peak_memory_mib() -> float:
    """The most memory that this process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
