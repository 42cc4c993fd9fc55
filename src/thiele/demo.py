"""`python -m thiele.demo`: fit two real series, say in words what was learnt, draw them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import thiele as th
from thiele.kernels import AbstractKernel

FIGURES = Path("figures")
YEARS_AHEAD = 6  # of the forecast of CO2
BIN = 5  # years to a bar in the picture of the accidents
# Okabe and Ito (2008), told apart by people of any colour vision, and a grey.
BLACK, BLUE, SKY, GREY = "#000000", "#0072B2", "#56B4E9", "#E3E3E3"


def main() -> None:
    """Counts by a Poisson process, then a series with Gaussian noise."""
    coal()
    print()
    co2()


# Accidents in coal mines: events in time, whose rate is the exponential of the latent function.


def coal() -> None:
    """Fit, print, draw."""
    events, counts = th.data.coal(), th.data.coal_counts()
    first, last = events.time[0], events.time[-1]
    print(f"coal: {len(events.time)} explosions in British coal mines that killed ten or more, ", end="")
    print(f"{int(first)} to {int(last)}, counted in {len(counts.time)} bins")
    print(f"  {events.source}")

    model = th.GP(th.Matern52(variance=1.0, lengthscale=4.0), th.Poisson())
    learn = lambda: model.fit(counts.time, counts.value, exposure=counts.exposure)  # noqa: E731
    fit = timed(learn, "log marginal likelihood at least")
    year = np.linspace(first, last, 1000)
    rate, low, high = accidents_per_year(fit, year)
    describe_coal(fit, year, rate, low, high)
    draw("coal", lambda plt: draw_coal(plt, events.time, year, rate, low, high))


def accidents_per_year(fit: th.Fit, year: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of exp(f), and what it lies between with probability 0.95."""
    p = fit.predict(year, exposure=1.0)
    width = 1.96 * np.sqrt(p.var)
    return p.y_mean, np.exp(p.mean - width), np.exp(p.mean + width)


