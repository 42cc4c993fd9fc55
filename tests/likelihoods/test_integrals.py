"""Under f ~ N(mean, var): expectations, tilted normalisers and predictions, against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.likelihoods.registry import LIKELIHOODS, ORDERED, is_integer, jit, long, moments, outcomes
from thiele import likelihoods as th
from thiele.likelihoods.base import mixture_moments
from thiele.quadrature import GaussHermite, Unscented5, expectation, log_expectation

FINE = GaussHermite(100)
POWERS = np.array([0.01, 0.5, 1.0])


def tensor_rule(likelihood):
    """A plain rule over all latents, fine enough to serve as the truth."""
    return {1: GaussHermite(150), 2: GaussHermite(60), 3: GaussHermite(24), 4: GaussHermite(18)}[likelihood.latents]


def own_rule(likelihood):
    """What a user would ask for who wants accuracy: the rule that the likelihood's own methods are given."""
    return {1: FINE, 2: GaussHermite(80), 3: GaussHermite(24), 4: GaussHermite(30)}[likelihood.latents]


def dense_grid(mean, var):
    """Points and weights of a trapezoidal rule for N(mean, var), which a kink does not defeat."""
    x = np.linspace(-12.0, 12.0, 40_001)
    weights = np.exp(-0.5 * x**2)
    return mean + np.sqrt(var) * x, weights / weights.sum()


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_expectations_agree_with_plain_quadrature_over_all_latents(name):
    likelihood, ys = LIKELIHOODS[name]
    mean, var = map(jnp.asarray, moments(likelihood))
    truth, own = tensor_rule(likelihood), own_rule(likelihood)

    @jit
    @jax.vmap
    def both(y):
        def plain(power):
            return log_expectation(lambda f: power * likelihood.log_prob(y, f), mean, var, truth)

        return (
            (expectation(lambda f: likelihood.log_prob(y, f), mean, var, truth), *[plain(p) for p in POWERS]),
            (
                likelihood.expected_log_prob(y, mean, var, own),
                *[likelihood.log_expected_power(y, mean, var, float(p), own) for p in POWERS],
            ),
            likelihood.log_expected_power(y, mean, var, 1e-6, own) / 1e-6,
        )

    expected, stated, slope = both(jnp.asarray(ys))
    # A normaliser of vanishing power has the slope of the expectation: power EP tends to variational inference.
    np.testing.assert_allclose(slope, stated[0], rtol=1e-3, atol=1e-3)
    if name == "laplace":
        f, w = dense_grid(*moments(likelihood))
        log_p = np.asarray(likelihood.log_prob(jnp.asarray(ys)[:, None], jnp.asarray(f)))
        expected = (log_p @ w, *[np.log(np.exp(p * log_p) @ w) for p in POWERS])
    # Rough in f at this variance: the plain rule, not the closed form, sets the tolerance.
    rough = {"student-t": 1e-5, "heteroscedastic": 2e-4, "product": 2e-4, "laplace": 1e-7}
    tolerance = (rough | {"zero-inflated poisson": 1e-7, "weibull": 1e-7}).get(name, 1e-10)
    np.testing.assert_allclose(stated, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictive_mean_and_variance_are_those_of_the_predictive_density_and_of_the_mixture(name):
    likelihood, _ = LIKELIHOODS[name]
    mean, var = map(jnp.asarray, moments(likelihood))
    ys, weights = outcomes(likelihood)
    rule = GaussHermite(60 if likelihood.latents < 3 else 12)
    density = jit(jax.vmap(lambda y: likelihood.log_predictive(y, mean, var, rule)))
    mass = np.exp(np.asarray(density(jnp.asarray(ys)))) * weights
    statistic = np.asarray(jax.vmap(likelihood.statistic)(jnp.asarray(ys))).reshape(len(ys), -1)
    (stated_mean, stated_variance), mixture = jit(
        lambda: (likelihood.predict_mean_var(mean, var, rule), mixture_moments(likelihood, mean, var, rule))
    )()
    if likelihood.latents == 1:
        np.testing.assert_allclose((stated_mean, stated_variance), mixture, rtol=1e-9)
    expected = mass @ statistic
    variance = np.einsum("y,yi,yj->ij", mass, statistic, statistic) - np.outer(expected, expected)
    # Heavy tails, a kink, and mass within rounding of one: limits of the sum over y, not of the likelihood.
    tolerance = 1e-5 if name in ("student-t", "laplace", "beta") else 1e-7
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=tolerance)
    np.testing.assert_allclose(stated_mean, expected.reshape(np.shape(stated_mean)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(stated_variance, variance.reshape(np.shape(stated_variance)), rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("name", long(ORDERED))
def test_quantiles_invert_the_predictive_distribution_function(name):
    likelihood, _ = ORDERED[name]
    mean, var = map(jnp.asarray, moments(likelihood))
    levels = jnp.array([1e-4, 0.025, 0.5, 0.9, 0.999])

    @jit
    @jax.vmap
    def search(p):
        q = likelihood.predictive_quantile(p, mean, var)
        return q, likelihood.predictive_cdf(q, mean, var), likelihood.predictive_cdf(q - 1.0, mean, var)

    quantiles, reached, before = map(np.asarray, search(levels))
    assert np.all(np.diff(quantiles) >= 0)
    if is_integer(likelihood):
        assert np.all(reached >= levels)
        assert np.all(before < levels)
    else:
        np.testing.assert_allclose(reached, levels, rtol=1e-9)


def test_count_quantiles_are_right_from_zero_to_a_million():
    scales, levels = np.array([1e-300, 1e-3, 1.0, 1e3, 1e6])[:, None], np.array([0.01, 0.5, 0.975])
    quantile = jit(jnp.vectorize(lambda p, mean: th.Poisson().predictive_quantile(p, mean, jnp.array(0.0))))
    np.testing.assert_array_equal(quantile(levels, np.log(scales)), stats.poisson(scales).ppf(levels))


def test_quantiles_of_a_student_t_without_a_variance_exist():
    quantile = jit(lambda p: th.StudentT(df=1.0, scale=2.0).predictive_quantile(p, jnp.array(3.0), jnp.array(0.0)))
    np.testing.assert_allclose(quantile(0.999), 3.0 + 2.0 * np.tan(np.pi * (0.999 - 0.5)), rtol=1e-9)


def test_quantiles_have_the_implicit_derivative():
    likelihood, p, var = th.Gamma(2.5), jnp.array(0.8), jnp.array(0.2)
    value, slope = jit(jax.value_and_grad(lambda m: likelihood.predictive_quantile(p, m, var)))(0.3)
    # y is exp(f) times a variable that does not depend on f, so a shift of the mean scales the quantile.
    np.testing.assert_allclose(slope, value, rtol=1e-6)


def test_conditioning_on_the_nonlinear_latents_beats_the_plain_rule_of_the_same_order():
    likelihood = th.HeteroscedasticGaussian()
    mean, var, y = jnp.array([0.5, -1.0]), jnp.array([[2.0, 0.3], [0.3, 1.0]]), jnp.array(3.0)

    @jit
    def errors():
        truth = likelihood.log_predictive(y, mean, var, GaussHermite(120))
        plain = log_expectation(lambda f: likelihood.log_prob(y, f), mean, var, GaussHermite(20))
        return likelihood.log_predictive(y, mean, var) - truth, plain - truth

    conditioned, plain = map(abs, errors())
    assert conditioned < 1e-6
    assert plain > 100 * conditioned


def test_the_audio_likelihood_takes_any_rule_over_its_amplitudes():
    likelihood = th.SubbandProduct(subbands=3, variance=0.3)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 6))
    mean, var, y = jnp.asarray(rng.standard_normal(6)), jnp.asarray(0.02 * a @ a.T), jnp.array(0.7)
    rules = (None, Unscented5(), GaussHermite(6), GaussHermite(12))
    default, unscented, coarse, fine = jit(lambda: [likelihood.log_predictive(y, mean, var, r) for r in rules])()
    assert default == unscented
    np.testing.assert_allclose(default, fine, atol=5e-3)
    np.testing.assert_allclose(coarse, fine, atol=1e-4)
