"""The table: mean NLPD over the folds beside the paper's, one row for each task, method and schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from experiments import paper
from experiments.cells import Cell, cells
from experiments.markdown import markdown

COLUMNS = ("task", "method", "schedule", "folds", "NLPD", "s.e.", "paper", "difference", "verdict", "seconds a run")


def row(cell: Cell) -> tuple[str, ...]:
    """What is not known, or not in print, is a dash."""
    error = "-" if cell.standard_error is None else f"{cell.standard_error:.4f}"
    printed, difference = "-", "-"
    if cell.printed is not None:
        printed, difference = f"{cell.printed:.3f}", f"{cell.nlpd - cell.printed:+.4f}"
    return (
        *(cell.task, cell.method, cell.schedule, cell.coverage),
        *(f"{cell.nlpd:.4f}", error, printed, difference, cell.verdict, f"{cell.seconds:.1f}"),
    )


def table(records: Iterable[dict[str, Any]], methods: Collection[str] = paper.METHODS) -> str:
    """The rows of some methods, in the paper's order."""
    return markdown([COLUMNS, *(row(cell) for cell in cells(records) if cell.method in methods)])
