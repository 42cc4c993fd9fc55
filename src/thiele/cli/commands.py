"""The commands of `thiele`."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import thiele as th
from thiele import reading
from thiele.cli.learning import learnt, length, loaded_or_learnt
from thiele.cli.options import (
    Exposure,
    File,
    Format,
    Horizon,
    Key,
    Level,
    Likelihood,
    Out,
    Quiet,
    Seasons,
    Share,
    Stated,
    Time,
    Value,
)
from thiele.cli.showing import describe, draw, finish, problems, remark, write_table

EXIT = "Exit status: 0 done; 2 wrong use; 3 something is wrong with a file; 4 done, but learning did not converge."

app = typer.Typer(
    help="Gaussian processes for time series: from a CSV file to a picture and a forecast.",
    epilog=EXIT,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command("fit", epilog="Example: thiele fit calls.csv --value calls --plot calls.png\n\n" + EXIT)
def fit_command(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file with a header.", show_default=False)],
    time: Time = None,
    value: Value = None,
    key: Key = None,
    share: Share = False,
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
    """Choose a model for a series, or one for many series, learn it, say what was learnt, and save it."""
    with problems():
        fit = learnt(file, Stated(time, value, key, share, likelihood, season, exposure, date_format), quiet)
        describe(fit)
        path = fit.save(out or Path(f"{file.stem}.thiele"))
        more = "" if isinstance(fit, th.Panel) else f", thiele report {path}"
        remark(quiet, f"saved to {path}; try: thiele forecast {path} --horizon …{more}")
        if plot is not None:
            draw(fit, plot, quiet)
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
    key: Key = None,
    share: Share = False,
    likelihood: Likelihood = None,
    season: Seasons = None,
    exposure: Exposure = None,
    date_format: Format = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """A table of what comes after the data: mean, standard deviation, and the interval of an observation.

    Of many series, each goes on after its own last time, and the table has a column of keys.
    """
    with problems():
        stated = Stated(time, value, key, share, likelihood, season, exposure, date_format)
        fit = loaded_or_learnt(file, stated, quiet)
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
    key: Key = None,
    share: Share = False,
    date_format: Format = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """A table of predictions at given times, before, between and after the data; by default at the data's own."""
    with problems():
        fit = loaded_or_learnt(file, Stated(time, value, key, share, date_format=date_format), quiet)
        when: Any = None
        if times is not None:
            table = reading.read(times)
            names = list(table.columns)
            given = next((name for name in names if name.lower() in reading.TIME_NAMES), names[0])
            when = reading.times(table, time if time in names else given, date_format)
        elif at:
            when = reading.times(reading.Table(Path("--at"), {"at": at}, 0), "at", date_format)
        found = fit.table(when, level) if isinstance(fit, th.Panel) else fit.predict(when).table(level)
        write_table(found, out, quiet)
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
    only: Annotated[str | None, typer.Option(help="Of a file with many series: the key of the one to show.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Default: FILE.html here.")] = None,
    quiet: Quiet = False,
) -> None:
    """An interactive page about a series: one HTML file that needs no network."""
    with problems():
        stated = Stated(time, value, None, False, likelihood, season, exposure, date_format)
        fit = one_of(loaded_or_learnt(file, stated, quiet), only, file)
        ahead = None if horizon is None else length(horizon)
        heading = title or (file.stem if only is None else f"{file.stem}: {only}")
        path = fit.report(out or Path(f"{file.stem}.html"), horizon=ahead, title=heading, level=level)
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


def one_of(found: th.Fit | th.Panel, only: str | None, file: Path) -> th.Fit:
    """The series that a page is about."""
    if isinstance(found, th.Fit):
        if only is not None:
            raise reading.Problem(f"{file} holds one series: leave out --only")
        return found
    named = {str(key): fit for key, fit in found.items()}
    if only not in named:
        some = ", ".join(list(named)[:5]) + (", …" if len(named) > 5 else "")
        what = f"holds {len(named)} series and" if only is None else f"has no series {only!r}:"
        raise reading.Problem(f"{file} {what} a page shows one: say which with --only, of {some}")
    return named[only]


def seconds_at(n: int) -> tuple[float, float]:
    """Of the log likelihood and of the posterior at the data, for an irregular series of n."""
    t = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, n))
    y = np.sin(t / 50.0)
    model = th.GP(th.Matern32(1.0, 50.0), th.Gaussian(0.1), mean=0.0)
    # Compiled as a whole: by itself `log_likelihood` is for other programs to transform, and runs step by step.
    compiled = jax.jit(lambda model: model.log_likelihood(t, y))
    return best_of(lambda: float(compiled(model))), best_of(lambda: model.condition(t, y).predict().var)


def best_of(run: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that compiles."""
    run()
    seconds = []
    for _ in range(times):
        began = clock.perf_counter()
        run()
        seconds.append(clock.perf_counter() - began)
    return min(seconds)
