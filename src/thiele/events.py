"""Event times without values, counted in bins: the data of a Cox process, whose rate is a function of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from thiele.durations import UNITS, in_words
from thiele.series import Clock, clock_for

BINS_PER_EVENT = 2.0  # the latent function cannot change faster than events tell; finer bins add cost and nothing else
FEWEST, MOST = 100, 20_000
# Widths that people count by, as numbers of days.
ROUND = [k * UNITS[u] for u, ks in (("second", (1, 5, 15, 30)), ("minute", (1, 5, 15, 30))) for k in ks]
ROUND += [k / 24.0 for k in (1, 2, 3, 6, 12)] + [1.0, 7.0, 28.0]


class Counted(Mapping[str, Any]):
    """Counts by bins, ready for `fit`: `model.fit(**th.events(times))`.

    `t` are the centres of the bins, `y` the counts, `exposure` the widths in units of time (days for dates), so that a
    rate is per unit of time. `print` says how the bins were chosen.
    """

    def __init__(self, t: Any, y: np.ndarray, exposure: np.ndarray, said: str) -> None:
        self.t, self.y, self.exposure, self.said = t, y, exposure, said

    def __getitem__(self, name: str) -> Any:
        if name not in ("t", "y", "exposure"):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(("t", "y", "exposure"))

    def __len__(self) -> int:
        return 3

    def __repr__(self) -> str:
        return self.said


def events(times: Any, bins: Any = None, start: Any = None, end: Any = None) -> Counted:
    """Count events in bins of equal width, from `start` to `end`, by default from the first event to the last.

    `bins` is a number of bins, or a width as a duration ("1 hour") where times are dates; without it about two bins for
    each event, of a round width where times are dates. Say when observation began and ended if you know: the first and
    the last event are a little inside.

    >>> counted = events([0.1, 0.4, 0.45, 2.0, 3.0], bins=3)
    >>> counted.y
    array([3., 1., 1.])
    """
    clock = clock_for(times)
    t = np.sort(clock.numbers(times, "times"))
    if len(t) == 0:
        raise ValueError("`times` must hold at least one event, got none")
    ends = [
        edge if given is None else float(clock.numbers([given] if np.ndim(given) == 0 else given, name)[0])
        for given, name, edge in ((start, "start", t[0]), (end, "end", t[-1]))
    ]
    first, last = float(ends[0]), float(ends[1])
    if not last > first:
        raise ValueError(
            f"`end` must be later than `start`, got a span of {last - first:g}: events at one time have no rate; state "
            "when observation began and ended"
        )
    if t[0] < first or t[-1] > last:
        raise ValueError("`times` must lie between `start` and `end`, got events outside")
    width, how = _width(clock, len(t), last - first, bins)
    count = max(1, int(np.ceil((last - first) / width - 1e-9)))
    if count > 10 * MOST * 10:
        raise ValueError(f"`bins` must give at most {100 * MOST:,} bins, got {count:,}")
    edges = np.minimum(first + width * np.arange(count + 1), last)
    y = np.histogram(t, edges)[0].astype(float)
    exposure = np.diff(edges)
    shown = in_words(width) if clock.origin is not None else f"{width:.4g}"
    said = f"{len(t)} events counted in {count} bins of {shown}, {how}"
    return Counted(clock.times(0.5 * (edges[1:] + edges[:-1])), y, exposure, said)


def _width(clock: Clock, n: int, span: float, bins: Any) -> tuple[float, str]:
    if bins is None:
        width = span / np.clip(BINS_PER_EVENT * n, FEWEST, MOST)
        if clock.origin is not None:
            # The round width that is next below, if one is.
            width = max((w for w in ROUND if w <= width), default=width)
        return float(width), "about two for each event"
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        if bins < 1:
            raise ValueError(f"`bins` must be at least 1, got {bins}")
        return span / int(bins), "as stated"
    width = clock.span(bins, "bins")
    if not width > 0.0:
        raise ValueError(f"`bins` must be a number of bins or a positive duration, got {bins!r}")
    return width, "as stated"
