"""Durations in words, as numbers of days, and back."""

import datetime

import numpy as np
import pytest

import thiele as th
from thiele.durations import YEAR, in_days, in_words


@pytest.mark.parametrize(
    ("given", "days"),
    [
        ("7 days", 7.0),
        ("1 week", 7.0),
        ("week", 7.0),
        ("90 min", 90 / 1440),
        ("1 h 30 min", 1.5 / 24),
        ("1.5h", 1.5 / 24),
        ("2 days, 12 hours", 2.5),
        ("1 day and 6 hours", 1.25),
        ("1e3 s", 1e3 / 86400),
        ("250 ms", 0.25 / 86400),
        ("1 year", YEAR),
        ("3 months", YEAR / 4),
        (datetime.timedelta(hours=36), 1.5),
        (np.timedelta64(36, "h"), 1.5),
        (np.timedelta64(6, "M"), YEAR / 2),
    ],
)
def test_words_and_timedeltas_become_days(given, days):
    assert in_days(given, "period") == pytest.approx(days, rel=1e-12)


@pytest.mark.parametrize("given", ["", "7", "seven days", "7 parsecs", "days 7", "7 days!"])
def test_what_is_no_duration_is_named(given):
    with pytest.raises(ValueError, match="`period` must be a duration"):
        in_days(given, "period")


@pytest.mark.parametrize("days", [1e-9, 3e-7, 0.02, 0.9, 1.0, 6.5, 400.0, 800.0, 9e4])
def test_words_say_the_number_to_four_digits(days):
    assert in_days(in_words(days), "x") == pytest.approx(days, rel=1e-3)


def test_a_lengthscale_may_be_a_duration_where_times_are_dates():
    kernel = th.Matern32(lengthscale="1 week") + th.Periodic(period=th.fixed(datetime.timedelta(days=1)), harmonics=2)
    assert float(kernel.terms[0].lengthscale) == 7.0
    assert float(kernel.terms[1].period) == 1.0
    with pytest.raises(TypeError, match=r"`kernel.terms\[0\].lengthscale` was given as a duration"):
        th.GP(kernel).condition([0.0, 1.0], [1.0, 2.0])
    with pytest.raises(TypeError, match="`variance` of Matern32 must be positive"):
        th.Matern32(variance="1 week")
