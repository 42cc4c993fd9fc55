"""`thiele`: fit, predict, forecast, report, demo and bench from a shell, on CSV and Parquet files.

A program for people: what is wrong with a file is said by column and line, results go to the standard output, remarks
and progress to the standard error, and the exit status tells one from the other.
"""

from __future__ import annotations

import os
import sys
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np

try:
    import typer
except ImportError:  # the only use of this file is the command line
    sys.exit("the command line needs typer, which is not installed: `pip install thiele[cli]`")

import thiele as th
from thiele import reading
from thiele.axes import Table
from thiele.reading import Problem
from thiele.store import NotSaved, write_whole

WRONG_DATA, NOT_CONVERGED = 3, 4
EXIT = "Exit status: 0 done; 2 wrong use; 3 something is wrong with a file; 4 done, but learning did not converge."

app = typer.Typer(
    help="Gaussian processes for time series: from a CSV file to a picture and a forecast.",
    epilog=EXIT,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

File = Annotated[
    Path, typer.Argument(help="A CSV or Parquet file, or a fit saved by `thiele fit`.", show_default=False)
]
Time = Annotated[str | None, typer.Option("--time", "-t", help="Column of times. Default: told by name and contents.")]
Value = Annotated[str | None, typer.Option("--value", "-y", help="Column of values. Default: the only one there is.")]
Format = Annotated[str | None, typer.Option(help='How dates are written, such as "%d.%m.%Y". Default: ISO and others.')]
Likelihood = Annotated[
    str | None, typer.Option(help="Kind of values: gaussian, poisson, bernoulli, … Default: told from them.")
]
Seasons = Annotated[
    list[str] | None, typer.Option("--season", help='A season, such as "1 week"; may be repeated. "none": none.')
]
Exposure = Annotated[str | None, typer.Option(help="Column of exposures, for counts.")]
Horizon = Annotated[
    str, typer.Option("--horizon", "-h", help='How far ahead: "14 days", or a number in units of time.')
]
Level = Annotated[float, typer.Option(min=0.01, max=0.999, help="Probability of the intervals.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write; CSV, or Parquet by its name.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress.")]

KINDS = (
    *("Gaussian", "StudentT", "LaplaceNoise", "Bernoulli", "Poisson", "NegativeBinomial", "ZeroInflatedPoisson"),
    *("Gamma", "Exponential", "LogNormal", "Weibull", "Beta"),
)
LIKELIHOODS: dict[str, Callable[[], Any]] = {name.lower(): getattr(th, name) for name in KINDS}


@app.command("fit", epilog="Example: thiele fit calls.csv --value calls --plot calls.png\n\n" + EXIT)
def fit_command(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file with a header.", show_default=False)],
    time: Time = None,
    value: Value = None,
    likelihood: Likelihood = None,
    season: Seasons = None,
    exposure: Exposure = None,
    date_format: Format = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to save the fit. Default: FILE.thiele here.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it to this file (.png, .pdf, .svg).")] = None,
    quiet: Quiet = False,
) -> None:
    """Choose a model for a series, learn it, say what was learnt, and save it."""
    with problems():
        fit = learnt(file, time, value, likelihood, season, exposure, date_format, quiet)
        typer.echo(str(fit.summary()))
        for warning in fit.check().warnings if fit.predict().y_mean.ndim == 1 else ():
            typer.echo(f"warning: {warning}")
        path = fit.save(out or Path(f"{file.stem}.thiele"))
        remark(quiet, f"saved to {path}; try: thiele forecast {path} --horizon …, thiele report {path}")
        if plot is not None:
            draw(fit, plot)
            remark(quiet, f"drawn to {plot}")
        finish(fit)


@app.command(epilog='Example: thiele forecast calls.thiele --horizon "14 days" --out next.csv\n\n' + EXIT)
def forecast(
    file: File,
    horizon: Horizon,
    step: Annotated[
        str | None, typer.Option(help='Steps between times, such as "1 hour". Default: as in the data.')
    ] = None,
    level: Level = 0.95,
    time: Time = None,
    value: Value = None,
    likelihood: Likelihood = None,
    season: Seasons = None,
    exposure: Exposure = None,
    date_format: Format = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """A table of what comes after the data: mean, standard deviation, and the interval of an observation."""
    with problems():
        fit = loaded_or_learnt(file, time, value, likelihood, season, exposure, date_format, quiet)
        found = fit.forecast(length(horizon), step=None if step is None else length(step), level=level)
        write_table(found, out, quiet)
        finish(fit)


@app.command(epilog="Example: thiele predict calls.thiele --at 2024-05-01 --at 2024-05-02\n\n" + EXIT)
def predict(
    file: File,
    times: Annotated[
        Path | None, typer.Argument(help="A file with the times to predict at.", show_default=False)
    ] = None,
    at: Annotated[list[str] | None, typer.Option(help="A time to predict at; may be repeated.")] = None,
    level: Level = 0.95,
    time: Time = None,
    value: Value = None,
    date_format: Format = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """A table of predictions at given times, before, between and after the data; by default at the data's own."""
    with problems():
        fit = loaded_or_learnt(file, time, value, None, None, None, date_format, quiet)
        when: Any = None
        if times is not None:
            table = reading.read(times)
            names = list(table.columns)
            given = next((name for name in names if name.lower() in reading.TIME_NAMES), names[0])
            when = reading.times(table, time if time in names else given, date_format)
        elif at:
            when = reading.times(reading.Table(Path("--at"), {"at": at}, 0), "at", date_format)
        write_table(fit.predict(when).table(level), out, quiet)
        finish(fit)


@app.command(epilog='Example: thiele report calls.csv --horizon "4 weeks" --out calls.html\n\n' + EXIT)
def report(
    file: File,
    horizon: Annotated[
        str | None, typer.Option("--horizon", "-h", help="How far ahead. Default: 15 % of the span.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heads the page. Default: the name of the file.")] = None,
    level: Level = 0.95,
    time: Time = None,
    value: Value = None,
    likelihood: Likelihood = None,
    season: Seasons = None,
    exposure: Exposure = None,
    date_format: Format = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: FILE.html here.")] = None,
    quiet: Quiet = False,
) -> None:
    """An interactive page about a series: one HTML file that needs no network."""
    with problems():
        fit = loaded_or_learnt(file, time, value, likelihood, season, exposure, date_format, quiet)
        ahead = None if horizon is None else length(horizon)
        path = fit.report(out or Path(f"{file.stem}.html"), horizon=ahead, title=title or file.stem, level=level)
        remark(quiet, f"written to {path}: open it in a browser")
        finish(fit)


@app.command()
def demo() -> None:
    """Fit two real series that travel with the package, say what was learnt, draw them to figures/."""
    from thiele.demo import main as run

    run()


@app.command()
def bench(
    most: Annotated[int, typer.Option(min=1000, help="The longest series.")] = 100_000,
) -> None:
    """Time exact inference on this machine: log likelihood and posterior of series of growing length."""
    typer.echo(f"{'data':>10}  {'log likelihood':>16}  {'posterior at the data':>22}   first call of each size apart")
    n = 1000
    while n <= most:
        likelihood, posterior = seconds_at(n)
        typer.echo(f"{n:>10,}  {1e3 * likelihood:>13.2f} ms  {1e3 * posterior:>19.2f} ms")
        n *= 10


def seconds_at(n: int) -> tuple[float, float]:
    """Of the log likelihood and of the posterior at the data, for an irregular series of n."""
    t = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, n))
    y = np.sin(t / 50.0)
    model = th.GP(th.Matern32(1.0, 50.0), th.Gaussian(0.1), mean=0.0)
    return best_of(lambda: float(model.log_likelihood(t, y))), best_of(lambda: model.condition(t, y).predict().var)


# What the commands share.


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


def finish(fit: th.Fit) -> None:
    """The exit status."""
    if not fit.converged:
        raise typer.Exit(NOT_CONVERGED)


def learnt(
    file: Path,
    time: str | None,
    value: str | None,
    likelihood: str | None,
    season: list[str] | None,
    exposure: str | None,
    date_format: str | None,
    quiet: bool,
) -> th.Fit:
    """A model for the series of a file, chosen and fitted."""
    table = reading.read(file)
    data = reading.choose(table, time, value, date_format)
    remark(quiet, f"{file}: {len(data.y)} rows, times from {data.time!r}, values from {data.value!r}")
    for words in data.remarks:
        remark(quiet, f"  {words}")
    stated: dict[str, Any] = {}
    if likelihood is not None:
        if likelihood.lower() not in LIKELIHOODS:
            raise Problem(f"--likelihood must be one of {', '.join(LIKELIHOODS)}; got {likelihood!r}")
        stated["likelihood"] = LIKELIHOODS[likelihood.lower()]()
    if season:
        stated["seasons"] = [] if season == ["none"] else [length(words) for words in season]
    covariates = {} if exposure is None else {"exposure": reading.numbers(table, exposure, "exposures")}
    model = th.GP.auto(data.t, data.y, **stated, **covariates)
    for words in model.notes:
        remark(quiet, f"  {words}")
    return model.fit(data.t, data.y, progress=False if quiet else None, **covariates)


def loaded_or_learnt(file: Path, *how: Any) -> th.Fit:
    """A saved fit, or one of a file of data."""
    return th.load(file) if file.suffix == ".thiele" and file.exists() else learnt(file, *how)


def length(words: str) -> Any:
    """A number, or a duration as it stands."""
    try:
        return float(words)
    except ValueError:
        return words


def draw(fit: th.Fit, path: Path) -> None:
    """A picture without a screen."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise Problem("--plot needs matplotlib, which is not installed: `pip install thiele[plot]`") from None
    mpl.use("Agg")
    usual = {name: float(np.median(x)) for name, x in fit.data.covariates.items()}
    span = float(fit.data.time[-1] - fit.data.time[0])
    ax = fit.plot(horizon=0.1 * span, **({"covariates": usual} if usual else {}))
    ax.figure.savefig(path, dpi=150)


def write_table(found: Any, out: Path | None, quiet: bool) -> None:
    """To a file, or to the standard output as CSV."""
    columns = dict(found) if isinstance(found, Table) else {found.index.name or "time": found.index, **found}
    columns = {name: np.asarray(column) for name, column in columns.items()}
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


def as_csv(columns: dict[str, np.ndarray]) -> str:
    """Numbers in seven digits, dates as ISO has them, without hours where all are midnight."""
    shown = {name: cells(column) for name, column in columns.items()}
    return "\n".join([",".join(shown), *(",".join(row) for row in zip(*shown.values(), strict=True))]) + "\n"


def cells(column: np.ndarray) -> list[str]:
    """One column as text."""
    if column.dtype.kind != "M":
        return [f"{x:.7g}" if isinstance(x, float) else str(x) for x in column.tolist()]
    whole_days = bool(np.all(column == column.astype("datetime64[D]")))
    return [str(x) for x in column.astype("datetime64[D]" if whole_days else "datetime64[s]")]


def best_of(run: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that compiles."""
    run()
    seconds = []
    for _ in range(times):
        began = clock.perf_counter()
        run()
        seconds.append(clock.perf_counter() - began)
    return min(seconds)


def main() -> None:
    """The entry point. What was compiled is kept for the next time, in the user's folder for such things."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "thiele" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    app()


if __name__ == "__main__":
    main()
