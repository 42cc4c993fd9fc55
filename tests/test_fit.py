"""Learning, and what a user may hand in."""

import datetime

import numpy as np
import pytest

import thiele as th
from thiele import dense
from thiele.learn import Evaluation, maximise

RNG = np.random.default_rng(5)
T = np.sort(RNG.uniform(0.0, 10.0, 80))
Y = 3.0 + np.sin(T) + 0.2 * RNG.normal(size=80)


@pytest.fixture(scope="module")
def fit():
    return th.GP(th.Matern32()).fit(T, Y, tolerance=1e-5)


def test_a_search_is_not_drawn_to_where_the_energy_is_rounding():
    # At such a variance the ELBO of these counts, where sites begin, is the difference of terms of 1e130.
    t = np.sort(np.random.default_rng(2).uniform(0.0, 12.0, 24))
    counts = np.array([3, 1, 0, 2, 0, 1, 2, 3, 1, 2, 5, 0, 0, 4, 0, 0, 0, 1, 1, 2, 1, 1, 1, 4])
    for variance in (2e5, 2e6):
        far = th.GP(th.Matern32(variance, 1e-11), th.Poisson(), mean=-1.3).condition(t, counts)
        assert -300.0 < far.objective < -100.0
    # Between inducing times the prior itself is that wide, and no site changes it.
    with pytest.raises(FloatingPointError, match="log likelihood of these data is not finite"):
        th.GP(th.Matern12(2e6, 1.0), th.Poisson(), inducing=3).condition(t, counts)
    fit = th.GP(th.Matern32(), th.Poisson(), mean="learn").fit(t, counts)
    assert -60.0 < fit.objective < -30.0
    assert fit.converged


def test_learning_ends_where_dense_algebra_has_its_maximum(fit):
    assert fit.converged

    def value(variance, lengthscale, noise, mean):
        return float(dense.log_likelihood(th.Matern32(variance, lengthscale), T, Y, noise, mean))

    best = [float(x) for x in (fit.kernel.variance, fit.kernel.lengthscale, fit.likelihood.variance, fit.mean)]
    np.testing.assert_allclose(fit.objective, value(*best), rtol=1e-9)
    for i in range(4):
        for factor in (0.97, 1.03):
            moved = list(best)
            moved[i] *= factor
            assert value(*moved) < fit.objective


@pytest.mark.parametrize(("units", "offset"), [(1e-6, 0.0), (1e6, 1e9)])
def test_defaults_start_from_the_units_of_the_data(fit, units, offset):
    other = th.GP(th.Matern32()).fit(T * units + offset, Y * 1e3, tolerance=1e-5)
    assert other.converged
    np.testing.assert_allclose(other.kernel.lengthscale / units, fit.kernel.lengthscale, rtol=1e-3)
    np.testing.assert_allclose(other.kernel.variance / 1e6, fit.kernel.variance, rtol=1e-3)


def test_fixed_values_stay_and_the_rest_is_learnt():
    fit = th.GP(th.Matern32(variance=th.fixed(2.5)), th.Gaussian(th.fixed(0.3)), mean=3.0).fit(T, Y)
    assert float(fit.kernel.variance) == 2.5
    assert float(fit.likelihood.variance) == 0.3
    assert fit.mean == 3.0
    assert float(fit.kernel.lengthscale) != 1.0


def test_nothing_to_learn_is_no_error():
    fit = th.GP(th.Matern32(th.fixed(1.0), th.fixed(2.0)), th.Gaussian(th.fixed(0.1)), mean=3.0).fit(T, Y)
    assert fit.converged
    assert float(fit.kernel.lengthscale) == 2.0


def test_masked_values_are_missing_values():
    model = th.GP(th.Matern32(1.0, 1.0), th.Gaussian(0.1), mean=3.0)
    masked = model.condition(T, np.ma.masked_where(T > 5.0, Y)).objective
    assert masked == model.condition(T, np.where(T > 5.0, np.nan, Y)).objective


def test_bursts_far_apart_are_not_taken_for_noise():
    t = np.concatenate([T, T + 1e6])
    fit = th.GP(th.Matern32()).fit(t, np.tile(Y, 2))
    assert 0.5 < float(fit.kernel.lengthscale) < 10.0


