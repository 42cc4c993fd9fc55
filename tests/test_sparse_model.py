"""`GP(inducing=...)`: what a user sees of inducing states."""

import datetime

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thiele as th
from tests.likelihoods.registry import jit
from thiele import dense_sparse as dense
from thiele.energies import observed
from thiele.likelihoods import Shifted

RNG = np.random.default_rng(11)
T = RNG.permutation(np.sort(RNG.uniform(0.0, 8.0, 24)))
EXPOSURE = RNG.uniform(0.5, 2.0, T.size)
Y = RNG.poisson(EXPOSURE * np.exp(0.4 + np.sin(T))).astype(float)
Y[3] = np.nan
Z = np.array([0.5, 2.0, 3.7, 5.2, 7.4])
KERNEL = th.Matern32(1.2, 2.0)
# Before, between, on and after the inducing times; in no order.
NEW = np.array([6.1, -1.0, 0.5, 3.0, 9.5, 3.1, 0.7])


def model(inducing=Z, kernel=KERNEL, **options):
    return th.GP(kernel, th.Poisson(), inducing=inducing, mean=0.4, **options)


@pytest.fixture(scope="module")
def fit():
    return model().condition(T, Y, exposure=EXPOSURE)


@pytest.fixture(scope="module")
def truth():
    """Mean and joint covariance of f at NEW, and the ELBO, by dense algebra from sites that say nothing."""
    order = np.argsort(T)
    with jax.enable_x64(True):
        data = observed(Y[order], exposure=EXPOSURE[order])
        likelihood = Shifted(th.Poisson(), jnp.asarray(0.4))

        @jit
        def found(z, times, new):
            at = dense.features(KERNEL, z, times, data)
            sites = dense.infer(th.CVI(), likelihood, at, at.empty(), sweeps=300, step=0.5)
            mean, cov = dense.predict(KERNEL.sde(), z, new, *dense.posterior(at, sites))
            return 0.4 + mean[:, 0], cov[:, 0, :, 0], dense.energy(th.CVI(), likelihood, at, sites)

        return [np.asarray(x) for x in found(Z, T[order], NEW)]


def test_predictions_are_those_of_dense_algebra(fit, truth):
    mean, cov, elbo = truth
    p = fit.predict(NEW)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(p.var, np.diag(cov), rtol=1e-5)
    np.testing.assert_allclose(fit.objective, elbo, rtol=1e-9)
    assert fit.converged
    np.testing.assert_array_equal(fit.inducing, Z)
    assert "24 points (23 observed), 5 inducing times" in repr(fit)


def test_joint_draws_have_the_moments_of_the_posterior(fit, truth):
    mean, cov, _ = truth
    n = 20_000
    draws = fit.sample(NEW, n, key=1)
    assert draws.shape == (n, NEW.size)
    sd = np.sqrt(np.diag(cov))
    assert np.max(np.abs(draws.mean(axis=0) - mean) / sd) < 5.0 / np.sqrt(n)
    assert np.max(np.abs(np.cov(draws.T) - cov) / np.outer(sd, sd)) < 5.0 * np.sqrt(2.0 / n)


def test_the_density_of_new_data_is_an_integral_over_the_posterior(fit, truth):
    mean, cov, _ = truth
    y, exposure = np.array([2.0, 0.0, 1.0, np.nan, 4.0, 1.0, 0.0]), np.linspace(0.5, 2.0, NEW.size)
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    f = mean[:, None] + np.sqrt(np.diag(cov))[:, None] * node
    expected = np.log(stats.poisson.pmf(y[:, None], exposure[:, None] * np.exp(f)) @ weight / np.sqrt(2.0 * np.pi))
    found = fit.log_density(NEW, y, exposure=exposure)
    assert np.isnan(found[3])
    np.testing.assert_allclose(np.delete(found, 3), np.delete(expected, 3), rtol=1e-4)


