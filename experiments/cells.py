"""Cells of the table: the records of a task, a method and a schedule, beside the number in print."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import sqrt
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from experiments import paper
from experiments.methods import runs_as

# Numbers this near are taken for the same.
NEAR = 0.01
MATCHES = ("within 0.01", "within s.e.")


class Cell(NamedTuple):
    """NLPD over the folds that were run, with its standard error where there are two or more."""

    task: str
    method: str
    schedule: str
    folds: int
    nlpd: float
    standard_error: float | None
    seconds: float

    @property
    def printed(self) -> float | None:
        """The paper's number; it is a mean over all folds, whichever were run here."""
        return paper.NLPD.get((self.task, self.method))

    @property
    def verdict(self) -> str:
        """How it compares with the paper's number."""
        return "-" if self.printed is None else compare(self, self.printed)

    @property
    def coverage(self) -> str:
        """How many folds of how many."""
        return f"{self.folds} of {paper.FOLDS}"


def compare(cell: Cell, printed: float) -> str:
    """Within 0.01 of a number in print, within one standard error over the folds, better or worse."""
    difference = cell.nlpd - printed
    if abs(difference) <= NEAR:
        return MATCHES[0]
    if cell.standard_error is not None and abs(difference) <= cell.standard_error:
        return MATCHES[1]
    return "better" if difference < 0.0 else "worse"


def cells(records: Iterable[dict[str, Any]]) -> list[Cell]:
    """One for each task, method and schedule: tasks and methods in the paper's order, schedules by name."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        for method in paper.METHODS:
            if runs_as(record["task"], method) == record["method"]:
                groups[record["task"], method, record["schedule"]].append(record)
    found = []
    for (task, method, schedule), group in groups.items():
        nlpd = [r["nlpd"] for r in group]
        error = stdev(nlpd) / sqrt(len(nlpd)) if len(nlpd) > 1 else None
        seconds = median(r["seconds"] for r in group)
        found.append(Cell(task, method, schedule, len(group), mean(nlpd), error, seconds))
    return sorted(found, key=lambda c: (paper.TASKS.index(c.task), c.schedule, paper.METHODS.index(c.method)))
