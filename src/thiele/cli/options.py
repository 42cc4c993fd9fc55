"""Options that commands share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

File = Annotated[
    Path, typer.Argument(help="A CSV or Parquet file, or a fit saved by `thiele fit`.", show_default=False)
]
Time = Annotated[str | None, typer.Option("--time", "-t", help="Column of times. Default: told by name and contents.")]
Value = Annotated[str | None, typer.Option("--value", "-y", help="Column of values. Default: the only one there is.")]
Key = Annotated[
    str | None, typer.Option("--key", "-k", help="Column that tells many series apart; they are fitted together.")
]
Share = Annotated[bool, typer.Option("--share", help="With --key: the same hyperparameters for all series.")]
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


class Stated(NamedTuple):
    """What the user says about a file of data and the model for it; None where it is to be told from the data."""

    time: str | None = None
    value: str | None = None
    key: str | None = None
    share: bool = False
    likelihood: str | None = None
    season: list[str] | None = None
    exposure: str | None = None
    date_format: str | None = None
