"""The table: mean NLPD over the folds beside the paper's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean, median
from typing import Any

from experiments import paper

COLUMNS = ("task", "method", "schedule", "folds", "NLPD", "paper", "difference", "seconds a run")


def rows(records: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each task, method and schedule, in the paper's order."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["task"], record["method"], record["schedule"]].append(record)
    order = list(paper.NLPD)
    found = []
    for task, method, schedule in sorted(groups, key=lambda g: (paper.TASKS.index(g[0]), g[2], order.index(g[:2]))):
        group = groups[task, method, schedule]
        nlpd, printed = mean(r["nlpd"] for r in group), paper.NLPD[task, method]
        seconds = median(r["seconds"] for r in group)
        found.append(
            (
                *(task, method, schedule, str(len(group))),
                *(f"{nlpd:.4f}", f"{printed:.3f}", f"{nlpd - printed:+.4f}", f"{seconds:.1f}"),
            )
        )
    return found


def table(records: Iterable[dict[str, Any]]) -> str:
    """The rows as a table that is read alike on a terminal and in Markdown."""
    lines = [COLUMNS, *rows(records)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])
