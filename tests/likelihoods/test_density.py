"""Given f: the density, its moments, its distribution function and its samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS, ORDERED, REFERENCE, is_integer, jit, latent_points, long, outcomes
from thiele import likelihoods as th


def over(method, ys, fs):
    """`method` at every pair: (ys, fs)."""
    pairs = jit(jax.vmap(jax.vmap(method, (None, 0)), (0, None)))
    return pairs(jnp.asarray(ys), jnp.asarray(fs))


@pytest.mark.parametrize("name", REFERENCE)
def test_density_and_distribution_function_agree_with_scipy(name):
    likelihood, ys = LIKELIHOODS[name]
    fs = latent_points(likelihood)
    reference = REFERENCE[name](fs)
    log_density = reference.logpmf if is_integer(likelihood) else reference.logpdf
    np.testing.assert_allclose(over(likelihood.log_prob, ys, fs), log_density(ys[:, None]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(over(likelihood.cdf, ys, fs), reference.cdf(ys[:, None]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_conjugate_density_is_a_parabola_in_f_and_others_are_not(name):
    likelihood, ys = LIKELIHOODS[name]
    fs = jnp.linspace(-1.5, 2.0, 8) if likelihood.latents == 1 else jnp.asarray(latent_points(likelihood))
    slope = over(jax.grad(likelihood.log_prob, argnums=1), ys, fs).reshape(len(ys), len(fs), -1)
    bends = jnp.diff(slope, n=2, axis=1)
    straight = float(jnp.max(jnp.abs(bends))) < 1e-12 * float(jnp.max(jnp.abs(slope)))
    # What a user writes down is not looked into.
    assert straight == (likelihood.conjugate or name == "custom")


@pytest.mark.parametrize("name", [name for name, entry in LIKELIHOODS.items() if entry.likelihood.log_concave])
def test_a_density_that_is_said_to_be_log_concave_bends_downwards_everywhere(name):
    likelihood, ys = LIKELIHOODS[name]
    fs = jnp.linspace(-40.0, 40.0, 161)
    slope = jax.grad(likelihood.log_prob, argnums=1)
    second = over(jax.grad(slope, argnums=1), ys, fs)
    assert jnp.all(jnp.isfinite(second))
    assert float(jnp.max(second)) <= 1e-12 * float(jnp.max(jnp.abs(over(slope, ys, fs))))


def test_the_likelihoods_of_wiggly_densities_are_not_said_to_be_log_concave():
    claimed = {name for name, entry in LIKELIHOODS.items() if entry.likelihood.log_concave}
    assert claimed >= {"gaussian", "log-normal", "bernoulli logit", "binomial probit", "poisson exp"}
    assert not claimed & {"student-t", "zero-inflated poisson", "custom", "categorical", "heteroscedastic", "product"}
    shifted, both = th.Shifted(th.Poisson(), 0.3), th.EachOutput(th.Poisson(), th.StudentT())
    assert shifted.log_concave
    assert not both.log_concave


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_density_sums_to_one_and_has_the_stated_mean_and_variance(name):
    likelihood, _ = LIKELIHOODS[name]
    ys, weights = outcomes(likelihood)
    fs = latent_points(likelihood)
    mass = np.asarray(jnp.exp(over(likelihood.log_prob, ys, fs))) * weights[:, None]
    # The kink of the Laplace density limits the trapezoidal rule.
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if name == "laplace" else {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(mass.sum(0), 1.0, **tolerance)
    statistic = np.asarray(jax.vmap(likelihood.statistic)(jnp.asarray(ys))).reshape(len(ys), -1)
    mean = mass.T @ statistic
    second = np.einsum("yn,yi,yj->nij", mass, statistic, statistic)
    given = jit(jax.vmap(lambda f: (likelihood.conditional_mean(f), likelihood.conditional_variance(f))))
    stated_mean, stated_variance = given(jnp.asarray(fs))
    shape = stated_mean.shape[1:]
    np.testing.assert_allclose(stated_mean, mean.reshape(-1, *shape), **tolerance)
    variance = (second - np.einsum("ni,nj->nij", mean, mean)).reshape(-1, *shape, *shape)
    # A t with 4.5 degrees of freedom has a second moment that a truncated integral reaches slowly.
    loose = {"rtol": 1e-5, "atol": 1e-5} if name == "student-t" else tolerance
    np.testing.assert_allclose(stated_variance, variance, **loose)


@pytest.mark.parametrize("name", ORDERED)
def test_distribution_function_is_the_sum_of_the_density(name):
    likelihood, examples = ORDERED[name]
    ys, weights = outcomes(likelihood)
    fs = latent_points(likelihood)
    mass = np.asarray(jnp.exp(over(likelihood.log_prob, ys, fs))) * weights[:, None]
    if is_integer(likelihood):
        some = ys[:30]
        below, at, past = np.split(
            over(likelihood.cdf, np.concatenate([[-0.5], some, some + 0.5]), fs), [1, 1 + len(some)]
        )
        np.testing.assert_allclose(at, np.cumsum(mass, 0)[: len(some)], rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(past, at)
        assert np.all(below == 0)
    else:
        slope = over(jax.grad(likelihood.cdf), examples, fs)
        np.testing.assert_allclose(slope, jnp.exp(over(likelihood.log_prob, examples, fs)), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_samples_have_the_stated_mean_and_variance(name):
    likelihood, _ = LIKELIHOODS[name]
    f = jnp.asarray(latent_points(likelihood)[2])
    keys = jax.random.split(jax.random.key(5), 20_000)
    draws = jit(jax.vmap(lambda key: likelihood.sample(key, f)))(keys)
    likelihood.check(np.asarray(draws))
    statistic = np.asarray(jax.vmap(likelihood.statistic)(draws))
    variance = np.asarray(likelihood.conditional_variance(f))
    spread = np.sqrt(np.diagonal(np.atleast_2d(variance)).reshape(np.shape(statistic)[1:]) / len(keys))
    assert np.all(np.abs(statistic.mean(0) - likelihood.conditional_mean(f)) < 4.5 * spread)
    np.testing.assert_allclose(np.cov(statistic.T), variance, atol=0.12 * np.max(variance))


def test_negative_binomial_tends_to_poisson_as_its_dispersion_vanishes():
    ys, f = jnp.array([0.0, 3.0, 50.0]), jnp.array(1.2)
    for dispersion in (1e-6, 1e-9, 1e-12):
        difference = th.NegativeBinomial(dispersion).log_prob(ys, f) - th.Poisson().log_prob(ys, f)
        np.testing.assert_allclose(difference, 0.0, atol=2e3 * dispersion + 1e-12)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_one_trial_and_two_ordered_categories_are_bernoulli(link):
    ys, fs = np.array([0.0, 1.0]), np.linspace(-3, 3, 7)
    expected = over(th.Bernoulli(link).log_prob, ys, fs)
    np.testing.assert_allclose(over(th.Binomial(1, link).log_prob, ys, fs), expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(over(th.Ordinal([0.0], link).log_prob, ys, fs), expected, rtol=1e-13, atol=1e-15)
