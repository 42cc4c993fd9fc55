"""Forecasts go on as the data do, by the calendar; what is missing is filled in with its uncertainty."""

import numpy as np
import pytest

import thiele as th
from thiele.forecast import times_ahead

MODEL = th.GP(th.Matern32(1.0, 5.0), th.Gaussian(0.1), mean=0.0)


def ahead(stamps, horizon, step=None):
    """The dates of a forecast."""
    fit = MODEL.condition(stamps, np.zeros(len(stamps)))
    return fit.clock.times(times_ahead(fit, horizon, step))


def test_months_go_on_by_months():
    months = np.arange("2020-01", "2022-01", dtype="datetime64[M]")
    found = ahead(months, "1 year")
    np.testing.assert_array_equal(found, np.arange("2022-01", "2023-01", dtype="datetime64[M]").astype(found.dtype))


def test_ends_of_months_stay_ends_of_months():
    months = np.arange("2020-01", "2022-01", dtype="datetime64[M]")
    ends = (months + 1).astype("datetime64[D]") - 1
    found = ahead(ends, "3 months").astype("datetime64[D]")
    np.testing.assert_array_equal(found, np.array(["2022-01-31", "2022-02-28", "2022-03-31"], dtype="datetime64[D]"))


def test_quarters_and_years_are_months_too():
    quarters = np.arange("2014-01", "2020-01", 3, dtype="datetime64[M]")
    np.testing.assert_array_equal(
        ahead(quarters, "1 year").astype("datetime64[M]"), np.arange("2020-01", "2021-01", 3, dtype="datetime64[M]")
    )
    years = np.arange("1996", "2020", dtype="datetime64[Y]")
    assert [str(d)[:10] for d in ahead(years, "2 years")] == ["2020-01-01", "2021-01-01"]


def test_days_hours_and_numbers_go_on_at_their_usual_step():
    days = np.datetime64("2020-01-01") + np.arange(24)
    assert [str(d)[:10] for d in ahead(days, "3 days")] == ["2020-01-25", "2020-01-26", "2020-01-27"]
    hours = np.datetime64("2020-01-01T00:30") + np.arange(24) * np.timedelta64(1, "h")
    assert [str(d)[:16] for d in ahead(hours, "2 hours")] == ["2020-01-02T00:30", "2020-01-02T01:30"]
    np.testing.assert_allclose(ahead(0.5 * np.arange(24), 2.0), 11.5 + 0.5 * np.arange(1, 5))


def test_a_step_of_ones_own():
    days = np.datetime64("2020-01-01") + np.arange(24)
    assert [str(d)[:10] for d in ahead(days, "14 days", "1 week")] == ["2020-01-31", "2020-02-07"]
    assert len(ahead(days, "1 day", "6 hours")) == 4
    assert [str(d)[:13] for d in ahead(days, "12 hours")] == ["2020-01-24T12"]  # nearer than the next datum


@pytest.mark.parametrize(
    ("horizon", "step", "error", "words"),
    [
        ("5 days", None, TypeError, "`horizon` must be a number, in the units of `t`"),
        (0.0, None, ValueError, "`horizon` must be positive"),
        (np.nan, None, ValueError, "`horizon` must be one finite number"),
        (5.0, -1.0, ValueError, "`step` must be positive"),
        (1e9, None, ValueError, "at most 1,000,000 steps"),
    ],
)
def test_a_horizon_that_makes_no_sense_is_named(horizon, step, error, words):
    fit = MODEL.condition(np.arange(24.0), np.zeros(24))
    with pytest.raises(error, match=words):
        fit.forecast(horizon, step=step)


@pytest.mark.slow
def test_covariates_of_what_is_to_come_are_used():
    fit = th.GP(th.Matern32(1.0, 5.0), th.Poisson()).condition(np.arange(24.0), np.ones(24), exposure=np.ones(24))
    once, twice = fit.forecast(3.0), fit.forecast(3.0, exposure=2.0)
    np.testing.assert_allclose(twice["mean"], 2.0 * once["mean"])


def test_impute_fills_what_is_missing_and_keeps_the_rest_in_the_order_given():
    t = np.arange(24.0)
    y = np.sin(t / 3.0)
    order = np.random.default_rng(0).permutation(24)
    holes = y.copy()
    holes[[5, 6]] = np.nan
    found = MODEL.condition(t[order], holes[order]).impute()
    np.testing.assert_array_equal(found["time"], t[order])
    np.testing.assert_array_equal(found["imputed"], np.isnan(holes)[order])
    seen = ~found["imputed"]
    np.testing.assert_array_equal(found["value"][seen], holes[order][seen])
    np.testing.assert_array_equal(found["upper"][seen], found["lower"][seen])
    filled = {time: value for time, value in zip(found["time"], found["value"], strict=True) if time in (5.0, 6.0)}
    expected = MODEL.condition(t, holes).predict([5.0, 6.0]).y_mean
    np.testing.assert_allclose([filled[5.0], filled[6.0]], expected, rtol=1e-10)
    assert np.all(found["upper"][~seen] - found["lower"][~seen] > 1.0)
