"""What is drawn is what was predicted."""

import subprocess
import sys
import time

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.dates import date2num, num2date

import thiele as th
from thiele.plot import BINS, BLUE, GRID, MOST_POINTS, SKY, VERMILION, plot, plot_check, plot_components, plot_trace

mpl.use("Agg")

T = np.array([0.0, 0.7, 1.1, 2.0, 2.0, 3.5, 4.2, 5.0])
Y = np.sin(T) + 0.1
MODEL = th.GP(th.Matern32(1.0, 1.5), th.Gaussian(0.05), mean=0.2)
DATES = np.datetime64("2020-01-01") + (T * 30).astype("timedelta64[D]")


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fit():
    return MODEL.condition(T, np.where(np.arange(len(T)) == 2, np.nan, Y))


def labelled(ax):
    """What the legend names, by label."""
    return dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))


def edges(band):
    """(times, lower, upper) of what `fill_between` has drawn."""
    corners = band.get_paths()[0].vertices
    count = (len(corners) - 3) // 2
    low, high = corners[1 : count + 1], corners[count + 2 : -1][::-1]
    return low[:, 0], low[:, 1], high[:, 1]


def test_the_line_is_the_predicted_mean(fit):
    line = labelled(fit.plot())["mean"]
    assert len(line.get_xdata()) == GRID
    np.testing.assert_allclose(line.get_xdata()[[0, -1]], T[[0, -1]])
    np.testing.assert_array_equal(line.get_ydata(), fit.predict(line.get_xdata()).mean)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_outer_band_is_the_interval_of_an_observation(fit, level):
    t = np.linspace(-1.0, 7.0, 40)
    band = labelled(plot(fit, t, level=level))[f"{100 * level:g} % of observations"]
    times, low, high = edges(band)
    np.testing.assert_array_equal(times, t)
    np.testing.assert_allclose([low, high], fit.predict(t).interval(level), rtol=1e-12)


def test_the_inner_band_is_that_of_the_latent_function(fit):
    t = np.linspace(-1.0, 7.0, 40)
    _, low, high = edges(labelled(plot(fit, t, level=0.95))["95 % of f"])
    p = fit.predict(t)
    np.testing.assert_allclose(low, p.mean - 1.959963984540054 * np.sqrt(p.var), rtol=1e-11)
    np.testing.assert_allclose(high, p.mean + 1.959963984540054 * np.sqrt(p.var), rtol=1e-11)


def test_points_are_the_observed_values_only(fit):
    points = labelled(fit.plot())["7 observations"]
    np.testing.assert_array_equal(points.get_xdata(), np.delete(T, 2))
    np.testing.assert_array_equal(points.get_ydata(), np.delete(Y, 2))


def test_times_that_were_asked_for_are_drawn_in_order_and_data_outside_are_left_out(fit):
    ax = fit.plot(t=[3.0, 1.0, 2.5])
    assert labelled(ax)["mean"].get_xdata().tolist() == [1.0, 2.5, 3.0]
    assert labelled(ax)["2 observations"].get_xdata().tolist() == [2.0, 2.0]


def test_times_beyond_the_data_are_shaded_as_forecast(fit):
    assert "forecast" not in labelled(fit.plot())
    span = labelled(fit.plot(horizon=2.0))["forecast"]
    assert (span.get_x(), span.get_width()) == (5.0, 2.0)
    both = plot(fit, np.array([-1.0, 6.0]))
    assert sorted(patch.get_x() for patch in both.patches) == [-1.0, 5.0]
    assert [label for label in labelled(both) if label == "forecast"] == ["forecast"]


def test_dates_are_on_the_axis_as_dates():
    fit = MODEL.condition(DATES, Y)
    ax = fit.plot(horizon=10.0)
    x = labelled(ax)["mean"].get_xdata()
    assert x[0] == DATES[0]
    assert x[-1] == DATES[-1] + np.timedelta64(10, "D")
    np.testing.assert_allclose(date2num(labelled(ax)["8 observations"].get_xdata()), date2num(DATES))
    low, _ = ax.get_xlim()
    assert num2date(low).year in (2019, 2020)
    assert ax.get_xlabel() == "date"


def test_draws_are_joint_samples_of_the_latent_function(fit):
    ax = fit.plot(samples=3, key=7)
    drawn = [line.get_ydata() for line in ax.lines if to_hex(line.get_color()).upper() == VERMILION]
    np.testing.assert_array_equal(drawn, fit.sample(labelled(ax)["mean"].get_xdata(), 3, 7))


def test_many_points_become_bars_that_reach_the_extremes_and_the_legend_says_so():
    n = MOST_POINTS + 1
    rng = np.random.default_rng(0)
    t, y = np.sort(rng.uniform(0.0, 100.0, n)), rng.normal(size=n)
    y[1234] = 50.0
    ax = MODEL.condition(t, y).plot()
    bars = labelled(ax)[f"{n:,} observations (range in each of {BINS:,} bins)"]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert len(ends) <= BINS
    assert ends.max() == 50.0
    assert ends.min() == y.min()


def test_a_fit_of_one_point_can_be_drawn():
    ax = MODEL.condition([3.0], [1.0]).plot(horizon=0.0)
    assert labelled(ax)["1 observation"].get_xdata().tolist() == [3.0]


