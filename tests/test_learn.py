"""The search itself, on functions whose maximum is known."""

import numpy as np
import pytest

from thiele.learn import Evaluation, maximise

START, PEAK = np.array([0.0, 1.0]), np.array([2.0, -1.5])


class Hill:
    """−½ s |x − peak|², and where it was asked for."""

    def __init__(self, steepness):
        self.steepness, self.asked = steepness, []

    def __call__(self, x):
        self.asked.append(np.array(x))
        away = x - PEAK
        return Evaluation(-0.5 * self.steepness * float(away @ away), -self.steepness * away)


@pytest.mark.parametrize("steepness", [1e-2, 1.0, 1e6])
def test_the_maximum_is_found_from_a_first_step_of_one_unit_at_most(steepness):
    hill = Hill(steepness)
    found = maximise(hill, START, tolerance=1e-6, max_steps=50, progress=False)
    assert found.converged
    np.testing.assert_allclose(found.vector, PEAK, atol=2e-6 / min(steepness, 1.0))
    assert np.max(np.abs(hill.asked[1] - START)) <= 1.0 + 1e-12
    assert sum(np.array_equal(x, START) for x in hill.asked) == 1


def test_a_start_that_is_no_number_is_said_and_not_searched_from():
    found = maximise(lambda x: Evaluation(np.nan, np.zeros_like(x)), START, tolerance=1e-6, max_steps=5, progress=False)
    assert not found.converged
    assert "not finite at the starting values" in found.message
    assert len(found.trace.objective) == 0


def test_a_step_to_where_the_objective_is_no_number_is_taken_back():
    hill = Hill(1.0)
    fenced = lambda x: hill(x) if x[0] < 0.9 else Evaluation(np.nan, np.zeros(2))  # noqa: E731
    found = maximise(fenced, START, tolerance=1e-6, max_steps=50, progress=False)
    assert np.isfinite(found.objective)
    assert found.objective > hill(START).value
    assert found.vector[0] < 0.9
