"""A column as numbers; what is none is named by line and column."""

from __future__ import annotations

import numpy as np

from thiele.reading.files import Problem, Table

MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?", "."}
TRUE, FALSE = {"true", "yes"}, {"false", "no"}


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
            found[row] = np.nan if text.lower() in MISSING else number(text, table.decimal_comma)
        except ValueError:
            wrong = sum(not readable(x, table.decimal_comma) for x in column)
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


def number(text: str, decimal_comma: bool) -> float:
    """With a point, or with a comma where that does not part the cells."""
    try:
        return float(text)
    except ValueError:
        if decimal_comma and text.count(",") == 1 and "." not in text:
            return float(text.replace(",", "."))
        raise


def readable(text: str, decimal_comma: bool) -> bool:
    """Whether it is a number or stands for a missing one."""
    try:
        return text.lower() in MISSING or np.isfinite(number(text, decimal_comma)) is not None
    except ValueError:
        return False