def test_the_log_likelihood_is_that_of_the_fit_and_has_the_gradient_of_finite_differences(fit):
    @jax.jit
    @jax.value_and_grad
    def value_and_gradient(logs):
        return model(kernel=th.Matern32(*jnp.exp(logs))).log_likelihood(T, Y, exposure=EXPOSURE)

    with jax.enable_x64(True):
        at, step = jnp.log(jnp.array([1.2, 2.0])), 1e-4
        value, gradient = value_and_gradient(at)
        around = [[value_and_gradient(at + sign * e)[0] for sign in (1, -1)] for e in step * np.eye(2)]
    np.testing.assert_allclose(value, fit.objective, rtol=1e-8)
    np.testing.assert_allclose(gradient, np.diff(around)[:, 0] / (-2.0 * step), rtol=1e-6, atol=1e-7)


def test_dates_are_inducing_times_too(fit):
    # Numbers of days; the first of them is day zero.
    origin, micro = np.datetime64("2020-03-01T00:00", "us"), np.timedelta64(1, "us")
    dates = lambda t: origin + np.round((t - T.min()) * 86_400e6).astype(int) * micro  # noqa: E731
    for inducing in (dates(Z), [x.astype(datetime.datetime) for x in dates(Z)]):
        dated = model(inducing).condition(dates(T), Y, exposure=EXPOSURE)
        np.testing.assert_allclose(dated.objective, fit.objective, rtol=1e-7)
        np.testing.assert_allclose(dated.predict(dates(NEW)).mean, fit.predict(NEW).mean, rtol=1e-6)


@pytest.mark.parametrize("inducing", [[5.2, 0.5, 2.0, 7.4, 3.7], [*Z, *Z], th.Inducing(times=tuple(Z))], ids=str)
def test_inducing_times_come_in_any_order_and_as_often_as_one_likes(fit, inducing):
    again = model(inducing).condition(T, Y, exposure=EXPOSURE)
    np.testing.assert_array_equal(again.inducing, Z)
    np.testing.assert_allclose(again.objective, fit.objective, rtol=1e-12)


def test_a_number_of_inducing_times_spans_the_observed_data():
    seen = T[~np.isnan(Y)]
    even = model(5).condition(T, Y, exposure=EXPOSURE)
    np.testing.assert_allclose(even.inducing, np.linspace(seen.min(), seen.max(), 5))
    quantiles = model(th.Inducing(5, at="quantiles")).condition(T, Y, exposure=EXPOSURE)
    np.testing.assert_allclose(quantiles.inducing, np.quantile(seen, np.linspace(0.0, 1.0, 5)))


def test_learnt_inducing_times_raise_the_objective():
    # All else is held. The function moves only late: that is where evenly spaced times are too few.
    t = np.linspace(0.0, 10.0, 40)
    y = np.where(t > 6.0, np.sin(3.0 * t), 0.0)
    kernel = th.Matern12(th.fixed(1.0), th.fixed(1.0))
    noise = th.Gaussian(th.fixed(0.01))
    even = th.GP(kernel, noise, inducing=6, mean=th.fixed(0.0)).condition(t, y)
    learnt = th.GP(kernel, noise, inducing=th.Inducing(6, learn=True), mean=th.fixed(0.0)).fit(t, y, max_steps=15)
    assert learnt.objective > even.objective + 1.0
    assert np.all(np.diff(learnt.inducing) > 0.0)
    assert np.max(np.abs(learnt.inducing - even.inducing)) > 0.1


@pytest.mark.slow
def test_hyperparameters_are_learnt_as_by_the_full_model():
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(0.0, 20.0, 150))
    y = rng.poisson(np.exp(0.5 + np.sin(t))).astype(float)
    full = th.GP(th.Matern52(), th.Poisson()).fit(t, y)
    sparse = th.GP(th.Matern52(), th.Poisson(), inducing=30).fit(t, y)
    assert sparse.converged
    assert sparse.objective < full.objective + 1e-6
    np.testing.assert_allclose(sparse.objective, full.objective, atol=0.1)
    np.testing.assert_allclose(sparse.kernel.lengthscale, full.kernel.lengthscale, rtol=0.05)
    np.testing.assert_allclose(sparse.kernel.variance, full.kernel.variance, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [th.EKS(), th.PL(), th.PowerEP(0.5), th.Laplace()], ids=lambda r: type(r).__name__)
