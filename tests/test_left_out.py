"""Each datum as the others predict it, against refits; and the data that do not fit among them."""

import numpy as np
import pytest

import thiele as th
from thiele.left_out import left_out, surprising, tails

RNG = np.random.default_rng(3)
T = np.sort(RNG.uniform(0.0, 20.0, 60))
WAVE = 0.5 + np.sin(T) + 0.3 * RNG.standard_normal(T.size)
COUNTS = RNG.poisson(np.exp(1.0 + np.sin(T))).astype(float)


@pytest.mark.parametrize("inducing", [None, pytest.param(np.linspace(0.0, 20.0, 41), marks=pytest.mark.slow)])
def test_gaussian_moments_are_those_of_a_refit(inducing):
    model = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), mean=0.5, inducing=inducing)
    p = left_out(model.condition(T, WAVE))
    for n in (0, 17, 59):
        again = model.condition(T, np.where(np.arange(T.size) == n, np.nan, WAVE)).predict(T[n : n + 1])
        # Up to what inducing times leave unexplained.
        np.testing.assert_allclose(
            [p.mean[n], p.var[n]], [again.mean[0], again.var[0]], rtol=1e-8 if inducing is None else 0.02
        )


@pytest.mark.parametrize("rule", [th.CVI(), pytest.param(th.PowerEP(), marks=pytest.mark.slow)])
def test_densities_are_those_of_loo(rule):
    y = np.where(np.arange(T.size) == 4, np.nan, COUNTS)
    fit = th.GP(th.Matern32(1.0, 2.0), th.Poisson(), rule=rule, mean=0.4).condition(T, y)
    np.testing.assert_allclose(left_out(fit).log_density(y), fit.loo(), atol=1e-9)


def test_tails_of_counts_have_a_step_and_those_of_numbers_none():
    counts = th.GP(th.Matern32(1.0, 2.0), th.Poisson(), rule=th.CVI(), mean=0.4).condition(T, COUNTS)
    found = tails(counts, left_out(counts))
    np.testing.assert_allclose(found.upto - found.below, np.exp(counts.loo()), atol=1e-6)
    numbers = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), mean=0.5).condition(T, WAVE)
    found = tails(numbers, left_out(numbers))
    np.testing.assert_array_equal(found.upto, found.below)


def test_values_put_out_of_place_are_found_and_no_others():
    y = WAVE.copy()
    y[[10, 40]] += [4.0, -5.0]
    order = RNG.permutation(T.size)
    found = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), mean=0.5).condition(T[order], y[order]).anomalies()
    np.testing.assert_allclose(found["time"], T[[10, 40]])
    np.testing.assert_allclose(found["value"], y[[10, 40]])
    assert np.all((found["value"] > found["upper"]) == [True, False])
    assert np.all(found["probability"] < 1e-4)


def test_most_series_without_anomalies_have_none():
    rng = np.random.default_rng(0)
    model = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), mean=0.5)
    prior = model.condition(T, WAVE)
    alarms = 0
    for draw in range(20):
        # Under the model itself: at a rate of 5 %, an alarm in about one series of twenty.
        f = prior.sample(T, 1, draw)[0]
        alarms += model.condition(T, f + np.sqrt(0.1) * rng.standard_normal(T.size)).anomalies().rows > 0
    assert alarms <= 4


def test_the_least_probable_are_reported_while_false_alarms_stay_few():
    p = np.array([0.9, 0.001, np.nan, 0.02, 0.5])
    np.testing.assert_array_equal(surprising(p, 0.05), [1, 3])  # 0.02 ≤ 2/4 · 0.05
    np.testing.assert_array_equal(surprising(p, 0.01), [1])
    assert len(surprising(np.array([0.9, 0.5]), 0.05)) == 0
    with pytest.raises(ValueError, match="`rate` must be a number between 0 and 1"):
        th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), mean=0.5).condition(T, WAVE).anomalies(rate=5)
