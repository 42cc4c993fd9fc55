"""Exponents of growth."""

import pytest

from benchmarks import growth


def test_the_exponent_of_a_power_is_that_power():
    sizes = [10, 100, 1000]
    assert growth.exponent(sizes, [size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_the_last_decade_leaves_out_fixed_costs():
    sizes = [10, 100, 1000, 10_000]
    seconds = [1.0, 1.0, 1.0, 10.0]
    assert growth.last_decade(sizes, seconds) == ([1000, 10_000], [1.0, 10.0])
    assert growth.exponent(*growth.last_decade(sizes, seconds)) == pytest.approx(1.0)


def test_a_row_has_sizes_times_and_memory():
    row = growth.row(growth.Case(10**5, 100), {"seconds": 0.12345, "cpu": 0.2, "data": 1.5, "peak": 321.4})
    assert row == ("1e5", "1e2", "0.1235", "0.2", "1.5", "321")
    assert len(row) == len(growth.COLUMNS)


def test_the_summary_names_both_exponents():
    found = [{"seconds": 0.1, "cpu": 0.1}, {"seconds": 1.0, "cpu": 10.0}]
    assert growth.summary("N", [10, 100], found) == (
        "exponents in N: time 1.00, over the last decade 1.00; CPU seconds 2.00, over the last decade 2.00"
    )
