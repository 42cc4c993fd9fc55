"""The stored runs in brief: tables laid out like the paper's, how many cells agree, and the best of each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from experiments import paper
from experiments.cells import MATCHES, Cell, cells, compare
from experiments.markdown import markdown

# Schedules that look for the best model rather than for the paper's numbers.
LOOKING = ("best", "map")
VERDICTS = (*MATCHES, "better", "worse")
BEST_COLUMNS = (
    *("task", "method", "schedule", "folds", "NLPD", "s.e.", "seconds a run"),
    *("best sparse in print", "as good", "best full in print", "as good"),
)


def layout(schedule: str, found: Sequence[Cell]) -> str:
    """Methods down, tasks across; in each cell our NLPD / the paper's, and the count of folds if some are missing."""
    ours = {(cell.task, cell.method): cell for cell in found if cell.schedule == schedule}
    lines = [(schedule, *paper.TASKS)]
    lines += [
        (method, *(_pair(ours.get((task, method)), task, method) for task in paper.TASKS)) for method in paper.METHODS
    ]
    return markdown(lines)


def _pair(cell: Cell | None, task: str, method: str) -> str:
    printed = paper.NLPD.get((task, method))
    theirs = "-" if printed is None else f"{printed:.3f}"
    if cell is None:
        return "-" if printed is None else f"- / {theirs}"
    few = "" if cell.folds == paper.FOLDS else f" ({cell.folds} folds)" if cell.folds > 1 else " (1 fold)"
    return f"{cell.nlpd:.3f}{few} / {theirs}"


def agreement(schedule: str, found: Sequence[Cell]) -> str:
    """How many cells of the paper were run under a schedule, and how they compare; those that do not agree by name."""
    return _compared(schedule, [cell for cell in found if cell.schedule == schedule and cell.printed is not None])


def in_all(found: Sequence[Cell]) -> str:
    """The same where each cell has its nearest schedule: what is left to be explained, and what was not run at all."""
    nearest: dict[tuple[str, str], Cell] = {}
    for cell in sorted(found, key=lambda cell: VERDICTS.index(cell.verdict) if cell.printed is not None else 0):
        if cell.printed is not None:
            nearest.setdefault((cell.task, cell.method), cell)
    missing = [" ".join(key) for key in paper.NLPD if key not in nearest]
    rest = [f"without a run: {', '.join(missing)}."] if missing else []
    return "\n".join([_compared("nearest schedule", list(nearest.values())), *rest])


def _compared(name: str, beside: Sequence[Cell]) -> str:
    count = Counter(cell.verdict for cell in beside)
    verdicts = ", ".join(f"{count[v]} {v}" for v in VERDICTS)
    lines = [f"{name}: {len(beside)} of the paper's {len(paper.NLPD)} cells were run: {verdicts}."]
    for verdict in ("better", "worse"):
        names = [f"{c.task} {c.method} {_signed(c)}" for c in beside if c.verdict == verdict]
        lines += [f"{verdict}: {', '.join(names)}."] if names else []
    return "\n".join(lines)


def _signed(cell: Cell) -> str:
    assert cell.printed is not None
    return f"{cell.nlpd - cell.printed:+.3f}" + ("" if cell.folds == paper.FOLDS else f" ({cell.coverage} folds)")


def best_cells(found: Sequence[Cell]) -> dict[str, Cell]:
    """For each task the smallest NLPD under a schedule that looks for it. A mean over fewer folds than another has does
    not compete: folds differ more than methods do.
    """
    best = {}
    for task in paper.TASKS:
        tried = [cell for cell in found if cell.task == task and cell.schedule in LOOKING]
        most = max((cell.folds for cell in tried), default=0)
        if tried:
            best[task] = min((cell for cell in tried if cell.folds == most), key=lambda cell: cell.nlpd)
    return best


def best_table(found: Sequence[Cell]) -> str:
    """The best of each task beside the best in print, sparse and full."""
    best = best_cells(found)
    lines = [BEST_COLUMNS]
    for task in paper.TASKS:
        printed = [paper.best(task, full=full) for full in (False, True)]
        if task not in best:
            lines.append((task, *"------", f"{printed[0]:.3f}", "not run", f"{printed[1]:.3f}", "not run"))
            continue
        cell = best[task]
        error = "-" if cell.standard_error is None else f"{cell.standard_error:.4f}"
        own = (task, cell.method, cell.schedule, cell.coverage, f"{cell.nlpd:.4f}", error, f"{cell.seconds:.1f}")
        lines.append((*own, *(text for p in printed for text in (f"{p:.3f}", as_good(cell, p)))))
    return markdown(lines)


def as_good(cell: Cell, printed: float) -> str:
    """Yes where it is at least as good to the three decimals in print; else how near it comes."""
    if round(cell.nlpd, 3) <= printed:
        return "yes"
    verdict = compare(cell, printed)
    return "no" if verdict == "worse" else verdict


def summary(records: Iterable[dict[str, Any]]) -> str:
    """All of it, schedule by schedule."""
    found = cells(records)
    schedules = sorted({cell.schedule for cell in found})
    parts = [f"{layout(schedule, found)}\n\n{agreement(schedule, found)}" for schedule in schedules]
    looking = f"The best of each task, looking under {' and '.join(LOOKING)}:"
    return "\n\n".join([*parts, in_all(found), looking, best_table(found)])
