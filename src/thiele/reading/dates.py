"""A column as times: numbers, or dates in the way that the column writes them."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import numpy as np

from thiele.reading.files import Problem, Table
from thiele.reading.numbers import MISSING, number, readable

# Beside ISO, which comes first. Day and month may be taken for one another: both orders are tried.
FORMATS = ("%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
SLASHED = (("%d/%m/%Y", "%m/%d/%Y"), ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"), ("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"))
NAMED = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %Y", "%B %Y")


def times(table: Table, name: str, date_format: str | None = None) -> np.ndarray:
    """A column as numbers or dates, known in every row."""
    column = table.column(name, "times")
    if isinstance(column, np.ndarray):
        missing = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column.astype(float))
        _refuse_missing(table, name, missing)
        return column if column.dtype.kind == "M" else column.astype(float)
    _refuse_missing(table, name, np.array([text.lower() in MISSING for text in column]))
    if date_format is not None:
        return _dates(table, name, column, lambda text: datetime.datetime.strptime(text, date_format), date_format)
    if all(readable(text, table.decimal_comma) for text in column):
        return np.array([number(text, table.decimal_comma) for text in column])
    parse, words = _format_of(table, name, column)
    return _dates(table, name, column, parse, words)


def _refuse_missing(table: Table, name: str, missing: np.ndarray) -> None:
    if np.any(missing):
        row = int(np.argmax(missing))
        more = f" (and {int(np.sum(missing)) - 1} more)" if np.sum(missing) > 1 else ""
        raise Problem(
            f"{table.path}, {table.where(row)}, column {name!r}: the time is missing{more}; every row needs one, a "
            "value may be missing"
        )


Parse = Callable[[str], datetime.datetime]


def _format_of(table: Table, name: str, column: list[str]) -> tuple[Parse, str]:
    """The way of writing dates that all of the column, or at least its beginning, follows."""
    ways: list[tuple[str, Parse]] = [("ISO dates such as 2024-01-31", _iso)]
    for form in (*FORMATS, *NAMED):
        ways.append((form, lambda text, form=form: datetime.datetime.strptime(text, form)))
    for words, parse in ways:
        if _parses(parse, column[0]):
            return parse, words
    for pair in SLASHED:
        fits = [form for form in pair if all(_parses(_by(form), text) for text in column)]
        if len(fits) == 2:
            raise Problem(
                f"{table.path}, column {name!r}: is {column[0]!r} day/month or month/day? Both fit all rows; say which "
                f'with --date-format "{pair[0]}" or "{pair[1]}"'
            )
        if fits:
            return _by(fits[0]), fits[0]
    raise Problem(
        f"{table.path}, {table.where(0)}, column {name!r} for the times: {column[0]!r} is neither a number nor a date "
        'that is understood; write 2024-01-31 or 2024-01-31 14:30, or say how with --date-format, such as "%d.%m.%Y"'
    )


def _by(form: str) -> Parse:
    return lambda text: datetime.datetime.strptime(text, form)


def _iso(text: str) -> datetime.datetime:
    if len(text) == 7 and text[4] == "-":
        text = f"{text}-01"
    found = datetime.datetime.fromisoformat(text)
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo is not None else found


def _parses(parse: Parse, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _dates(table: Table, name: str, column: list[str], parse: Parse, words: str) -> np.ndarray:
    found = np.empty(len(column), dtype="datetime64[us]")
    for row, text in enumerate(column):
        try:
            found[row] = parse(text)
        except ValueError:
            raise Problem(
                f"{table.path}, {table.where(row)}, column {name!r} for the times: {text!r} is no date like the others "
                f"({words})"
            ) from None
    return found
