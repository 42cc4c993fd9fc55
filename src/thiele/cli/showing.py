"""What a command shows: remarks and errors for people, tables and pictures for files, and the exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import typer

import thiele as th
from thiele.archives import NotSaved, write_whole
from thiele.axes import Table
from thiele.reading import Problem

WRONG_DATA, NOT_CONVERGED = 3, 4
MOST_DRAWN = 12  # series of a panel in one picture


@contextmanager
def problems() -> Iterator[None]:
    """What a user can put right ends the program in one line, not in a traceback."""
    try:
        yield
    except (Problem, NotSaved) as problem:
        stop(str(problem))
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError) as problem:
        # The library's own errors name the argument, what was expected and what came.
        stop(str(problem))


def stop(words: str) -> None:
    """Say what is wrong and end."""
    typer.echo(f"thiele: {words}", err=True)
    raise typer.Exit(WRONG_DATA)


def remark(quiet: bool, words: str) -> None:
    """For people, beside the results."""
    if not quiet:
        typer.echo(words, err=True)


def finish(found: th.Fit | th.Panel) -> None:
    """The exit status."""
    fits = found.values() if isinstance(found, th.Panel) else (found,)
    if not all(fit.converged for fit in fits):
        raise typer.Exit(NOT_CONVERGED)


def describe(found: th.Fit | th.Panel) -> None:
    """What was learnt: a summary of one series, a line for each of many."""
    if isinstance(found, th.Fit):
        typer.echo(str(found.summary()))
        for warning in found.check().warnings if found.predict().y_mean.ndim == 1 else ():
            typer.echo(f"warning: {warning}")
        return
    typer.echo(str(found))
    shown = {
        found.name: np.array(list(found)),
        "observed": np.array([int(np.sum(fit.data.observed)) for fit in found.values()]),
        "objective": np.array([fit.objective for fit in found.values()]),
        "converged": np.array(["yes" if fit.converged else "no" for fit in found.values()]),
    }
    typer.echo(as_csv(shown), nl=False)


def draw(found: th.Fit | th.Panel, path: Path, quiet: bool) -> None:
    """A picture without a screen; of many series one below the other."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise Problem("--plot needs matplotlib, which is not installed: `pip install thiele[plot]`") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = dict(list(found.items())[:MOST_DRAWN]) if isinstance(found, th.Panel) else {None: found}
    size = (7.0, 3.5 if len(shown) == 1 else 2.2 * len(shown))
    figure, axes = plt.subplots(len(shown), figsize=size, sharex=True, squeeze=False, layout="constrained")
    for (name, fit), ax in zip(shown.items(), axes[:, 0], strict=True):
        usual = {name: float(np.median(x)) for name, x in fit.data.covariates.items()}
        span = float(fit.data.time[-1] - fit.data.time[0])
        fit.plot(ax=ax, horizon=0.1 * span, legend=ax is axes[0, 0], **({"covariates": usual} if usual else {}))
        if name is not None:
            ax.set_title(str(name), loc="left", fontsize="medium")
        ax.label_outer()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    only = (
        f", the first {MOST_DRAWN} of {len(found)} series"
        if isinstance(found, th.Panel) and found.keys() > shown.keys()
        else ""
    )
    remark(quiet, f"drawn to {path}{only}")


def write_table(found: Any, out: Path | None, quiet: bool) -> None:
    """To a file, or to the standard output as CSV."""
    columns = _columns(found)
    if out is None:
        typer.echo(as_csv(columns), nl=False)
        return
    if out.suffix.lower() in (".parquet", ".pq"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), out)
    else:
        write_whole(out, as_csv(columns).encode())
    remark(quiet, f"written to {out}")


def _columns(found: Any) -> dict[str, np.ndarray]:
    """Of a table in whichever library the saved data came in."""
    if hasattr(found, "to_dataframe"):  # xarray
        found = found.to_dataframe()
    if hasattr(found, "reset_index"):  # pandas
        index = [name or "time" for name in found.index.names]
        found = found.rename_axis(index).reset_index()
    columns = dict(found) if isinstance(found, Table) else {name: found[name] for name in found.columns}
    return {str(name): np.asarray(column) for name, column in columns.items()}


def as_csv(columns: dict[str, np.ndarray]) -> str:
    """Numbers in seven digits, dates as ISO has them, without hours where all are midnight."""
    shown = {name: cells(column) for name, column in columns.items()}
    return "\n".join([",".join(shown), *(",".join(row) for row in zip(*shown.values(), strict=True))]) + "\n"


def cells(column: np.ndarray) -> list[str]:
    """One column as text."""
    if column.dtype.kind != "M":
        return [f"{x:.7g}" if isinstance(x, float) else quoted(str(x)) for x in column.tolist()]
    whole_days = bool(np.all(column == column.astype("datetime64[D]")))
    return [str(x) for x in column.astype("datetime64[D]" if whole_days else "datetime64[s]")]


def quoted(text: str) -> str:
    """As a cell of a CSV file: in quotes where it holds what parts cells."""
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text
