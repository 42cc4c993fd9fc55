"""A task of the experiments in words and arrays, for a worker that cannot import thiele.

The settings are read off the task's own model, so that no number is written twice:

    {"kind": "sparse", "rule": "CVI", "newton": 0.5, "adam": 0.2, "kernel": {...}, "likelihood": {...}}

A kernel or a likelihood has its `name`, the starting `values` of its hyperparameters, which of them are `held`, and, of
a stack, a sum or a product of time and space, its `parts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import thiele as th
from experiments.tasks import Data, Split, Task
from thiele.kernels import AbstractKernel
from thiele.likelihoods import AbstractLikelihood


def settings_of(task: Task, data: Data, kind: str, rule: str) -> dict[str, Any]:
    """What the published schedule needs to know of a task."""
    model = task.model(float)
    exposure = {"exposure": data.covariates["exposure"]} if "exposure" in data.covariates else {}
    return {
        "task": task.name,
        "kind": kind,
        "rule": rule,
        "newton": task.newton,
        "adam": task.adam,
        "kernel": kernel_in_words(model.kernel),
        "likelihood": {**likelihood_in_words(model.likelihood), **exposure},
    }


def write_data(task: Task, data: Data, rows: Split, path: Path) -> None:
    """Both parts of a fold, and the published inducing times: evenly spaced over all of the data unless said."""
    times = data.time if data.time.ndim == 1 else data.time[:, 0]
    low, high = task.between or (np.min(times), np.max(times))
    np.savez(
        path,
        time=data.time[rows.train],
        value=data.value[rows.train],
        test_time=data.time[rows.test],
        test_value=data.value[rows.test],
        inducing=np.linspace(low, high, task.inducing),
    )


def kernel_in_words(kernel: AbstractKernel) -> dict[str, Any]:
    """A kernel as its name, its values and its parts."""
    if isinstance(kernel, th.SpaceTime):
        space = {"name": type(kernel.space).__name__, **_values(kernel.space)}
        parts = [kernel_in_words(kernel.time), space]
        return {"name": "SpaceTime", "parts": parts, "points": np.asarray(kernel.points())[:, 0].tolist()}
    if isinstance(kernel, th.Sum):
        return {"name": "Sum", "parts": [kernel_in_words(term) for term in kernel.terms]}
    if kernel.latents > 1:
        return {"name": "Stack", "parts": [kernel_in_words(latent) for latent in kernel.each_latent()]}
    order = {"order": kernel.order} if isinstance(kernel, th.Subband | th.QuasiPeriodic) else {}
    return {"name": type(kernel).__name__, **_values(kernel), **order}


def likelihood_in_words(likelihood: AbstractLikelihood) -> dict[str, Any]:
    """A likelihood as its name, its values and what it is made of."""
    more: dict[str, Any] = {}
    if isinstance(likelihood, th.Bernoulli):
        more = {"link": likelihood.link}
    if isinstance(likelihood, th.SubbandProduct):
        more = {"subbands": likelihood.subbands}
    values = _values(likelihood)
    # The exposure is a number of each datum, not a hyperparameter that is learnt: the data bring it.
    if isinstance(likelihood, th.Poisson):
        values, more = {}, {"exposure": 1.0}
    return {"name": type(likelihood).__name__, **values, **more}


def _values(module: Any) -> dict[str, Any]:
    found = list(th.parameters.parameters(module))
    held = [parameter.name for parameter in found if parameter.fixed]
    return {"values": {p.name: float(p.value) for p in found}, **({"held": held} if held else {})}
