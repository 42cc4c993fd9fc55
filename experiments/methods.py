"""Methods: a rule, and whether data share sites at inducing times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

import thiele as th
from thiele.rules import AbstractRule

# Inducing values are dense: a pass over n data is 2 n M² operations, and holds matrices of n × M numbers. With the 4000
# of airline that is 10¹² a pass, and hours a fold on a few cores; the paper stopped near 1000.
MOST_VALUES = 2000


# With Gaussian noise and a state at each datum nothing is approximated, whatever the rule: the methods with a site for
# each datum are one there, and it is run once, under this name. And y is linear in f, so that both linearisations, at
# the mean of q or over all of it, are y itself: EKS and PL have the same sites and the same energy.
GAUSSIAN_TASKS = ("electricity",)
EXACT = "full-CVI"
SAME_WITH_GAUSSIAN_NOISE = {"sparse-PL": "sparse-EKS"}


def runs_as(task: str, method: str) -> str:
    """The method that is run, and under whose name records are kept, where one is asked for."""
    if task not in GAUSSIAN_TASKS:
        return method
    return EXACT if METHODS[method].sparse is None else SAME_WITH_GAUSSIAN_NOISE.get(method, method)


class Method(NamedTuple):
    """A rule with a step of any size; a sparse method takes the task's number of inducing states or values."""

    name: str
    rule: Callable[..., AbstractRule]
    sparse: Literal["states", "values"] | None = None

    def settings(self, inducing: int, step: float, between: tuple[float, float] | None = None) -> dict[str, Any]:
        """What the method adds to a model's arguments; inducing times lie `between` two times, or where the data do."""
        rule = {"rule": self.rule(step=step)}
        if self.sparse is None:
            return rule
        if between is None:
            return {**rule, "inducing": th.Inducing(inducing, of=self.sparse)}
        return {**rule, "inducing": th.Inducing(times=np.linspace(*between, inducing), of=self.sparse)}

    def obstacle(self, inducing: int) -> str | None:
        """Why the method cannot run with so many inducing times, if it cannot."""
        if self.sparse == "values" and inducing > MOST_VALUES:
            return f"dense algebra of values at {inducing} inducing times, and {MOST_VALUES} are the most"
        return None


def _power_ep(power: float) -> Callable[..., AbstractRule]:
    return lambda step: th.PowerEP(power=power, step=step)


def _by_gradients(step: float) -> AbstractRule:
    """The step of a site update means nothing to Adam, which has its own."""
    return th.VGP()


_RULES: dict[str, Callable[..., AbstractRule]] = {
    "EKS": th.EKS,
    "PL": th.PL,
    "PEP(1)": _power_ep(1.0),
    "PEP(0.5)": _power_ep(0.5),
    "PEP(0.01)": _power_ep(0.01),
    "CVI": th.CVI,
}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(Method(f"full-{name}", rule) for name, rule in _RULES.items()),
        *(Method(f"sparse-{name}", rule, "states") for name, rule in _RULES.items()),
        Method("S2VGP", _by_gradients, "states"),
        Method("SVGP", _by_gradients, "values"),
    )
}
