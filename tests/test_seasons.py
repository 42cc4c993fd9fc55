"""Seasons that are there are found, by the calendar and from the spectrum; wandering series have none."""

import numpy as np
import pytest

from thiele.durations import YEAR
from thiele.seasons import find_seasons, stated

RNG = np.random.default_rng(0)


def wave(t, period):
    return np.sin(2.0 * np.pi * t / period)


def test_a_week_and_a_year_are_found_in_two_years_of_days():
    t = np.arange(730.0)
    z = wave(t, 7.0) + 0.5 * wave(2.0 * t, 7.0) + 2.0 * wave(t, YEAR) + RNG.standard_normal(t.size)
    found = find_seasons(t, z, dated=True)
    assert [s.period for s in found] == [YEAR, 7.0]
    assert all(s.calendar for s in found)
    assert found[0].words(dated=True).startswith("a season of 365.2 days, by the calendar: it explains")


def test_a_period_of_no_calendar_is_found_from_the_spectrum_of_irregular_times():
    t = np.sort(RNG.uniform(0.0, 100.0, 300))
    (found,) = find_seasons(t, wave(t, 3.3) + 0.5 * RNG.standard_normal(t.size), dated=False)
    assert found.period == pytest.approx(3.3, rel=2e-3)
    assert not found.calendar


def test_the_shortest_of_the_periods_that_explain_the_same_is_taken():
    t = np.arange(400.0)
    (found,) = find_seasons(t, wave(t, 20.0) + 0.2 * RNG.standard_normal(t.size), dated=False)
    assert found.period == pytest.approx(20.0, rel=1e-2)


def test_months_of_years_that_are_numbers_have_a_year():
    t = 1990.0 + np.arange(72) / 12.0
    (found,) = find_seasons(t, wave(t, 1.0) + 0.3 * RNG.standard_normal(t.size), dated=False)
    assert (found.period, found.calendar) == (1.0, True)


@pytest.mark.parametrize("kind", ["white", "walk", "smooth"])
def test_what_wanders_has_hardly_ever_a_season(kind):
    found = 0
    for _ in range(8):
        noise = RNG.standard_normal(460)
        z = {
            "white": noise[:400],
            "walk": np.cumsum(noise)[:400],
            "smooth": np.convolve(noise, np.hanning(61), "valid"),
        }
        found += len(find_seasons(np.arange(len(z[kind])) * 1.0, z[kind], dated=True)) > 0
    assert found <= 1


def test_a_long_series_is_averaged_and_its_season_still_found():
    t = np.arange(60_000) / 24.0  # hours, in days
    z = wave(t, 1.0) + wave(t, YEAR) + RNG.standard_normal(t.size)
    assert {s.period for s in find_seasons(t, z, dated=True)} == {1.0, YEAR}


def test_short_and_constant_series_have_none():
    assert find_seasons(np.arange(10.0), RNG.standard_normal(10), dated=True) == ()
    assert find_seasons(np.arange(100.0), np.ones(100), dated=True) == ()


def test_harmonics_are_those_that_the_step_can_show():
    assert stated(7.0, 1.0).harmonics == 3
    assert stated(1.0, 0.25).harmonics == 1
    assert stated(YEAR, 1.0).harmonics == 4
