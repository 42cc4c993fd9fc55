"""What repeats in a series: days, weeks and years where times are dates, and what stands out of the spectrum.

A season is believed if it explains a good share of what a slow trend leaves over, and if stretches of the series, each
looked at by itself, agree on its shape. The second is what tells a season from a slow wandering, which has power at
long periods too but no shape that comes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import fdtrc

from thiele.durations import YEAR, in_words

CALENDAR = {"day": 1.0, "week": 7.0, "year": YEAR}
# Numbers that count years or days and go by quarters, months, hours, weeks or days of them.
PARTS_OF_ONE = (4.0, 12.0, 24.0, 52.0, 365.0)
MOST = 3  # seasons
MOST_HARMONICS = 4
MOST_ROWS = 20_000  # that one look takes; longer series are averaged or cut to their end
MOST_KNOTS = 40
STRETCHES = (2, 6)  # at least and at most
# How far the shapes in the stretches must agree, by their number: two agree by chance more often than six.
AGREEMENT = {2: 0.85, 3: 0.7, 4: 0.55, 5: 0.5, 6: 0.45}
LEAST_SHARE = 0.05  # of the variance left by the trend
LEAST_CYCLES = 1.95  # two years of days end a day short of two years
CHANCE = 1e-4  # of a share as large without a season, were errors independent
CLOSE = 0.03  # two periods nearer than this share of themselves are one
SPECTRUM_ROWS, FREQUENCIES, PEAKS = 4000, 20_000, 8
WIDEST_PEAK = 41  # a peak and its feet, in frequencies
PHASES = 64


class Season(NamedTuple):
    """A period, how many harmonics the data can show, and why it is believed."""

    period: float
    harmonics: int
    calendar: bool
    share: float
    """Of the variance that the trend, and the seasons found before, leave over."""

    def words(self, dated: bool) -> str:
        """For people."""
        length = in_words(self.period) if dated else f"{self.period:.4g}"
        source = "by the calendar" if self.calendar else "from the spectrum"
        return f"a season of {length}, {source}: it explains {100 * self.share:.0f} % of what the trend leaves"


def find_seasons(
    time: Float[np.ndarray, " n"], z: Float[np.ndarray, " n"], dated: bool, most: int = MOST
) -> tuple[Season, ...]:
    """The seasons of values `z` at sorted times, the strongest first."""
    distinct = np.unique(time)
    if len(distinct) < 16 or np.ptp(z) == 0.0:
        return ()
    span, step = float(distinct[-1] - distinct[0]), float(np.median(np.diff(distinct)))
    whole = not dated and any(abs(1.0 / (step * parts) - 1.0) < 0.01 for parts in PARTS_OF_ONE)
    usual = CALENDAR.values() if dated else (1.0,) if whole else ()
    known = [p for p in usual if 2.5 * step <= p <= span / LEAST_CYCLES]
    candidates = [(p, True) for p in known]
    near = lambda p, others: any(abs(p / q - 1.0) < CLOSE for q in others)  # noqa: E731
    candidates += [(p, False) for p in _peaks(time, z, span, step) if not near(p, known)]
    found: list[Season] = []
    while candidates and len(found) < most:
        looks = [(_look(time, z, p, calendar, step, found), p, calendar) for p, calendar in candidates]
        seasons = [season for season, _, _ in looks if season is not None]
        if not seasons:
            break
        strongest = max(season.share for season in seasons)
        # Twice a period explains as much: the shortest of those that explain nearly as much is the season.
        best = min((s for s in seasons if s.share > strongest - 0.02), key=lambda s: (not s.calendar, s.period))
        found.append(best)
        # What is no season now will be none once more is explained; what was found is not looked for again.
        candidates = [(p, c) for s, p, c in looks if s is not None and not near(p, [best.period])]
    return tuple(found)


def seasonal_variance_ratio(
    time: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], seasons: Iterable[Season]
) -> float:
    """The variance of counts about a trend and seasons over their mean: 1 for Poisson counts."""
    knots = min(MOST_KNOTS, max(2, len(y) // 20))
    columns = np.hstack([_hats(time, knots), *(_waves(time, s.period, s.harmonics) for s in seasons)])
    fitted = np.maximum(columns @ np.linalg.lstsq(columns, y, rcond=None)[0], 0.25 * float(np.mean(y)))
    free = max(len(y) - columns.shape[1], 1)
    return float(np.sum((y - fitted) ** 2 / fitted)) / free


def stated(period: float, step: float, calendar: bool = True) -> Season:
    """A season that the user says is there."""
    return Season(period, _harmonics(period, step), calendar, np.nan)


def _harmonics(period: float, step: float) -> int:
    # Fewer than two data a cycle show nothing of it; with just two, half of its waves are zero at all of them.
    return int(np.clip(np.ceil(period / (2.0 * step) - 0.01) - 1, 1, MOST_HARMONICS))


def _look(
    time: np.ndarray, z: np.ndarray, period: float, calendar: bool, step: float, before: Iterable[Season]
) -> Season | None:
    """The season of this period, if it is one."""
    t, x = _thinned(time, z, period)
    span = float(t[-1] - t[0])
    cycles = span / period
    if cycles < LEAST_CYCLES:
        return None
    harmonics = _harmonics(period, step)
    waves = _waves(t, period, harmonics)
    others = [_waves(t, s.period, s.harmonics) for s in before]
    trend = _hats(t, min(MOST_KNOTS, max(2, int(span / (1.5 * period)) + 1)))
    base = np.hstack([trend, *others])
    n, p = len(t), base.shape[1] + waves.shape[1]
    if n < p + 8:
        return None
    rest = x - base @ np.linalg.lstsq(base, x, rcond=None)[0]
    both = np.hstack([base, waves])
    coefficients = np.linalg.lstsq(both, x, rcond=None)[0]
    left, without = float(np.sum((x - both @ coefficients) ** 2)), float(np.sum(rest**2))
    if without <= 1e-12 * float(np.sum(x**2)):
        return None
    share = 1.0 - left / without
    ratio = (without - left) / waves.shape[1] / max(left / (n - p), 1e-300)
    if share < LEAST_SHARE or float(fdtrc(waves.shape[1], n - p, ratio)) > CHANCE:
        return None
    stretches = int(np.clip(np.floor(cycles), *STRETCHES))
    if _agreement(t, rest, period, harmonics, stretches) < AGREEMENT[stretches]:
        return None
    return Season(period, harmonics, calendar, share)


def _agreement(t: np.ndarray, rest: np.ndarray, period: float, harmonics: int, stretches: int) -> float:
    """The mean correlation between the shapes of the season in stretches of the series."""
    edges = np.linspace(t[0], t[-1], stretches + 1)
    phases = _waves(np.linspace(0.0, period, PHASES, endpoint=False), period, harmonics)
    shapes = []
    for low, high in itertools.pairwise(edges):
        inside = (t >= low) & (t <= high)
        if np.sum(inside) > 2 * harmonics + 2:
            waves = np.hstack([np.ones((int(np.sum(inside)), 1)), _waves(t[inside], period, harmonics)])
            shapes.append(phases @ np.linalg.lstsq(waves, rest[inside], rcond=None)[0][1:])
    pairs = [_correlation(a, b) for a, b in itertools.combinations(shapes, 2)]
    return float(np.mean(pairs)) if pairs else 0.0


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    size = float(np.sqrt(np.sum(a**2) * np.sum(b**2)))
    return float(np.sum(a * b)) / size if size > 0.0 else 0.0


def _waves(t: np.ndarray, period: float, harmonics: int) -> np.ndarray:
    angle = 2.0 * np.pi / period * t[:, None] * np.arange(1, harmonics + 1)
    return np.hstack([np.cos(angle), np.sin(angle)])


def _hats(t: np.ndarray, knots: int) -> np.ndarray:
    """Piecewise linear functions of time."""
    place = (t - t[0]) / (t[-1] - t[0]) * (knots - 1)
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(knots)))


def _thinned(time: np.ndarray, z: np.ndarray, period: float) -> tuple[np.ndarray, np.ndarray]:
    """No more rows than one look takes: averages over a small part of the period, then the end of the series."""
    if len(time) <= MOST_ROWS:
        return time, z
    t, x = _averaged(time, z, period / 24.0)
    return t[-MOST_ROWS:], x[-MOST_ROWS:]


def _averaged(time: np.ndarray, z: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    place = np.floor((time - time[0]) / width).astype(np.int64)
    heads = np.flatnonzero(np.diff(place, prepend=-1))
    sizes = np.diff(np.append(heads, len(time)))
    return np.add.reduceat(time, heads) / sizes, np.add.reduceat(z, heads) / sizes


def _peaks(time: np.ndarray, z: np.ndarray, span: float, step: float) -> Iterator[float]:
    """Periods at which the spectrum stands out of its surroundings, the highest first, each refined."""
    from scipy.signal import lombscargle

    t, x = time, z
    if len(t) > SPECTRUM_ROWS:
        t, x = _averaged(t, x, span / SPECTRUM_ROWS)
        step = max(step, span / SPECTRUM_ROWS)
    trend = _hats(t, 6)
    x = x - trend @ np.linalg.lstsq(trend, x, rcond=None)[0]
    if np.std(x) == 0.0:
        return
    # A quarter of the resolution, so that no peak falls between; from four cycles to two data a cycle.
    low, high = 4.0 / span, 0.5 / step
    count = int(min(FREQUENCIES, max(0.0, (high - low) * span * 4.0)))
    if count <= WIDEST_PEAK:
        return
    frequency = np.linspace(low, high, count)
    power = lombscargle(t, x, 2.0 * np.pi * frequency)
    if not np.all(np.isfinite(power)):
        return
    surroundings = _running_median(power, max(WIDEST_PEAK, count // 20) | 1) / np.log(2.0) + 1e-12 * np.max(power)
    inner = (power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:])
    tops = 1 + np.flatnonzero(inner & (power[1:-1] / surroundings[1:-1] > np.log(count) + 5.0))
    for top in tops[np.argsort(-power[tops])][:PEAKS]:
        fine = np.linspace(frequency[top - 1], frequency[top + 1], 41)
        yield float(1.0 / fine[np.argmax(lombscargle(t, x, 2.0 * np.pi * fine))])


def _running_median(values: np.ndarray, width: int) -> np.ndarray:
    padded = np.pad(values, width // 2, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)