def test_a_prior_pulls():
    tight = th.priors.LogNormal(median=50.0, sigma=0.01)
    fit = th.GP(th.Matern32(lengthscale=th.param(50.0, prior=tight))).fit(T, Y)
    np.testing.assert_allclose(fit.kernel.lengthscale, 50.0, rtol=0.05)


def test_the_mean_of_gaussian_data_is_learnt_unless_given():
    far = th.GP(th.Matern32()).fit(T, Y + 1e3)
    np.testing.assert_allclose(far.mean, 1e3 + 3.0, atol=0.5)
    assert th.GP(th.Matern32(), mean="learn").fit(T, Y).mean != 0.0
    assert th.GP(th.Matern32(), mean=0.0).fit(T, Y).mean == 0.0
    assert th.GP(th.Matern32()).condition(T, Y).mean == 0.0


def test_the_trace_climbs(fit):
    assert np.all(np.diff(fit.trace.objective) >= 0.0)
    assert fit.trace.objective[-1] <= fit.objective + 1e-9
    assert fit.trace.gradient[-1] < 1e-4
    assert np.all(np.diff(fit.trace.seconds) > 0.0)
    assert th.GP(th.Matern32()).condition(T, Y).trace is None


def test_a_learnt_model_can_be_fitted_again_from_where_it_is(fit):
    again = fit.model.fit(T, Y, tolerance=1e-4)
    assert len(again.trace.objective) <= 2
    np.testing.assert_allclose(again.objective, fit.objective, rtol=1e-9)


def test_an_interrupt_returns_the_best_so_far():
    calls = []

    def evaluate(x):
        calls.append(x)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return Evaluation(-float(np.sum((x - 3.0) ** 2)), -2.0 * (x - 3.0))

    found = maximise(evaluate, np.zeros(2), tolerance=1e-9, max_steps=50, progress=False)
    assert not found.converged
    assert "interrupted" in found.message
    assert found.objective == max(-float(np.sum((x - 3.0) ** 2)) for x in calls[:2])


def test_a_step_to_where_nothing_is_finite_is_taken_back():
    def evaluate(x):
        if x[0] > 1.0:
            return Evaluation(np.nan, np.array([np.nan]))
        return Evaluation(-float((x[0] - 0.9) ** 2), -2.0 * (x - 0.9))

    found = maximise(evaluate, np.array([-20.0]), tolerance=1e-8, max_steps=100, progress=False)
    np.testing.assert_allclose(found.vector, 0.9, atol=1e-4)


def test_dates_are_counted_in_days():
    days = np.datetime64("2021-03-01") + np.arange(40)
    y = np.sin(np.arange(40) / 5.0)
    model = th.GP(th.Matern52(1.0, 6.0), th.Gaussian(0.01))
    by_date = model.condition(days, y)
    by_number = model.condition(np.arange(40.0), y)
    assert by_date.objective == by_number.objective
    noon = np.array(["2021-03-11T12:00"], dtype="datetime64[m]")
    np.testing.assert_array_equal(by_date.predict(noon).mean, by_number.predict([10.5]).mean)
    objects = [datetime.datetime(2021, 3, 1) + datetime.timedelta(days=i) for i in range(40)]
    assert model.condition(objects, y).objective == by_number.objective
    with pytest.raises(TypeError, match="`t_new` must be dates"):
        by_date.predict([1.0])
    with pytest.raises(TypeError, match="`t_new` must be numbers"):
        by_number.predict(noon)


