"""Columns of a CSV or Parquet file as times and values; errors name the file, the column, the line and the way out."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TIME_NAMES = ("time", "date", "datetime", "timestamp", "ds", "t", "day", "week", "month", "year", "hour")
VALUE_NAMES = ("value", "y", "count", "counts", "values", "n")
MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?", "."}
TRUE, FALSE = {"true", "yes"}, {"false", "no"}
# Beside ISO, which comes first. Day and month may be taken for one another: both orders are tried.
FORMATS = ("%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
SLASHED = (("%d/%m/%Y", "%m/%d/%Y"), ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"), ("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"))
NAMED = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %Y", "%B %Y")


class Problem(Exception):
    """Something about a file that its owner can put right; the message says what and how."""


class Table(NamedTuple):
    """Columns by name: text as it stands in a CSV file, arrays from Parquet; and the line of the first row."""

    path: Path
    columns: dict[str, Any]
    first_line: int
    decimal_comma: bool = False

    @property
    def rows(self) -> int:
        """How many."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def where(self, row: int) -> str:
        """A row as its owner finds it."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row + 1}"

    def column(self, name: str, role: str) -> Any:
        """A column by its name, or a word on which there are."""
        if name not in self.columns:
            near = [c for c in self.columns if c.lower() == name.lower()]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise Problem(f"{self.path} has no column {name!r} for the {role}; it has {_listed(self.columns)}{hint}")
        return self.columns[name]


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def read(path: str | Path) -> Table:
    """The columns of a file; what it is follows from its name."""
    path = Path(path)
    if not path.exists():
        raise Problem(f"{path} does not exist")
    if path.is_dir():
        raise Problem(f"{path} is a folder, not a file")
    if path.stat().st_size == 0:
        raise Problem(f"{path} is empty")
    table = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    if table.rows == 0:
        raise Problem(f"{path} has a header ({_listed(table.columns)}) but no rows")
    return table


def _csv(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        text = path.read_text(encoding="latin-1")
        if "\x00" in text:
            raise Problem(f"{path} is no text: thiele reads CSV and Parquet files (ending .parquet)") from None
    head = text.lstrip().splitlines()
    if not head:
        raise Problem(f"{path} is empty")
    delimiter = max(",;\t|", key=head[0].count)
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    top = next(i for i, row in enumerate(rows) if any(cell.strip() for cell in row))
    names = [cell.strip() for cell in rows[top]]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(f"{path} has two columns named {twice!r}: rename one of them")
    if all(_is_number(name) for name in names):
        raise Problem(
            f"{path} has no header: its first line must name the columns, such as 'time,value'; got {head[0]!r}"
        )
    body = rows[top + 1 :]
    while body and not any(cell.strip() for cell in body[-1]):
        body.pop()
    for i, row in enumerate(body):
        if len(row) > len(names) or (len(row) < len(names) and any(cell.strip() for cell in row)):
            raise Problem(
                f"{path}, line {i + top + 2}: {len(row)} cells where the header has {len(names)}"
                + ("; a comma inside a cell needs quotes around it" if len(row) > len(names) else "")
            )
    full = [row if len(row) == len(names) else [""] * len(names) for row in body]
    columns = {name: [row[k].strip() for row in full] for k, name in enumerate(names)}
    return Table(path, columns, top + 2, decimal_comma=delimiter != ",")


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise Problem(f"{path}: Parquet needs pyarrow, which is not installed: `pip install thiele[cli]`") from error
    try:
        found = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise Problem(f"{path} is no Parquet file: {str(error).splitlines()[0]}") from None
    columns = {}
    for name in found.column_names:
        column = found.column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        kept = (
            pa.types.is_temporal(column.type) or pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        )
        kept = kept or pa.types.is_boolean(column.type)
        columns[name] = column.to_numpy() if kept else ["" if x is None else str(x) for x in column.to_pylist()]
    return Table(path, columns, 0)


# Numbers.


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def numbers(table: Table, name: str, role: str) -> np.ndarray:
    """A column as numbers, NaN where it is empty; yes and no are 1 and 0."""
    column = table.column(name, role)
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "mM":
            raise Problem(f"{table.path}, column {name!r} for the {role}: it holds dates, not numbers")
        try:
            return column.astype(float)
        except (TypeError, ValueError):  # an array of objects: numbers, None and what else
            column = ["" if x is None else str(x) for x in column]
    words = {text.lower() for text in column} - MISSING
    if words and words <= TRUE | FALSE:
        return np.array([np.nan if text.lower() in MISSING else float(text.lower() in TRUE) for text in column])
    found = np.empty(len(column))
    for row, text in enumerate(column):
        try:
            found[row] = np.nan if text.lower() in MISSING else _number(text, table.decimal_comma)
        except ValueError:
            wrong = sum(not _readable(x, table.decimal_comma) for x in column)
            more = f" (and {wrong - 1} more)" if wrong > 1 else ""
            raise Problem(
                f"{table.path}, {table.where(row)}, column {name!r} for the {role}: {text!r} is no number{more}; leave "
                "a cell empty where a value is missing"
            ) from None
    if np.any(infinite := np.isinf(found)):
        row = int(np.argmax(infinite))
        raise Problem(
            f"{table.path}, {table.where(row)}, column {name!r} for the {role}: infinite values are not allowed"
        )
    return found


def _number(text: str, decimal_comma: bool) -> float:
    try:
        return float(text)
    except ValueError:
        if decimal_comma and text.count(",") == 1 and "." not in text:
            return float(text.replace(",", "."))
        raise


def _readable(text: str, decimal_comma: bool) -> bool:
    try:
        return text.lower() in MISSING or np.isfinite(_number(text, decimal_comma)) is not None
    except ValueError:
        return False


# Times.


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
    if all(_readable(text, table.decimal_comma) for text in column):
        return np.array([_number(text, table.decimal_comma) for text in column])
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


# Which columns.


class Chosen(NamedTuple):
    """Times and values of a file, the names of their columns, and remarks for the user."""

    t: np.ndarray
    y: np.ndarray
    time: str
    value: str
    remarks: tuple[str, ...]


def choose(table: Table, time: str | None = None, value: str | None = None, date_format: str | None = None) -> Chosen:
    """The columns that are named, or those that can be told by their names and contents."""
    names = list(table.columns)
    if len(names) < 2 and (time is None or value is None):
        raise Problem(f"{table.path} has one column, {_listed(names)}: times and values are needed")
    time = time or _time_column(table, date_format)
    t = times(table, time, date_format)
    if value is None:
        others = [name for name in names if name != time and _can(numbers, table, name, "values")]
        named = [name for name in others if name.lower() in VALUE_NAMES]
        candidates = named or others
        if len(candidates) > 1:
            raise Problem(
                f"{table.path}: which column holds the values? {_listed(candidates)} could; say --value {candidates[0]}"
            )
        value = candidates[0] if candidates else next(name for name in names if name != time)
    y = numbers(table, value, "values")
    if np.all(np.isnan(y)):
        raise Problem(f"{table.path}, column {value!r}: all {len(y)} values are missing")
    if np.sum(~np.isnan(y)) < 3:
        raise Problem(
            f"{table.path}, column {value!r}: {int(np.sum(~np.isnan(y)))} value(s) say nothing about how values change "
            "with time; at least 3 are needed"
        )
    return Chosen(t, y, time, value, tuple(_remarks(t, y)))


def _time_column(table: Table, date_format: str | None) -> str:
    """By its name; else the first that holds dates; else the first that holds numbers; else the first."""
    suits = {name: _can(times, table, name, date_format) for name in table.columns}
    named = [name for usual in TIME_NAMES for name in table.columns if name.lower() == usual]
    if named:  # one that cannot be read is still meant: the error will say what is wrong with it
        return next((name for name in named if suits[name]), named[0])
    dated = [name for name in table.columns if suits[name] and not _can(numbers, table, name, "values")]
    return next(iter([*dated, *(name for name in suits if suits[name]), *table.columns]))


def _can(read_column: Callable[..., np.ndarray], table: Table, name: str, *more: Any) -> bool:
    try:
        read_column(table, name, *more)
    except Problem:
        return False
    return True


def _remarks(t: np.ndarray, y: np.ndarray) -> list[str]:
    said = []
    if np.any(np.diff(t) < np.zeros((), np.diff(t).dtype)):
        said.append("rows are not in the order of time: they are sorted")
    if repeated := len(t) - len(np.unique(t)):
        said.append(f"{repeated} times are repeated: all their values are used")
    if missing := int(np.sum(np.isnan(y))):
        said.append(f"{missing} values are missing")
    return said
