"""Pictures of a fit, with matplotlib: the data, what was learnt from them, and how sure it is.

Colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from statistics import NormalDist
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from thiele.fit import Fit
from thiele.prediction import Prediction
from thiele.series import DAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLACK, BLUE, SKY, VERMILION = "#000000", "#0072B2", "#56B4E9", "#D55E00"
GRID = 1000  # times at which curves are drawn
MOST_POINTS = 5000  # more observations than this are drawn as one bar in each of `BINS` bins
BINS = 1000


def plot(
    fit: Fit,
    t: Any = None,
    ax: Axes | None = None,
    level: float = 0.95,
    samples: int = 0,
    *,
    horizon: float = 0.0,
    observations: bool = True,
    key: Any = 0,
    legend: bool = True,
) -> Axes:
    """Data, posterior mean, and bands that hold the latent function and an observation with probability `level`.

    `t` are the times at which to draw (numbers or dates, as in the data; data outside of their range are left out);
    without them, a grid over the data and `horizon` beyond the last of them, in units of time (days for dates). Times
    after the last observation, and before the first, are shaded as forecast. `samples` adds that many joint draws of
    the latent function, with seed `key`. `observations=False` leaves out the data and the band of an observation.

    The latent function has a band and draws of its own only where it is the mean of an observation, as with Gaussian
    noise; otherwise the curve is E y.
    """
    plt = _pyplot()
    numbers = _grid(fit, horizon) if t is None else np.sort(fit.clock.numbers(t))
    if numbers.size == 0:
        raise ValueError("`t` must hold at least one time, got none")
    if samples < 0:
        raise ValueError(f"`samples` must be 0 or more, got {samples}")
    times = _as_given(fit, numbers)
    p = fit.predict(times)
    lower, upper = p.interval(level)
    direct = p.mean.shape == p.y_mean.shape and np.array_equal(p.mean, p.y_mean)
    if samples and not direct:
        raise ValueError("`samples` must be 0 where the latent function is not on the scale of the data")
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 3.5), layout="constrained")

    share = f"{100 * level:g} %"
    if observations:
        ax.fill_between(times, lower, upper, color=SKY, alpha=0.3, lw=0, zorder=1, label=f"{share} of observations")
    if direct:
        low, high = _latent_interval(p, level)
        ax.fill_between(times, low, high, color=BLUE, alpha=0.4, lw=0, zorder=2, label=f"{share} of f")
    for i, draw in enumerate(fit.sample(times, samples, key) if samples else ()):
        ax.plot(times, draw, color=VERMILION, lw=0.6, alpha=0.7, zorder=3, label=None if i else "draws of f")
    ax.plot(times, p.y_mean, color=BLUE, lw=1.3, zorder=4, label="mean")
    if observations:
        _draw_data(fit, ax, numbers)
    _shade_forecast(fit, ax, numbers)
    _dress(fit, ax, legend)
    return ax


def plot_trace(fit: Fit, ax: Axes | None = None) -> Axes:
    """The way to the optimum: how far the objective was below its best value, at each step of learning."""
    plt = _pyplot()
    if fit.trace is None:
        raise ValueError("`fit` must come from `GP.fit`; after `GP.condition` there is no trace of learning")
    if ax is None:
        _, ax = plt.subplots(figsize=(5.0, 3.0), layout="constrained")
    objective = np.asarray(fit.trace.objective)
    gap = np.max(objective) - objective
    ax.semilogy(np.where(gap > 0.0, gap, np.nan), color=BLUE, lw=1.3, marker="o", ms=3)
    ax.set(xlabel="step", ylabel="nats below the best objective")
    ax.set_title(f"best {np.max(objective):.2f} after {fit.trace.seconds[-1]:.1f} s", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed: `pip install thiele[plot]`") from error
    return plt


def _grid(fit: Fit, horizon: float) -> np.ndarray:
    if not np.isfinite(horizon) or horizon < 0.0:
        raise ValueError(f"`horizon` must be 0 or more, in units of time (days for dates), got {horizon}")
    first, last = float(fit.data.time[0]), float(fit.data.time[-1])
    return np.linspace(first, last + horizon, GRID) if last + horizon > first else np.array([first])


def _as_given(fit: Fit, numbers: np.ndarray) -> np.ndarray:
    """Numbers as the user's own axis has them: dates where the data had dates."""
    if fit.clock.origin is None:
        return numbers
    # Microseconds, the finest that matplotlib draws.
    since = np.round(numbers * (DAY / np.timedelta64(1, "us"))).astype("timedelta64[us]")
    return fit.clock.origin.astype("datetime64[us]") + since


def _latent_interval(p: Prediction, level: float) -> tuple[np.ndarray, np.ndarray]:
    width = NormalDist().inv_cdf(0.5 * (1.0 + level)) * np.sqrt(p.var)
    return p.mean - width, p.mean + width


def _draw_data(fit: Fit, ax: Axes, numbers: np.ndarray) -> None:
    shown = np.asarray(fit.data.observed) & (fit.data.time >= numbers[0]) & (fit.data.time <= numbers[-1])
    time, y = np.asarray(fit.data.time)[shown], np.asarray(fit.data.y)[shown]
    if len(time) == 0:
        return
    if len(time) <= MOST_POINTS:
        size = float(np.clip(60.0 / np.sqrt(len(time)), 1.5, 4.0))
        style = {"color": BLACK, "ls": "", "marker": ".", "ms": size, "alpha": 0.7, "zorder": 5}
        ax.plot(_as_given(fit, time), y, **style, label=_count(len(time)))
        return
    place = np.minimum((time - time[0]) / (time[-1] - time[0] or 1.0) * BINS, BINS - 1).astype(int)
    heads = np.flatnonzero(np.diff(place, prepend=-1))
    centres = 0.5 * (time[heads] + time[np.append(heads[1:], len(time)) - 1])
    low, high = np.minimum.reduceat(y, heads), np.maximum.reduceat(y, heads)
    label = f"{_count(len(time))} (range in each of {BINS:,} bins)"
    # Behind the curves: a million points would otherwise hide what was learnt from them.
    ax.vlines(_as_given(fit, centres), low, high, color=BLACK, alpha=0.25, lw=0.6, zorder=0.5, label=label)


def _count(n: int) -> str:
    return f"{n:,} observation" + ("" if n == 1 else "s")


def _shade_forecast(fit: Fit, ax: Axes, numbers: np.ndarray) -> None:
    seen = np.asarray(fit.data.time)[np.asarray(fit.data.observed)]
    spans = [(max(seen[-1], numbers[0]), numbers[-1]), (numbers[0], min(seen[0], numbers[-1]))]
    label: str | None = "forecast"
    for start, end in spans:
        if end > start:
            left, right = _as_given(fit, np.array([start, end]))
            ax.axvspan(left, right, color=BLACK, alpha=0.07, lw=0, zorder=0, label=label)
            label = None


def _dress(fit: Fit, ax: Axes, legend: bool) -> None:
    if fit.clock.origin is not None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if not ax.get_xlabel():
        ax.set_xlabel("date" if fit.clock.origin is not None else "time")
    if not ax.get_ylabel():
        ax.set_ylabel("y")
    ax.margins(x=0.01)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=False, fontsize="small")
