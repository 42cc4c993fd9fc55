"""Honest uncertainty passes the check; too narrow, too wide and unmodelled seasons are noticed and named."""

import numpy as np
import pytest

import thiele as th
from thiele.checks import Tails, autocorrelation, one_ahead, spread

N = 300
T = np.arange(N) * 0.3
RNG = np.random.default_rng(5)
F = np.asarray(th.GP(th.Matern32(1.0, 3.0), th.Gaussian(0.1), mean=0.0).condition([-50.0], [0.0]).sample(T, 1, 7)[0])
NOISE = RNG.standard_normal(N)


def checked(variance, y=None):
    model = th.GP(th.Matern32(1.0, 3.0), th.Gaussian(variance), mean=0.0)
    return model.condition(T, F + np.sqrt(0.1) * NOISE if y is None else y).check()


def test_the_true_model_passes():
    found = checked(0.1)
    assert found.warnings == ()
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.05)
    assert found.calibration_p > 0.01
    assert found.autocorrelation_p > 0.01
    assert sum(found.histogram) == pytest.approx(1.0)


def test_too_little_noise_is_too_narrow_and_too_much_too_wide():
    assert any("too narrow" in text for text in checked(0.02).warnings)
    assert any("too wide" in text for text in checked(0.8).warnings)


def test_a_season_that_is_not_in_the_kernel_is_noticed():
    season = np.tile([2.0, -1.0, -1.0], N // 3)
    found = checked(2.0, F + season + np.sqrt(0.1) * NOISE)
    assert any("most at lag 3" in text for text in found.warnings)
    assert "warning: errors hang together" in str(found)


def test_one_step_ahead_is_what_the_data_before_say():
    model = th.GP(th.Matern32(1.0, 3.0), th.Gaussian(0.1), mean=0.3)
    p = one_ahead(model.condition(T, F))
    for n in (0, 1, 250):
        y = np.where(np.arange(N) < n, F, np.nan)
        if n == 0:
            assert (p.mean[0], p.var[0]) == pytest.approx((0.3, 1.0))
            continue
        expected = model.condition(T, y).predict(T[n : n + 1])
        assert (p.mean[n], p.var[n]) == pytest.approx((expected.mean[0], expected.var[0]), rel=1e-8)


@pytest.mark.slow
def test_counts_that_are_right_pass():
    y = RNG.poisson(np.exp(F)).astype(float)
    y[7] = np.nan
    found = th.GP(th.Matern32(1.0, 3.0), th.Poisson()).condition(T, y).check()
    assert found.n == N - 1
    assert found.warnings == ()
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.05)


@pytest.mark.slow
def test_inducing_times_are_checked_too_and_few_data_say_so():
    found = th.GP(th.Matern32(1.0, 3.0), th.Gaussian(0.1), mean=0.0, inducing=60).condition(T, F + 0.3 * NOISE).check()
    assert not found.ahead
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.06)
    few = th.GP(th.Matern32(1.0, 3.0), th.Gaussian(0.1), mean=0.0).condition(T[:5], F[:5]).check()
    assert "too few" in few.warnings[0]


def test_a_step_is_spread_over_the_bins_that_it_covers():
    np.testing.assert_allclose(spread(Tails(np.array([0.0]), np.array([0.5])), 4), [0.5, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(spread(Tails(np.array([1.0]), np.array([1.0])), 4), [0.0, 0.0, 0.0, 1.0])


def test_autocorrelation_of_a_wave():
    assert autocorrelation(np.tile([1.0, -1.0], 50), 2) == pytest.approx([-0.99, 0.98])


@pytest.mark.slow
def test_categories_have_no_order_to_check(tmp_path):
    model = th.GP(th.Stack(th.Matern32(), th.Matern32(), th.Matern32()), th.Categorical(3))
    fit = model.condition(T[:8], np.arange(8.0) % 3)
    for asked in (fit.check, fit.anomalies, lambda: fit.report(tmp_path / "a.html")):
        with pytest.raises(ValueError, match="needs values in an order; Categorical has categories"):
            asked()
    assert list(fit.forecast(0.6)) == ["time", "mean_0", "mean_1", "mean_2"]
