"""Normalisers of tilted densities and their derivatives, against fine sums."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from tests.likelihoods.registry import LIKELIHOODS, long, moments
from thiele import likelihoods as th
from thiele.quadrature import GaussHermite
from thiele.tilted import Tilted, at_fixed_nodes, log_tilted


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


# A likelihood, and rows (y, mean, var) where it is far narrower than the Gaussian, far from it, or has two hills.
TILTED = {
    "poisson": (
        th.Poisson(),
        [(1000, 6, 4), (1000, 0, 0.01), (1000, -10, 4), (0, 6, 4), (3, 1, 0.3), (1e5, 11, 100), (1e6, 0, 0.01)],
    ),
    "student-t": (th.StudentT(4.0, 0.1), [(3, 0, 1), (10, 0, 1), (0.1, 0, 1), (5, 0, 0.01), (3, 0, 100), (4.5, 0, 1)]),
    "bernoulli": (th.Bernoulli(), [(1, 0, 1e4), (1, 0, 100), (1, -30, 100), (0, 5, 0.1), (1, -10, 1)]),
    "binomial": (th.Binomial(500), [(0, 0, 4), (500, 0, 4), (12, 0, 4)]),
}


def tilted_on_a_grid(likelihood, y, mean, var, power):
    """log E p^power and its first two derivatives in the mean, from the moments of a fine sum."""
    reach = 14.0 * np.sqrt(var)
    f = np.linspace(mean - reach, max(mean + reach, np.log(max(y, 1.0)) + 2.0 if y > 500 else -np.inf), 1_000_001)
    log_w = np.asarray(power * likelihood.log_prob(y, jnp.asarray(f))) - 0.5 * (f - mean) ** 2 / var
    total = logsumexp(log_w)
    w = np.exp(log_w - total)
    first = w @ f
    spread = w @ (f - first) ** 2
    value = total + np.log((f[1] - f[0]) / np.sqrt(2 * np.pi * var))
    return value, (first - mean) / var, (spread / var - 1.0) / var


@pytest.mark.parametrize("power", [1.0, pytest.param(0.5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TILTED)
def test_a_tilted_normaliser_and_two_derivatives_are_right_where_the_likelihood_is_sharp(name, power):
    likelihood, rows = TILTED[name]
    y, mean, var = jnp.asarray(np.array(rows, float).T)
    found = jax.jit(jax.vmap(partial(likelihood.tilted_moments, power=power)))(y, mean, var)
    truth = np.array([tilted_on_a_grid(likelihood, *row, power) for row in rows]).T
    for some, expected in zip(found, truth, strict=True):
        np.testing.assert_allclose(some, expected, rtol=1e-8, atol=1e-9)


def test_a_named_rule_is_used_as_it_is():
    # Twenty nodes spread over a Gaussian of standard deviation two see nothing of a likelihood sixty times narrower.
    likelihood, (y, mean, var) = th.Poisson(), jnp.array([1000.0, 6.0, 4.0])
    plain = likelihood.log_expected_power(y, mean, var, 1.0, GaussHermite(20))
    placed = likelihood.log_expected_power(y, mean, var, 1.0)
    np.testing.assert_allclose(placed, -8.622834, atol=1e-5)
    assert abs(plain - placed) > 0.1


def test_a_tilted_normaliser_without_variance_is_the_likelihood_with_its_derivatives():
    likelihood, y = th.Poisson(), jnp.array(3.0)
    value = lambda m: likelihood.log_expected_power(y, m, jnp.array(0.0), 1.0)  # noqa: E731
    found = jax.jit(lambda m: (value(m), jax.grad(value)(m), jax.grad(jax.grad(value))(m)))(jnp.array(0.7))
    rate = np.exp(0.7)
    np.testing.assert_allclose(found, (3 * 0.7 - rate - np.log(6.0), 3.0 - rate, -rate), rtol=1e-10)


def test_the_parameters_of_a_likelihood_have_exact_derivatives_through_the_placed_nodes():
    def value(scale):
        return th.StudentT(4.0, scale).log_predictive(jnp.array(3.0), jnp.array(0.0), jnp.array(1.0))

    slope, step = jax.jit(jax.grad(value))(0.1), 1e-5
    np.testing.assert_allclose(slope, (value(0.1 + step) - value(0.1 - step)) / (2 * step), rtol=1e-6)


def random_moments(count):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=count)), jnp.asarray(rng.uniform(0.05, 1.0, size=count))


def test_sums_agree_with_derivatives_of_a_plain_sum():
    mean, var = random_moments(40)
    y = jnp.asarray(np.random.default_rng(1).poisson(2.0, 40), float)
    likelihood = lambda scale: th.Shifted(th.Poisson(), scale, None)  # noqa: E731

    def by_sums(mean, var, y, offset):
        return log_tilted(lambda f: likelihood(offset).log_prob(y, f), mean, var, one_hill=True)

    def plainly(mean, var, y, offset):
        of = Tilted(lambda f, y, offset: likelihood(offset).log_prob(y, f), True)
        return at_fixed_nodes(of, mean, var, [y, offset])

    def all_of(value):
        first = jax.value_and_grad(value, argnums=(0, 1, 3))
        second = jax.hessian(value, argnums=(0, 1, 3))
        third = jax.grad(lambda *x: second(*x)[0][0])
        return jax.jit(jax.vmap(lambda *x: (first(*x), second(*x), third(*x)), in_axes=(0, 0, 0, None)))

    found, expected = (all_of(value)(mean, var, y, 0.3) for value in (by_sums, plainly))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_moments_are_the_normaliser_and_its_derivatives(name):
    likelihood, ys = LIKELIHOODS[name]
    y, (mean, var) = jnp.asarray(ys[0]), map(jnp.asarray, moments(likelihood))
    value = lambda m: likelihood.log_expected_power(y, m, var, 0.5)  # noqa: E731
    expected = jax.jit(lambda m: (value(m), jax.grad(value)(m), jax.hessian(value)(m)))(mean)
    found = jax.jit(lambda m: likelihood.tilted_moments(y, m, var, 0.5))(mean)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_neighbours_that_need_more_nodes_change_nothing_that_matters():
    likelihood, (mean, var) = th.Bernoulli(), random_moments(30)
    each = jax.jit(jax.vmap(lambda m, v: likelihood.tilted_moments(1.0, m, v, 1.0)))
    alone = each(mean, var)
    beside = each(jnp.append(mean, 0.0), jnp.append(var, 1e4))
    for a, b in zip(alone, beside, strict=True):
        np.testing.assert_allclose(a, b[:-1], rtol=1e-8)


def test_one_likelihood_may_be_seen_by_many_moments_and_many_by_one():
    likelihood, (mean, var) = th.Poisson(), random_moments(5)
    moments_of = lambda y, m, v: likelihood.tilted_moments(y, m, v, 1.0)  # noqa: E731
    ys = jnp.arange(5.0)
    for axes, args in (((None, 0, None), (ys[3], mean, var[0])), ((0, None, None), (ys, mean[0], var[0]))):
        each = [
            moments_of(*(x if axis is None else x[k] for x, axis in zip(args, axes, strict=True))) for k in range(5)
        ]
        found = jax.jit(jax.vmap(moments_of, axes))(*args)
        np.testing.assert_allclose(np.array(found).T, np.array(each), rtol=1e-10)
    both = jax.vmap(jax.vmap(moments_of, (0, None, None)), (None, 0, 0))(ys, mean, var)
    np.testing.assert_allclose(both[1][2, 3], moments_of(ys[3], mean[2], var[2])[1], rtol=1e-10)


def test_what_no_value_is_likely_under_is_no_number_of_another():
    # log p is −∞ everywhere: the normaliser says so, and no derivative is made up.
    value, slope = jax.value_and_grad(
        lambda m: log_tilted(lambda f: jnp.where(f < jnp.inf, -jnp.inf, f), m, jnp.array(1.0))
    )(0.0)
    assert not np.isfinite(value)
    assert not np.isfinite(slope)
