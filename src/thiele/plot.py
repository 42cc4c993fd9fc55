"""Pictures of a fit, with matplotlib: the data, what was learnt from them, and how sure it is.

Colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from statistics import NormalDist
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from thiele.calendars import zone_of
from thiele.checks import Check
from thiele.fit import Fit
from thiele.kernels import grid
from thiele.likelihoods import Bernoulli
from thiele.prediction import Prediction
from thiele.series import DAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLACK, BLUE, SKY, VERMILION = "#000000", "#0072B2", "#56B4E9", "#D55E00"
GRID = 1000  # times at which curves are drawn
MOST_POINTS = 5000  # more observations than this are drawn as one bar in each of `BINS` bins
BINS = 1000
RESOLUTION = 80  # of either axis of a map
BEYOND = 0.05  # of the data's extent, on every side of it


def plot(
    fit: Fit,
    t: Any = None,
    ax: Axes | None = None,
    level: float = 0.95,
    samples: int = 0,
    *,
    horizon: Any = 0.0,
    observations: bool = True,
    key: Any = 0,
    legend: bool = True,
    covariates: dict[str, float] | None = None,
) -> Axes:
    """Data, posterior mean, and bands that hold the latent function and an observation with probability `level`.

    `t` are the times at which to draw (numbers or dates, as in the data; data outside of their range are left out);
    without them, a grid over the data and `horizon` beyond the last of them, in units of time or as a duration. Times
    after the last observation, and before the first, are shaded as forecast. `samples` adds that many joint draws of
    the latent function, with seed `key`. `observations=False` leaves out the data and the band of an observation.
    `covariates` are those of the observations that the curve and the band are for (`{"exposure": 1.0}`).

    The latent function has a band and draws of its own only where it is the mean of an observation, as with Gaussian
    noise; otherwise the curve is E y. Of values that are 0 or 1 the band is that of their probability: where an
    observation lies would be from 0 to 1 nearly everywhere.
    """
    plt = _pyplot()
    numbers = _grid(fit, horizon) if t is None else np.sort(fit.clock.numbers(t))
    if numbers.size == 0:
        raise ValueError("`t` must hold at least one time, got none")
    if samples < 0:
        raise ValueError(f"`samples` must be 0 or more, got {samples}")
    times = _as_given(fit, numbers)
    p = fit.predict(times, **(covariates or {}))
    lower, upper = p.interval(level)
    direct = p.mean.shape == p.y_mean.shape and np.array_equal(p.mean, p.y_mean)
    if samples and not direct:
        raise ValueError("`samples` must be 0 where the latent function is not on the scale of the data")
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 3.5), layout="constrained")

    share = f"{100 * level:g} %"
    if isinstance(p.likelihood, Bernoulli):
        low, high = p.mean_interval(level)
        ax.fill_between(times, low, high, color=SKY, alpha=0.4, lw=0, zorder=1, label=f"{share} of the probability")
    elif observations:
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


def plot_map(
    fit: Fit,
    t: Any = None,
    ax: Axes | None = None,
    show: Literal["mean", "sd"] = "mean",
    *,
    observations: bool = True,
    resolution: int = RESOLUTION,
    covariates: dict[str, float] | None = None,
) -> Axes:
    """E y or its standard deviation in colours, over the places of the data.

    With one coordinate of space it is drawn against time, over the times `t` (two of them: from, to) or those of the
    data. With two it is a map at the time `t`, by default the last of the data. `observations` marks where data are.
    """
    plt = _pyplot()
    space = fit.data.space
    if space is None or fit.model.kernel.outputs_observed:
        raise ValueError("`fit` must be of a model in space; several outputs have no map: draw each from `predict`")
    if space.shape[1] > 2:
        raise ValueError(f"`plot_map` draws one or two coordinates of space, got {space.shape[1]}")
    if show not in ("mean", "sd"):
        raise ValueError(f'`show` must be "mean" or "sd", got {show!r}')
    if ax is None:
        _, ax = plt.subplots(figsize=(6.5, 4.0), layout="constrained")
    coordinates = [_along(column, resolution) for column in space.T]
    if len(coordinates) == 1:
        ends = np.asarray(fit.data.time)[[0, -1]] if t is None else fit.clock.numbers(t)
        times = np.linspace(ends[0], ends[-1], resolution)
        across, up, at = fit.clock.times(times), coordinates[0], grid(times, coordinates[0])
        seen = (fit.clock.times(np.asarray(fit.data.time)), space[:, 0])
        ax.set(xlabel="time", ylabel="space")
    else:
        now = float(fit.data.time[-1] if t is None else fit.clock.numbers([t])[0])
        across, up, at = *coordinates, grid(now, *coordinates)
        seen = tuple(np.unique(space, axis=0).T)
        ax.set(xlabel="r1", ylabel="r2", title=f"at {fit.clock.times(np.array([now]))[0]}")
    p = fit.predict((fit.clock.times(at[:, 0]), *at[:, 1:].T), **(covariates or {}))
    values = p.y_mean if show == "mean" else np.sqrt(p.y_var)
    picture = ax.pcolormesh(across, up, values.reshape(len(across), len(up)).T, cmap="viridis", shading="gouraud")
    ax.figure.colorbar(picture, ax=ax, label="mean of y" if show == "mean" else "standard deviation of y")
    if observations:
        # Few have an edge, because a map is dark in places and bright in others.
        few = {"marker": "o", "ms": 4.0, "mec": "white", "mew": 0.6}
        style = few if len(seen[0]) <= 200 else {"marker": ".", "ms": 2.0, "alpha": 0.6}
        ax.plot(*seen, ls="", color=BLACK, **style)
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


def plot_components(fit: Fit, t: Any = None, *, horizon: Any = 0.0, level: float = 0.95) -> np.ndarray:
    """Every summand of the kernel by itself, a panel each over one axis of time, with its band; returns the axes.

    They are parts of the latent function, on its own scale. `t` and `horizon` are as in `plot`.
    """
    plt = _pyplot()
    numbers = _grid(fit, horizon) if t is None else np.sort(fit.clock.numbers(t))
    times = _as_given(fit, numbers)
    parts = fit.components(times)
    width = NormalDist().inv_cdf(0.5 * (1.0 + level))
    size = (7.0, 0.8 + 1.6 * len(parts))
    _, axes = plt.subplots(len(parts), figsize=size, sharex=True, squeeze=False, layout="constrained")
    for part, ax in zip(parts, axes[:, 0], strict=True):
        spread = width * np.sqrt(part.var)
        low, high = part.mean - spread, part.mean + spread
        ax.fill_between(times, low, high, color=SKY, alpha=0.4, lw=0, label=f"{100 * level:g} %")
        ax.plot(times, part.mean, color=BLUE, lw=1.3, label="mean")
        ax.set_title(type(part.kernel).__name__, loc="left", fontsize="medium")
        _shade_forecast(fit, ax, numbers)
        _dress(fit, ax, legend=ax is axes[0, 0], ylabel="part of f")
        ax.label_outer()
    return axes[:, 0]


def plot_check(found: Check) -> np.ndarray:
    """Calibration in three panels: the PIT histogram, coverage, and autocorrelation of errors; returns the axes."""
    plt = _pyplot()
    _, axes = plt.subplots(1, 3, figsize=(9.0, 2.8), layout="constrained")
    bins = len(found.histogram)
    axes[0].bar((np.arange(bins) + 0.5) / bins, found.histogram, 0.92 / bins, color=SKY)
    axes[0].axhline(1.0 / bins, color=VERMILION, ls="--", lw=1.0, label="if predictions are right")
    top = 1.3 * max(float(np.max(found.histogram)), 1.0 / bins)  # with room for the legend
    axes[0].set(xlabel="P(Y ≤ y), each from all others", ylabel="share of the data", ylim=(0.0, top))
    axes[1].plot([0.0, 100.0], [0.0, 100.0], color=VERMILION, ls="--", lw=1.0)
    axes[1].plot(100.0 * found.levels, 100.0 * found.coverage, color=BLUE, marker="o", ms=4, lw=1.3)
    axes[1].set(xlabel="interval, %", ylabel="holds, %", xlim=(40.0, 101.0), ylim=(40.0, 101.0))
    lags = np.arange(1, len(found.autocorrelation) + 1)
    axes[2].vlines(lags, 0.0, found.autocorrelation, color=BLUE, lw=2.0)
    for sign in (-1.0, 1.0):
        axes[2].axhline(2.0 * sign / np.sqrt(found.n), color=VERMILION, ls="--", lw=1.0)
    axes[2].axhline(0.0, color=BLACK, lw=0.6)
    axes[2].set(xlabel="lag", ylabel="autocorrelation", ylim=(-1.0, 1.0))
    axes[0].legend(frameon=False, fontsize="small")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return axes


def _pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib, which is not installed: `pip install thiele[plot]`") from error
    return plt


def _grid(fit: Fit, horizon: Any) -> np.ndarray:
    horizon = fit.clock.span(horizon, "horizon")
    if horizon < 0.0:
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


def _dress(fit: Fit, ax: Axes, legend: bool, ylabel: str = "y") -> None:
    if fit.clock.origin is not None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        # Drawn as instants, shown by the clock of the data's own time zone.
        zone = None if fit.clock.axis.zone is None else zone_of(fit.clock.axis.zone)
        locator = AutoDateLocator(tz=zone)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    if not ax.get_xlabel():
        ax.set_xlabel("date" if fit.clock.origin is not None else "time")
    if not ax.get_ylabel():
        ax.set_ylabel(ylabel)
    ax.margins(x=0.01)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=True, framealpha=0.8, edgecolor="none", fontsize="small")


def _along(column: np.ndarray, resolution: int) -> np.ndarray:
    low, high = float(np.min(column)), float(np.max(column))
    room = BEYOND * (high - low) or 1.0
    return np.linspace(low - room, high + room, resolution)