def test_every_rule_conditions_predicts_and_draws(rule):
    cvi = model().condition(T, Y, exposure=EXPOSURE).predict(NEW)
    fit = model(rule=rule).condition(T, Y, exposure=EXPOSURE)
    assert fit.converged
    np.testing.assert_allclose(fit.predict(NEW).mean, cvi.mean, atol=0.2)
    assert np.all(np.isfinite(fit.sample(NEW, 3)))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (0, ValueError, r"`count` of Inducing must be at least 1, got 0"),
        (-1, ValueError, r"`count` of Inducing must be at least 1, got -1"),
        (2.5, TypeError, r"`inducing` must be .*, got 2.5"),
        ("foo", TypeError, r"`inducing` must be .*, got 'foo'"),
        (True, TypeError, r"`inducing` must be .*, got True"),
        ([], ValueError, r"`inducing` must have shape \(M,\), M at least 1, got \(0,\)"),
        ([[1.0, 2.0]], ValueError, r"`inducing` must have shape \(M,\), M at least 1, got \(1, 2\)"),
        ([1.0, np.nan], ValueError, r"`inducing` must be finite, got nan at row 1"),
        ([1.0, np.inf], ValueError, r"`inducing` must be finite, got inf at row 1"),
        (["a", "b"], TypeError, r"`inducing` must be numbers, got .*'a'.* at row 0"),
        (np.array(["2020-01-01"], "datetime64[D]"), TypeError, r"`inducing` must be numbers, .* got dates"),
    ],
    ids=str,
)
def test_bad_inducing_times_are_refused_by_name(given, error, words):
    with pytest.raises(error, match=words):
        model(given).condition(T, Y, exposure=EXPOSURE)


def test_numbers_are_no_inducing_times_for_dated_data():
    days = np.datetime64("2020-01-01", "D") + np.arange(T.size)
    with pytest.raises(TypeError, match=r"`inducing` must be dates, .* got float64"):
        model([1.0, 2.0]).condition(days, Y)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ValueError, "takes either `count` or `times`, got None and None"),
        ({"count": 3, "times": (1.0, 2.0)}, ValueError, "takes either `count` or `times`, got 3"),
        ({"count": 3, "at": "random"}, ValueError, "`at` of Inducing must be .*, got 'random'"),
        ({"count": 2.0}, TypeError, "`count` of Inducing must be an integer.*, got 2.0"),
        ({"count": True}, TypeError, "`count` of Inducing must be an integer.*, got True"),
    ],
    ids=str,
)
def test_bad_settings_of_inducing_are_refused_by_name(options, error, words):
    with pytest.raises(error, match=words):
        th.Inducing(**options)


def test_traced_data_are_refused_where_there_are_inducing_times():
    with pytest.raises(TypeError, match="must be concrete with inducing times"):
        jax.grad(lambda t: model().log_likelihood(t, Y))(jnp.asarray(T))


def test_with_gaussian_noise_both_linearisations_are_the_datum_itself():
    values = np.sin(T) + 0.3 * RNG.normal(size=T.size)
    made = [th.GP(KERNEL, th.Gaussian(0.1), rule=rule(), inducing=Z).condition(T, values) for rule in (th.EKS, th.PL)]
    (extended, objective), (linearised, same) = ((fit.predict(NEW), fit.objective) for fit in made)
    np.testing.assert_allclose(objective, same, rtol=1e-12)
    np.testing.assert_allclose(extended.mean, linearised.mean, rtol=1e-12)
    np.testing.assert_allclose(extended.var, linearised.var, rtol=1e-12)
