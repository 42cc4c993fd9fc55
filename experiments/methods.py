"""Methods: a rule, and whether data share sites at inducing times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import thiele as th
from thiele.rules import AbstractRule


class Method(NamedTuple):
    """A rule with a step of any size; a sparse method takes the task's number of inducing times."""

    name: str
    rule: Callable[..., AbstractRule]
    sparse: bool = False

    def settings(self, inducing: int, step: float) -> dict[str, Any]:
        """What the method adds to a model's arguments."""
        rule = {"rule": self.rule(step=step)}
        return {**rule, "inducing": inducing} if self.sparse else rule


def _power_ep(power: float) -> Callable[..., AbstractRule]:
    return lambda step: th.PowerEP(power=power, step=step)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("full-EKS", th.EKS),
        Method("full-PL", th.PL),
        Method("full-PEP(1)", _power_ep(1.0)),
        Method("full-PEP(0.5)", _power_ep(0.5)),
        Method("full-PEP(0.01)", _power_ep(0.01)),
        Method("full-CVI", th.CVI),
    )
}
