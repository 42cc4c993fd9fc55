import numpy as np
import pytest

from thiele import data


def test_motorcycle_is_the_published_table():
    series = data.motorcycle()
    assert series.time.shape == series.value.shape == (133,)
    assert (series.time[0], series.value[0], series.time[-1], series.value[-1]) == (2.4, 0.0, 57.6, 10.7)
    assert len(np.unique(series.time)) < 133
    assert np.all(np.diff(series.time) >= 0)


def test_coal_has_191_events_in_order():
    events = data.coal()
    assert events.time.shape == (191,)
    assert np.all(np.diff(events.time) >= 0)
    np.testing.assert_allclose(events.time[[0, -1]], [1851.2026, 1962.2197], atol=5e-5)


def test_coal_counts_are_those_of_the_published_experiments():
    counts = data.coal_counts()
    assert np.bincount(counts.value).tolist() == [197, 96, 27, 11, 2]
    np.testing.assert_allclose(counts.exposure, 0.33338, atol=5e-6)
    np.testing.assert_allclose(np.diff(counts.time), 0.33439, atol=5e-6)


@pytest.mark.parametrize("bins", [2, 10, 1000])
def test_every_coal_event_is_counted_whatever_the_bins(bins):
    counts = data.coal_counts(bins)
    assert counts.time.shape == counts.value.shape == (bins,)
    assert counts.value.sum() == 191


def test_too_few_bins_are_refused():
    with pytest.raises(ValueError, match="`bins` must be at least 2, got 1"):
        data.coal_counts(1)


def test_co2_is_monthly_without_gaps():
    series = data.co2()
    assert series.time.shape == series.value.shape == (468,)
    np.testing.assert_allclose(np.diff(series.time), 1 / 12, rtol=1e-9)
    assert (series.value[0], series.value[-1]) == (315.42, 364.34)


@pytest.mark.parametrize("load", [data.motorcycle, data.coal, data.coal_counts, data.co2])
def test_every_table_names_its_source(load):
    assert load().source
    assert load().units
