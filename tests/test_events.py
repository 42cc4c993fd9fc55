"""Event times become counts by bins: every event once, widths stated or chosen and said."""

import numpy as np
import pytest

import thiele as th

DAYS = np.datetime64("2024-05-01T00:00") + np.sort(np.random.default_rng(0).integers(0, 60 * 1440, 150)).astype(
    "timedelta64[m]"
)


def test_every_event_is_counted_once_and_exposures_add_up_to_the_span():
    times = th.data.coal().time
    counted = th.events(times)
    assert np.sum(counted.y) == len(times)
    assert np.sum(counted.exposure) == pytest.approx(times[-1] - times[0])
    assert len(counted.y) == 2 * len(times)
    assert repr(counted) == "191 events counted in 382 bins of 0.2906, about two for each event"


def test_dates_are_counted_in_round_widths():
    counted = th.events(DAYS)
    assert np.sum(counted.y) == 150
    assert counted.exposure[0] == pytest.approx(0.125)  # three hours, in days
    assert "bins of 3 hours" in counted.said
    assert counted.t.dtype.kind == "M"
    stated = th.events(DAYS, bins="1 day", start=np.datetime64("2024-05-01"), end=np.datetime64("2024-06-30"))
    assert len(stated.y) == 60
    np.testing.assert_array_equal(
        stated.y,
        [np.sum(DAYS.astype("datetime64[D]") == d) for d in np.arange("2024-05-01", "2024-06-30", dtype="M8[D]")],
    )


def test_counts_go_to_fit_by_their_names():
    counted = th.events(th.data.coal().time, bins=40)
    fit = th.GP(th.Matern52(1.0, 10.0), th.Poisson(), mean="learn").condition(**counted)
    rate = fit.predict([1870.0, 1930.0], exposure=1.0).y_mean  # per year
    assert rate[0] > 2.0 * rate[1]
    with pytest.raises(KeyError):
        counted["value"]


@pytest.mark.parametrize(
    ("times", "settings", "words"),
    [
        ([], {}, "at least one event"),
        ([1.0, 1.0], {}, "events at one time have no rate"),
        ([1.0, 2.0], {"bins": 0}, "`bins` must be at least 1"),
        ([1.0, 2.0], {"bins": -0.5}, "positive duration"),
        ([1.0, 2.0], {"start": 1.5}, "between `start` and `end`"),
        ([1.0, 2.0], {"bins": 1e-9}, "at most"),
    ],
)
def test_what_makes_no_sense_is_named(times, settings, words):
    with pytest.raises(ValueError, match=words):
        th.events(times, **settings)
    with pytest.raises(TypeError, match="`bins` must be a number"):
        th.events([1.0, 2.0], bins="1 day")