def test_it_draws_into_the_axes_it_was_given_and_keeps_their_labels(fit):
    _, ax = plt.subplots()
    ax.set(xlabel="years", ylabel="ppm")
    assert plot(fit, ax=ax, legend=False) is ax
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_legend()) == ("years", "ppm", None)


def test_without_observations_only_the_latent_function_is_drawn(fit):
    assert set(labelled(fit.plot(observations=False))) == {"95 % of f", "mean"}


def test_colours_are_those_of_okabe_and_ito(fit):
    found = labelled(fit.plot())
    assert to_hex(found["mean"].get_color()).upper() == BLUE
    assert to_hex(found["95 % of observations"].get_facecolor()[0]).upper() == SKY


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"level": 1.5}, "level"),
        ({"samples": -1}, "samples"),
        ({"horizon": -1.0}, "horizon"),
        ({"horizon": np.inf}, "horizon"),
        ({"t": []}, "t"),
        ({"t": [np.nan]}, "t"),
    ],
)
def test_a_bad_option_is_refused_by_name(fit, options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        fit.plot(**options)


def test_the_trace_falls_to_the_optimum():
    fit = MODEL.fit(T, Y, max_steps=5)
    gap = plot_trace(fit).lines[0].get_ydata()
    assert gap[0] == max(fit.trace.objective) - fit.trace.objective[0]


def test_a_trace_of_no_learning_is_refused(fit):
    with pytest.raises(ValueError, match="`fit`"):
        plot_trace(fit)


def test_without_matplotlib_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import thiele as th\n"
        "fit = th.GP(th.Matern32(), th.Gaussian()).condition([0.0, 1.0], [0.0, 1.0])\n"
        "try: fit.plot()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install thiele[plot]" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_million_points_are_drawn_in_seconds():
    n = 1_000_000
    rng = np.random.default_rng(1)
    t = np.linspace(0.0, 1e4, n)
    fit = MODEL.condition(t, np.sin(t / 300) + 0.2 * rng.normal(size=n))
    fit.plot()  # compiles
    began = time.perf_counter()
    fit.plot().figure.canvas.draw()
    assert time.perf_counter() - began < 10.0


def test_each_component_has_a_panel_with_its_mean_and_band():
    kernel = th.Matern32(1.0, "40 days") + th.Constant(0.5)
    fit = th.GP(kernel, th.Gaussian(0.05), mean=0.2).condition(DATES, Y)
    axes = plot_components(fit, horizon="30 days", level=0.9)
    assert [ax.get_title(loc="left") for ax in axes] == ["Matern32", "Constant"]
    found = fit.components(num2date(axes[0].lines[0].get_xdata(orig=False)[:5]))
    for ax, part in zip(axes, found, strict=True):
        np.testing.assert_allclose(ax.lines[0].get_ydata()[:5], part.mean, atol=1e-6)
    assert set(labelled(axes[0])) == {"90 %", "mean", "forecast"}
    assert axes[1].get_xlabel() == "date"


def test_a_check_is_drawn_as_it_was_found(fit):
    found = fit.check()
    pit, coverage, correlation = plot_check(found)
    np.testing.assert_allclose([bar.get_height() for bar in pit.patches], found.histogram)
    np.testing.assert_allclose(coverage.lines[1].get_ydata(), 100.0 * found.coverage)
    heights = [segment[1, 1] for segment in correlation.collections[0].get_segments()]
    np.testing.assert_allclose(heights, found.autocorrelation)
    for ax in (pit, coverage, correlation):
        assert ax.get_xlabel()
        assert ax.get_ylabel()


def test_a_horizon_may_be_a_duration_and_covariates_scale_the_curve():
    counts = th.GP(th.Matern32(1.0, 1.5), th.Poisson()).condition(T, np.round(np.exp(Y)), exposure=np.ones(len(T)))
    once, twice = (labelled(counts.plot(T, covariates={"exposure": e}))["mean"].get_ydata() for e in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2.0 * once)
    dated = labelled(MODEL.condition(DATES, Y).plot(horizon="1 week"))["mean"].get_xdata(orig=False)
    assert dated[-1] == pytest.approx(date2num(DATES[-1]) + 7.0)


@pytest.mark.slow
def test_values_of_0_and_1_have_a_band_of_their_probability():
    fit = th.GP(th.Matern32(1.0, 1.5), th.Bernoulli()).condition(T, (Y > 0.3).astype(float))
    drawn = labelled(fit.plot(T))
    assert "95 % of observations" not in drawn
    _, low, high = edges(drawn["95 % of the probability"])
    p = fit.predict(T)
    np.testing.assert_allclose(low, 1.0 / (1.0 + np.exp(-p.mean + 1.959964 * np.sqrt(p.var))), atol=1e-6)
    assert np.all((low < p.y_mean) & (p.y_mean < high))


def test_an_axis_of_dates_is_that_of_their_time_zone():
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2024-06-01", periods=len(T), freq="h", tz="Asia/Tokyo")
    ax = MODEL.condition(pd.Series(Y, index=index)).plot()
    ax.figure.canvas.draw()
    assert str(ax.xaxis.get_major_formatter()._tz) == "Asia/Tokyo"
    assert ax.lines[0].get_xdata(orig=False)[0] == pytest.approx(date2num(np.datetime64("2024-05-31T15:00")))