def test_predictions_without_times_are_at_the_data_in_their_order():
    order = RNG.permutation(80)
    model = th.GP(th.Matern32(1.0, 1.0), th.Gaussian(0.04), mean=3.0)
    shuffled = model.condition(T[order], Y[order])
    np.testing.assert_allclose(shuffled.predict().mean, shuffled.predict(T[order]).mean, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_points_are_enough(n):
    fit = th.GP(th.Matern32()).fit(T[:n], Y[:n])
    p = fit.predict([0.0, 100.0])
    assert np.all(np.isfinite(p.mean))
    assert np.all(p.var >= 0.0)
    assert np.isfinite(fit.objective)


def test_constant_and_duplicate_data_give_finite_answers():
    for t, y in [(T, np.full(80, 2.0)), (np.zeros(80), Y), (np.repeat(T[:8], 10), Y)]:
        fit = th.GP(th.Matern32()).fit(t, y)
        assert np.isfinite(fit.objective)
        assert np.all(np.isfinite(fit.predict([0.5, 11.0]).y_var))


BAD = [
    (lambda m: m.fit(T, Y[:-1]), ValueError, "`t` and `y` must have the same length, got 80 and 79"),
    (lambda m: m.fit(T, np.full(80, np.nan)), ValueError, "`y` must hold at least one observed value"),
    (lambda m: m.fit([], []), ValueError, "`y` must hold at least one observed value, got no rows"),
    (lambda m: m.fit(T, Y + 0j), TypeError, "`y` must be real numbers, got complex128"),
    (lambda m: m.fit(T, np.full(80, np.datetime64("2020-01-01"))), TypeError, "`y` must be real numbers, got datetime"),
    (lambda m: m.fit(["2020-01-01"] * 80, Y), TypeError, "makes dates of it"),
    (lambda m: m.fit(np.ma.masked_greater(T, 5.0), Y), ValueError, "`t` must be known everywhere"),
    (lambda m: m.fit(T, Y, tolerance=-1.0), ValueError, "`tolerance` must be a positive number, got -1.0"),
    (lambda m: m.fit(T, Y, schedule="fast"), ValueError, "`schedule` must be"),
    (lambda m: m.fit(T, Y, exposure=1.0), ValueError, "Gaussian has no covariate `exposure`"),
    (lambda m: th.GP(m.kernel, mean=[1.0, 2.0]), ValueError, "`mean` must be one number"),
    (lambda m: th.GP(m.kernel, mean=np.nan), ValueError, "`mean` must be a finite number"),
    (lambda m: th.Gaussian(np.ones(20)), ValueError, "`variance` of Gaussian must be one number, got an array"),
    (lambda m: th.Matern32(th.param(1.0, prior="x")), TypeError, "`prior` of `variance` must have a method `log_prob`"),
    (lambda m: m.condition(T, Y).log_density([1.0], ["a"]), TypeError, "`y_test` must be numbers"),
    (lambda m: m.fit(np.where(T > 5, np.inf, T), Y), ValueError, "`t` must be finite, got inf at row"),
    (lambda m: m.fit(np.where(T > 5, np.nan, T), Y), ValueError, "`t` must be finite, got nan at row"),
    (lambda m: m.fit(T, np.where(T > 5, np.inf, Y)), ValueError, "`y` must be finite or NaN"),
    (lambda m: m.fit(T, ["a"] * 80), TypeError, "`y` must be numbers, got .*'a'.* at row 0"),
    (lambda m: m.fit(["x"] * 80, Y), TypeError, "`t` must be numbers"),
    (lambda m: m.fit(T[:, None], Y), ValueError, r"`t` must have shape \(n,\), got \(80, 1\)"),
    (lambda m: m.fit(T, Y[:, None]), ValueError, r"`y` must have shape \(n,\), got \(80, 1\)"),
    (lambda m: m.condition(T, Y).predict([[1.0]]), ValueError, "`t_new` must have shape"),
    (lambda m: m.condition(T, Y).predict([np.nan]), ValueError, "`t_new` must be finite"),
    (lambda m: m.condition(T, Y).log_density([1.0], [1.0, 2.0]), ValueError, "`y_test` must have shape"),
    (lambda m: m.condition(T, Y).sample([1.0], 0), ValueError, "`n` must be an integer of at least 1, got 0"),
    (
        lambda m: m.condition(T, Y).predict([1.0]).interval(95),
        ValueError,
        "`level` must be a number between 0 and 1, got 95",
    ),
    (lambda m: th.GP(3), TypeError, "`kernel` must be a kernel such as"),
    (lambda m: th.GP(m.kernel, 0.1), TypeError, "`likelihood` must be a likelihood such as"),
    (lambda m: th.GP(m.kernel, mean="learnt"), ValueError, "`mean` must be a number, \"learn\" or None, got 'learnt'"),
    (lambda m: th.GP(th.Stack(m.kernel, m.kernel)), ValueError, "must give 1 latent function"),
    (
        lambda m: th.Matern32(lengthscale=-1.0),
        ValueError,
        "`lengthscale` of Matern32 must be positive, got -1",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD, ids=[words for *_, words in BAD])
def test_bad_input_gets_an_error_that_names_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call(th.GP(th.Matern32()))
