"""What comes in with an index goes out with an index: pandas, polars, xarray, and plain arrays."""

import datetime

import numpy as np
import pytest

import thiele as th
from thiele.axes import Table

N = 24
VALUES = np.sin(np.arange(N) / 3.0)
MODEL = th.GP(th.Matern32(1.0, 5.0), th.Gaussian(0.1), mean=0.0)
DAYS = np.datetime64("2024-03-20") + np.arange(N)


@pytest.fixture(scope="module")
def expected():
    return MODEL.condition(DAYS, VALUES).predict(DAYS[-1:] + np.arange(1, 6))


def test_a_pandas_series_is_times_and_values_and_its_index_comes_back(expected):
    pd = pytest.importorskip("pandas")
    index = pd.DatetimeIndex(DAYS, name="day")
    fit = MODEL.condition(pd.Series(VALUES, index=index))
    found = fit.forecast(pd.Timedelta(days=5))
    assert list(found.columns) == ["mean", "sd", "lower", "upper"]
    assert found.index.equals(pd.date_range("2024-04-13", periods=5))
    assert found.index.name == "day"
    np.testing.assert_allclose(found["mean"], expected.y_mean, rtol=1e-12)
    assert fit.predict().table().index.equals(index)
    assert fit.predict(index[3:6]).table().index is not None
    assert fit.predict(index[3:6]).table().index.equals(index[3:6])


def test_a_time_zone_is_kept_and_its_days_are_local(expected):
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2024-03-20", periods=N, tz="Europe/Copenhagen")  # the clock goes forward on the 31st
    fit = MODEL.condition(pd.Series(VALUES, index=index))
    found = fit.forecast("5 days").index
    assert found.equals(pd.date_range("2024-04-13", periods=5, tz="Europe/Copenhagen"))
    assert fit.predict().table().index.equals(index)
    # The same instants in another zone are the same times.
    again = MODEL.condition(index.tz_convert("UTC"), VALUES)
    np.testing.assert_array_equal(again.data.time, fit.data.time)
    assert float(fit.data.time[15]) == pytest.approx(15 - 1 / 24)


def test_pandas_missing_values_and_nullable_integers_are_missing():
    pd = pytest.importorskip("pandas")
    y = pd.Series([1, None, 3] + [2] * (N - 3), dtype="Int64", index=pd.DatetimeIndex(DAYS))
    fit = MODEL.condition(y)
    assert int(np.sum(fit.data.observed)) == N - 1
    found = fit.impute()
    assert found["imputed"].tolist() == [False, True, False] + [False] * (N - 3)
    assert found.index.equals(y.index)


def test_pandas_periods_and_timedeltas_are_times():
    pd = pytest.importorskip("pandas")
    months = MODEL.condition(pd.period_range("2020-01", periods=N, freq="M"), VALUES)
    assert float(months.data.time[1]) == 31.0
    hours = MODEL.condition(pd.to_timedelta(np.arange(N), unit="h"), VALUES)
    assert float(hours.data.time[12]) == 0.5


def test_polars_in_polars_out(expected):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"day": DAYS, "count": VALUES})
    found = MODEL.condition(frame["day"], frame["count"]).forecast("5 days")
    assert isinstance(found, pl.DataFrame)
    assert found.columns == ["day", "mean", "sd", "lower", "upper"]
    assert found["day"].to_list()[0] == datetime.datetime(2024, 4, 13)
    np.testing.assert_allclose(found["mean"].to_numpy(), expected.y_mean, rtol=1e-12)


def test_polars_time_zones_and_nulls(expected):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"t": DAYS, "y": [None, *VALUES[1:]]})
    stamps = frame["t"].cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Copenhagen")
    fit = MODEL.condition(stamps, frame["y"])
    assert not fit.data.observed[0]
    found = fit.forecast("2 days")["t"]
    assert found.dtype.time_zone == "Europe/Copenhagen"
    assert [d.hour for d in found.to_list()] == [0, 0]
    with pytest.raises((TypeError, ValueError), match="`t` must"):
        MODEL.condition(pl.Series([datetime.datetime(2020, 1, 1), None]), [1.0, 2.0])


def test_xarray_in_xarray_out(expected):
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(VALUES, coords={"day": DAYS.astype("datetime64[ns]")}, dims="day", name="y")
    found = MODEL.condition(array).forecast("5 days")
    assert isinstance(found, xr.Dataset)
    assert found["mean"].dims == ("day",)
    np.testing.assert_allclose(found["mean"].values, expected.y_mean, rtol=1e-12)


def test_plain_arrays_give_a_table(expected):
    found = MODEL.condition(DAYS, VALUES).forecast(5)
    assert isinstance(found, Table)
    assert list(found) == ["time", "mean", "sd", "lower", "upper"]
    assert found.rows == 5
    np.testing.assert_array_equal(found["time"].astype("datetime64[D]"), DAYS[-1] + np.arange(1, 6))
    assert "2024-04-13" in repr(found)
    with pytest.raises(KeyError, match="there are time, mean"):
        found["median"]


def test_values_without_times_are_asked_for():
    with pytest.raises(TypeError, match="`y` must be given"):
        MODEL.condition(VALUES)
