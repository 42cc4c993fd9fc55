"""Every figure at once: those of the stored runs, and on request those that must fit models first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments import boundaries, dots, figure1, figure4, store

# Of the folder of the records.
STORED: dict[str, Callable[[Path], Any]] = {
    "table": lambda folder: dots.draw(store.read(folder).values()),
    "figure4": lambda folder: figure4.draw(folder / "figure4"),
}
FITTED: dict[str, Callable[[], Any]] = {
    "figure1": figure1.draw,
    **{
        f"{name}-boundary": lambda load=load: boundaries.draw(*load(), boundaries.COUNT)
        for name, load in boundaries.DATA.items()
    },
}


def draw(out: Path, results: Path = store.RESULTS, *, fit: bool = False) -> Iterator[Path]:
    """Draw into a folder, one file after the other."""
    out.mkdir(parents=True, exist_ok=True)
    for name, drawn in STORED.items():
        yield _save(drawn(results), out / f"{name}.png")
    for name, drawn in FITTED.items() if fit else ():
        yield _save(drawn(), out / f"{name}.png")


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=160)
    plt.close(figure)
    return path
