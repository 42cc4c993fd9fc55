"""`python -m thiele.demo`: fit a real series, say in words what was learnt, draw it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import thiele as th
from thiele.kernels import AbstractKernel

FIGURE = Path("figures") / "co2.png"
YEARS_AHEAD = 6


def kernel() -> AbstractKernel:
    """A trend whose slope drifts, irregular ups and downs of a year or two, and a season that may slowly change."""
    trend = th.IntegratedWiener(
        variance=0.01, initial_variance=th.fixed(1e4), initial_slope_variance=th.fixed(10.0), origin=1959.0
    )
    wiggles = th.Matern12(variance=0.5, lengthscale=1.0)
    season = th.QuasiPeriodic(variance=5.0, lengthscale=1.0, period=th.fixed(1.0), decay=100.0, harmonics=4)
    return trend + wiggles + season


def main() -> None:
    """Fit, print, draw."""
    data = th.data.co2()
    print(f"{data.name}: {len(data.time)} monthly values, {int(data.time[0])} to {int(data.time[-1])}, {data.units[1]}")
    print(f"  {data.source}")

    began = time.perf_counter()
    fit = th.GP(kernel(), th.Gaussian(variance=0.1)).fit(data.time, data.value)
    seconds = time.perf_counter() - began
    print(f"\nlearnt in {seconds:.1f} s, compilation included: {len(fit.trace.objective) - 1} steps, ", end="")
    print(f"log marginal likelihood {fit.objective:.2f}" + ("" if fit.converged else " (did not converge)"))
    describe(fit)
    forecast(fit, float(data.time[-1]))
    draw(fit, data)


def describe(fit: th.Fit) -> None:
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
    print(f"\nforecast for the beginning of January, {YEARS_AHEAD} years from the last month seen")
    for year, mean, low, high in zip(t, p.y_mean, *p.interval(0.95), strict=True):
        print(f"  {year:.0f}   {mean:.1f} ppm, 95 % between {low:.1f} and {high:.1f}")


def draw(fit: th.Fit, data: th.data.Series) -> None:
    """The whole series with the forecast above, its last years below."""
    try:
        import matplotlib
    except ImportError:
        print("\nno figure: matplotlib is not installed (pip install thiele[plot])")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (whole, end) = plt.subplots(2, figsize=(7.5, 6.0), layout="constrained")
    for ax in (whole, end):
        ax.set(xlabel="year", ylabel=f"CO$_2$, {data.units[1]}")
    fit.plot(ax=whole, horizon=YEARS_AHEAD)
    fit.plot(ax=end, t=np.linspace(1992.0, data.time[-1] + YEARS_AHEAD, 1000), legend=False)
    whole.set_title("Carbon dioxide at Mauna Loa", loc="left")
    end.set_title("the last years and the forecast", loc="left", fontsize="medium")
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)
    plt.close(figure)
    print(f"\nfigure written to {FIGURE}")


if __name__ == "__main__":
    main()