def describe_coal(fit: th.Fit, year: np.ndarray, rate: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """The rate then and later, when it fell, and how sure that is."""
    learnt: Any = fit.kernel
    print(f"  memory   the rate keeps its level for about {float(learnt.lengthscale):.0f} years")
    for when in (1860.0, 1900.0, 1930.0):
        now = [float(np.interp(when, year, x)) for x in (rate, low, high)]
        print(f"  {when:.0f}     {now[0]:.1f} accidents a year, 95 % between {now[1]:.1f} and {now[2]:.1f}")
    slope = np.gradient(np.log(rate), year)
    fastest = int(np.argmin(slope))
    fall = -100 * math.expm1(slope[fastest])
    print(f"  change   it fell fastest around {year[fastest]:.0f}, by {fall:.0f} % a year")
    before, after = fit.sample([1870.0, 1900.0], n=4000).T
    halved = float(np.mean(after < before - math.log(2.0)))
    print(f"           that it at least halved from 1870 to 1900 has probability {halved:.2f}")


def draw_coal(
    plt: Any, events: np.ndarray, year: np.ndarray, rate: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Any:
    """The rate with its band over the counted accidents, and every accident as a stroke below."""
    # Round years but for the ends: what was before the first accident and after the last is not part of the record.
    edges = np.clip(np.arange(BIN * (events[0] // BIN), events[-1] + BIN, BIN), events[0], events[-1])
    seen = np.diff(edges)
    bars = np.histogram(events, edges)[0] / seen
    figure, (ax, rug) = plt.subplots(
        2, figsize=(7.5, 4.4), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [14, 1], "hspace": 0.0}
    )
    ax.bar(edges[:-1] + 0.2, bars, seen - 0.4, align="edge", color=GREY, label=f"counted, {BIN} years to a bar")
    ax.fill_between(year, low, high, color=SKY, alpha=0.45, lw=0, label="95 % of the rate")
    ax.plot(year, rate, color=BLUE, lw=1.8, label="mean rate")
    ax.set(ylabel="accidents a year", ylim=(0.0, None), xlim=(events[0] - 1.0, events[-1] + 1.0))
    ax.set_title("Explosions in British coal mines", loc="left")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    ax.tick_params(axis="x", length=0)
    rug.vlines(events, 0.0, 1.0, color=BLACK, lw=0.6, alpha=0.8)
    rug.set(yticks=[], ylim=(0.0, 1.0), xlabel=f"year; each stroke is one of the {len(events)} accidents")
    ax.spines[["top", "right"]].set_visible(False)
    rug.spines[["top", "right", "left", "bottom"]].set_visible(False)
    return figure


# Carbon dioxide: a value each month, with Gaussian noise.


def co2() -> None:
    """Fit, print, draw."""
    data = th.data.co2()
    print(f"{data.name}: {len(data.time)} monthly values, {int(data.time[0])} to {int(data.time[-1])}, {data.units[1]}")
    print(f"  {data.source}")

    learn = lambda: th.GP(co2_kernel(), th.Gaussian(variance=0.1)).fit(data.time, data.value)  # noqa: E731
    fit = timed(learn, "log marginal likelihood")
    describe_co2(fit)
    forecast(fit, float(data.time[-1]))
    draw("co2", lambda plt: draw_co2(plt, fit, data))


def co2_kernel() -> AbstractKernel:
    """A trend whose slope drifts, irregular ups and downs of a year or two, and a season that may slowly change."""
    trend = th.IntegratedWiener(
        variance=0.01, initial_variance=th.fixed(1e4), initial_slope_variance=th.fixed(10.0), origin=1959.0
    )
    wiggles = th.Matern12(variance=0.5, lengthscale=1.0)
    season = th.QuasiPeriodic(variance=5.0, lengthscale=1.0, period=th.fixed(1.0), decay=100.0, harmonics=4)
    return trend + wiggles + season


def describe_co2(fit: th.Fit) -> None:
    """The hyperparameters, in the units of the data."""
    parts: Any = fit.kernel, fit.likelihood
    trend, wiggles, _ = parts[0].terms
    drift, size, noise = (math.sqrt(float(x.variance)) for x in (trend, wiggles, parts[1]))
    print(f"  trend    the growth per year changes by about {drift:.2f} ppm from one year to the next")
    print(f"  wiggles  of about {size:.2f} ppm, forgotten after {float(wiggles.lengthscale):.1f} years")
    print(f"  season   repeats each year, {swing(fit, 1996.0):.1f} ppm from lowest to highest in 1996, ", end="")
    print(f"{swing(fit, 1960.0):.1f} in 1960")
    print(f"  noise    {noise:.2f} ppm in a monthly value")


def swing(fit: th.Fit, year: float) -> float:
    """From the lowest to the highest value within a year, once its growth is taken out as a straight line."""
    t = np.linspace(year, year + 1.0, 1000)  # as many times as in the figure: one program serves both
    mean = fit.predict(t).mean
    return float(np.ptp(mean - np.interp(t, t[[0, -1]], mean[[0, -1]])))


def forecast(fit: th.Fit, last: float) -> None:
    """The coming years, with what an observation will lie between in 95 of 100 cases."""
    first = math.ceil(last)
    t = np.arange(first, first + YEARS_AHEAD, dtype=float)
    p = fit.predict(t)
    print(f"  forecast for the beginning of January, {YEARS_AHEAD} years from the last month seen")
    for year, mean, low, high in zip(t, p.y_mean, *p.interval(0.95), strict=True):
        print(f"  {year:.0f}     {mean:.1f} ppm, 95 % between {low:.1f} and {high:.1f}")


def draw_co2(plt: Any, fit: th.Fit, data: th.data.Series) -> Any:
    """The whole series with the forecast above, its last years below."""
    figure, (whole, end) = plt.subplots(2, figsize=(7.5, 6.0), layout="constrained")
    for ax in (whole, end):
        ax.set(xlabel="year", ylabel=f"CO$_2$, {data.units[1]}")
    fit.plot(ax=whole, horizon=YEARS_AHEAD)
    fit.plot(ax=end, t=np.linspace(1992.0, data.time[-1] + YEARS_AHEAD, 1000), legend=False)
    whole.set_title("Carbon dioxide at Mauna Loa", loc="left")
    end.set_title("the last years and the forecast", loc="left", fontsize="medium")
    return figure


# Both.


def timed(learn: Callable[[], th.Fit], objective: str) -> th.Fit:
    """A fit, and a line that says how it went."""
    began = time.perf_counter()
    fit = learn()
    seconds = time.perf_counter() - began
    steps = len(fit.trace.objective) - 1
    print(f"\nlearnt in {seconds:.1f} s, compilation included: {steps} steps, {objective} {fit.objective:.2f}", end="")
    print("" if fit.converged else " (did not converge)")
    return fit


def draw(name: str, paint: Callable[[Any], Any]) -> None:
    """Write what `paint` draws with pyplot to `figures/`."""
    try:
        import matplotlib
    except ImportError:
        print("\nno figure: matplotlib is not installed (pip install thiele[plot])")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = paint(plt)
    FIGURES.mkdir(exist_ok=True)
    path = FIGURES / f"{name}.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\nfigure written to {path}")


if __name__ == "__main__":
    main()
