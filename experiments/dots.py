"""The table as a picture: NLPD by task and method, ours by schedule and the paper's, with standard errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from experiments import paper
from experiments.cells import Cell, cells


class Look(NamedTuple):
    """How a source of numbers is drawn, and how far below the line of its method."""

    label: str
    colour: str
    marker: str
    below: float


# Okabe and Ito's colours, which the colour-blind tell apart; the markers tell them apart in grey.
PAPER = Look("in print", "#666666", "|", -0.27)
OURS = {
    "paper": Look("thiele, the paper's schedule", "#E69F00", "s", -0.09),
    "best": Look("thiele, best", "#0072B2", "o", 0.09),
    "map": Look("thiele, map", "#009E73", "D", 0.27),
}


def dot(ax: Any, look: Look, method: str, nlpd: float, error: float | None, *, whole: bool = True) -> None:
    """One number with its standard error; hollow where it is not over all folds."""
    line = paper.METHODS.index(method) + look.below
    fill = look.colour if whole else "white"
    style = {"color": look.colour, "marker": look.marker, "mfc": fill, "markersize": 7 if look is PAPER else 4}
    ax.errorbar(nlpd, line, xerr=error, elinewidth=0.8, linestyle="none", **style)


def panel(ax: Any, task: str, found: Sequence[Cell]) -> None:
    """One task: a line for each method."""
    for method in paper.METHODS:
        if (task, method) in paper.NLPD:
            dot(ax, PAPER, method, paper.NLPD[task, method], paper.STANDARD_ERROR[task, method])
    for cell in found:
        if cell.task == task:
            dot(ax, OURS[cell.schedule], cell.method, cell.nlpd, cell.standard_error, whole=cell.folds == paper.FOLDS)
    # Stripes lead the eye from a name to its numbers.
    for line in range(0, len(paper.METHODS), 2):
        ax.axhspan(line - 0.5, line + 0.5, color="#f3f3f3", zorder=0)
    ax.set_title(task, fontsize=10)
    ax.set(ylim=(len(paper.METHODS) - 0.5, -0.6), xlabel="NLPD")
    ax.set_yticks(range(len(paper.METHODS)), paper.METHODS, fontsize=8)
    ax.tick_params(axis="x", labelsize=8)
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", nbins=5)


def draw(records: Iterable[dict[str, Any]]) -> Any:
    """A panel for each task, and the legend where the eighth would be."""
    found = cells(records)
    figure, axes = plt.subplots(2, 4, figsize=(13.0, 8.0), sharey=True, layout="constrained")
    for ax, task in zip(axes.flat, paper.TASKS, strict=False):
        panel(ax, task, found)
    looks = [PAPER, *(look for schedule, look in OURS.items() if any(cell.schedule == schedule for cell in found))]
    handles = [Line2D([], [], color=k.colour, marker=k.marker, linestyle="none", label=k.label) for k in looks]
    title = f"mean over the folds,\nand its standard error;\nhollow: fewer than {paper.FOLDS} folds"
    last = axes.flat[-1]
    last.axis("off")
    last.legend(handles=handles, loc="center", frameon=False, title=title)
    return figure
