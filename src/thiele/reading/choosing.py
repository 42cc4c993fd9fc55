"""Which columns hold the times, the values and the keys of series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from thiele.reading.dates import times
from thiele.reading.files import Problem, Table, listed
from thiele.reading.numbers import MISSING, numbers

TIME_NAMES = ("time", "date", "datetime", "timestamp", "ds", "t", "day", "week", "month", "year", "hour")
VALUE_NAMES = ("value", "y", "count", "counts", "values", "n")
FEWEST = 3  # values that say something about how values change with time


class Chosen(NamedTuple):
    """Times and values of a file, the names of their columns, and remarks for the user; the keys of many series."""

    t: np.ndarray
    y: np.ndarray
    time: str
    value: str
    remarks: tuple[str, ...]
    keys: np.ndarray | None = None

    def longest(self) -> tuple[str, np.ndarray]:
        """The key with the most values that are not missing, and its rows; with no keys, all rows."""
        if self.keys is None:
            return "", np.ones(len(self.y), bool)
        names, counts = np.unique(self.keys[~np.isnan(self.y)], return_counts=True)
        name = str(names[np.argmax(counts)])
        return name, self.keys == name


def choose(
    table: Table,
    time: str | None = None,
    value: str | None = None,
    date_format: str | None = None,
    key: str | None = None,
) -> Chosen:
    """The columns that are named, or those that can be told by their names and contents; `key` tells series apart."""
    found = None if key is None else _keys(table, key)
    table = table._replace(columns={name: column for name, column in table.columns.items() if name != key})
    names = list(table.columns)
    if len(names) < 2 and (time is None or value is None):
        beside = "" if key is None else f" beside {key!r}"
        raise Problem(f"{table.path} has one column{beside}, {listed(names)}: times and values are needed")
    time = time or _time_column(table, date_format)
    t = times(table, time, date_format)
    if value is None:
        others = [name for name in names if name != time and _can(numbers, table, name, "values")]
        named = [name for name in others if name.lower() in VALUE_NAMES]
        candidates = named or others
        if len(candidates) > 1:
            raise Problem(
                f"{table.path}: which column holds the values? {listed(candidates)} could; say --value {candidates[0]}"
            )
        value = candidates[0] if candidates else next(name for name in names if name != time)
    y = numbers(table, value, "values")
    if found is None:
        _require_enough(y, f"{table.path}, column {value!r}")
        return Chosen(t, y, time, value, tuple(_remarks(t, y)))
    for name in dict.fromkeys(found.tolist()):
        _require_enough(y[found == name], f"{table.path}, column {value!r}, series {name!r} of {key!r}")
    return Chosen(t, y, time, value, tuple(_remarks(t, y, found)), found)


def _require_enough(y: np.ndarray, where: str) -> None:
    if np.all(np.isnan(y)):
        raise Problem(f"{where}: all {len(y)} values are missing")
    if (known := int(np.sum(~np.isnan(y)))) < FEWEST:
        raise Problem(
            f"{where}: {known} value(s) say nothing about how values change with time; at least {FEWEST} are needed"
        )


def _keys(table: Table, name: str) -> np.ndarray:
    """A column as text, known in every row."""
    column = table.column(name, "keys")
    found = np.array([str(x) for x in (column.tolist() if isinstance(column, np.ndarray) else column)])
    missing = np.array([text.lower() in MISSING for text in found])
    if np.any(missing):
        row = int(np.argmax(missing))
        more = f" (and {int(np.sum(missing)) - 1} more)" if np.sum(missing) > 1 else ""
        raise Problem(
            f"{table.path}, {table.where(row)}, column {name!r}: the key is missing{more}; every row needs one, to say "
            "which series it belongs to"
        )
    return found


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


def _remarks(t: np.ndarray, y: np.ndarray, keys: np.ndarray | None = None) -> list[str]:
    said = []
    parts = [t] if keys is None else [t[keys == name] for name in dict.fromkeys(keys.tolist())]
    if any(np.any(np.diff(part) < np.zeros((), np.diff(part).dtype)) for part in parts):
        said.append("rows are not in the order of time: they are sorted")
    if repeated := sum(len(part) - len(np.unique(part)) for part in parts):
        said.append(f"{repeated} times are repeated: all their values are used")
    if missing := int(np.sum(np.isnan(y))):
        said.append(f"{missing} values are missing")
    return said
