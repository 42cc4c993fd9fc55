"""The next dates of a series: by the month where it goes by months, by local days where it has a time zone."""

from __future__ import annotations

import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

ENOUGH = 3  # dates from which a rhythm of the calendar is read
LATEST_OF_SHORT = 28  # the day of a month that every month has


class Rhythm(NamedTuple):
    """How one date follows another: by so many months, or so many days."""

    months: int = 0
    days: float = 0.0
    at_end: bool = False
    """On the last day of each month."""


def rhythm_of(stamps: np.ndarray) -> Rhythm:
    """The usual step between local dates in their order."""
    distinct = np.unique(stamps)
    if len(distinct) < 2:
        return Rhythm(days=1.0)
    months = distinct.astype("datetime64[M]")
    since = distinct - months.astype(distinct.dtype)
    lasting = (months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")
    at_end = bool(np.all(since // np.timedelta64(1, "D") == lasting / np.timedelta64(1, "D") - 1))
    one_day = bool(np.all(since == since[0])) and since[0] < np.timedelta64(LATEST_OF_SHORT, "D")
    if len(distinct) >= ENOUGH and (one_day or at_end) and np.min(np.diff(months).astype(int)) > 0:
        return Rhythm(months=int(np.median(np.diff(months).astype(int))), at_end=at_end and not one_day)
    return Rhythm(days=float(np.median(np.diff(distinct) / np.timedelta64(1, "D"))))


def following(last: np.datetime64, rhythm: Rhythm, count: int) -> np.ndarray:
    """`count` dates after `last`, as microseconds."""
    last = last.astype("datetime64[us]")
    steps = np.arange(1, count + 1)
    if not rhythm.months:
        return last + np.round(steps * rhythm.days * 86_400e6).astype("timedelta64[us]")
    month = last.astype("datetime64[M]")
    to = month + rhythm.months * steps
    if rhythm.at_end:
        hour = last - last.astype("datetime64[D]")
        return ((to + 1).astype("datetime64[D]") - 1).astype("datetime64[us]") + hour
    return to.astype("datetime64[us]") + (last - month.astype("datetime64[us]"))


def to_local(utc: np.ndarray, zone: str | None) -> np.ndarray:
    """Dates of UTC as a clock on the wall of `zone` shows them."""
    if zone is None:
        return utc
    shown = [_python(d).replace(tzinfo=datetime.UTC).astimezone(zone_of(zone)).replace(tzinfo=None) for d in utc]
    return np.array(shown, dtype="datetime64[us]")


def to_utc(local: np.ndarray, zone: str | None) -> np.ndarray:
    """And back: an hour that the clock shows twice is the first of the two."""
    if zone is None:
        return local
    kept = [_python(d).replace(tzinfo=zone_of(zone)).astimezone(datetime.UTC).replace(tzinfo=None) for d in local]
    return np.array(kept, dtype="datetime64[us]")


def _python(date: np.datetime64) -> datetime.datetime:
    return date.astype("datetime64[us]").item()


def zone_of(name: str) -> datetime.tzinfo:
    """A zone by its name in the time zone database, or by its distance from UTC: "UTC+02:00"."""
    if name[:4] == "UTC+" or name[:4] == "UTC-":
        hours, _, minutes = name[4:].partition(":")
        sign = -1 if name[3] == "-" else 1
        return datetime.timezone(sign * datetime.timedelta(hours=int(hours), minutes=int(minutes or 0)))
    return ZoneInfo(name)
