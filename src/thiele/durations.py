"""Durations in words: "7 days" and "90 min" as numbers of days, and numbers of days as words.

Dates are counted in days, so a duration is a number of days. Months and years are those of the mean Gregorian calendar,
as a period needs them; steps from one date to the next by the calendar are made in `calendars`.
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

import numpy as np

YEAR = 365.2425
UNITS: dict[str, float] = {
    "ns": 1e-9 / 86400,
    "us": 1e-6 / 86400,
    "ms": 1e-3 / 86400,
    "second": 1 / 86400,
    "minute": 1 / 1440,
    "hour": 1 / 24,
    "day": 1.0,
    "week": 7.0,
    "month": YEAR / 12,
    "quarter": YEAR / 4,
    "year": YEAR,
}
SHORT = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
    "wk": "week",
}
SHORT |= {"mo": "month", "y": "year", "yr": "year"}
SHOWN = ("year", "day", "hour", "minute", "second", "ms", "us", "ns")
PART = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)?\s*([a-zµ]+)\s*(?:,|and)?", re.IGNORECASE)


def is_duration(value: Any) -> bool:
    """Whether this says how long something is in itself: words, a timedelta of Python, numpy or pandas."""
    return isinstance(value, str | datetime.timedelta | np.timedelta64)


def in_days(value: Any, name: str) -> float:
    """A duration as a number of days.

    >>> in_days("7 days", "period"), in_days("1 h 30 min", "period") * 24
    (7.0, 1.5)
    """
    if isinstance(value, datetime.timedelta):  # those of pandas are such
        days = value / datetime.timedelta(days=1)
    elif isinstance(value, np.timedelta64):
        if np.datetime_data(value.dtype)[0] in ("Y", "M"):
            count = value.astype(np.int64)
            days = float(count) * (YEAR if np.datetime_data(value.dtype)[0] == "Y" else YEAR / 12)
        else:
            days = float(value / np.timedelta64(1, "D"))
    else:
        days = _of_words(value, name)
    if not math.isfinite(days):
        raise ValueError(f"`{name}` must be a finite duration, got {value!r}")
    return days


def _of_words(words: str, name: str) -> float:
    total, place = 0.0, 0
    while place < len(words.rstrip()):
        part = PART.match(words, place)
        unit = None if part is None else _unit(part[2])
        if part is None or unit is None:
            raise ValueError(
                f'`{name}` must be a duration such as "7 days", "90 min" or "1 year", got {words!r}; '
                f"units are {', '.join(UNITS)}"
            )
        total += float(part[1] or 1.0) * UNITS[unit]
        place = part.end()
    if place == 0:
        raise ValueError(f'`{name}` must be a duration such as "7 days", got {words!r}')
    return total


def _unit(word: str) -> str | None:
    word = word.lower().replace("µ", "u")
    for name in (word, word.removesuffix("s")):
        if name in UNITS:
            return name
        if name in SHORT:
            return SHORT[name]
    return None


def in_words(days: float) -> str:
    """A number of days with the unit that suits it, in four digits.

    >>> in_words(7.0), in_words(0.0625), in_words(800.0)
    ('7 days', '1.5 hours', '2.19 years')
    """
    size = abs(days)
    if size == 0.0:
        return "0 days"
    unit = next((u for u in SHOWN if size >= (2.0 if u == "year" else 1.0 - 1e-9) * UNITS[u]), "ns")
    number = f"{days / UNITS[unit]:.4g}"
    plural = "" if unit in ("ms", "us", "ns") or number == "1" else "s"
    return f"{number} {unit}{plural}"
