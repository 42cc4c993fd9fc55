"""Expectations under a Gaussian, against moments and integrals that are known."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.quadrature import (
    GaussHermite,
    MonteCarlo,
    Unscented3,
    Unscented5,
    default_quadrature,
    expectation,
    gaussian_points,
    log_expectation,
    log_weighted_sum,
    semidefinite_cholesky,
)

RULES = {"gauss-hermite 4": (GaussHermite(4), 7), "unscented 3": (Unscented3(), 3), "unscented 5": (Unscented5(), 5)}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def standard_moment(powers):
    """E Π x_i^p_i under N(0, I)."""
    return math.prod(0.0 if p % 2 else float(np.prod(np.arange(1, p, 2))) for p in powers)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_exact_for_every_monomial_up_to_its_degree(name, dimension):
    rule, degree = RULES[name]
    points, weights = rule.nodes(dimension)
    for powers in itertools.product(range(degree + 1), repeat=dimension):
        if sum(powers) <= degree:
            np.testing.assert_allclose(weights @ np.prod(points**powers, axis=1), standard_moment(powers), atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_not_exact_beyond_its_degree(name):
    rule, degree = RULES[name]
    points, weights = rule.nodes(1)
    assert abs(weights @ points[:, 0] ** (degree + 1) - standard_moment((degree + 1,))) > 0.1


@pytest.mark.parametrize("order", [1, 20, 100, 200])
def test_gauss_hermite_of_any_order_has_positive_weights_that_sum_to_one(order):
    _, weights = GaussHermite(order).nodes(1)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-14)


def test_the_fifth_order_rule_uses_few_points_and_signed_weights_in_many_dimensions():
    points, weights = Unscented5().nodes(6)
    assert points.shape == (2 * 6**2 + 1, 6)
    assert weights.min() < 0
    assert np.all(Unscented5().nodes(3).weights > 0)


def test_one_dimension_of_the_fifth_order_rule_is_gauss_hermite_of_order_three():
    for a, b in ((Unscented5().nodes(1), GaussHermite(3).nodes(1)), (Unscented3().nodes(1), GaussHermite(2).nodes(1))):
        order_a, order_b = np.argsort(a.points[:, 0]), np.argsort(b.points[:, 0])
        np.testing.assert_allclose(a.points[order_a], b.points[order_b], atol=1e-14)
        np.testing.assert_allclose(a.weights[order_a], b.weights[order_b], atol=1e-14)


def test_monte_carlo_repeats_itself_and_is_exact_for_odd_functions():
    points, weights = MonteCarlo(1000, seed=3).nodes(2)
    again, _ = MonteCarlo(1000, seed=3).nodes(2)
    np.testing.assert_array_equal(points, again)
    np.testing.assert_allclose(weights @ points**3, 0.0, atol=1e-13)
    np.testing.assert_allclose(weights @ points**2, 1.0, atol=0.15)


def test_defaults_are_those_of_the_paper():
    assert default_quadrature(1) == GaussHermite(20)
    assert default_quadrature(2) == GaussHermite(20)
    assert default_quadrature(3) == Unscented5()


def test_expectation_of_an_exponential_is_the_log_normal_mean():
    mean, cov = jnp.array([0.3, -0.2]), jnp.array([[0.5, 0.2], [0.2, 0.4]])
    np.testing.assert_allclose(expectation(jnp.exp, mean[0], cov[0, 0]), np.exp(0.3 + 0.25), rtol=1e-13)
    a = jnp.array([0.7, -1.1])
    expected = a @ mean + 0.5 * a @ cov @ a
    np.testing.assert_allclose(expectation(lambda f: jnp.exp(a @ f), mean, cov), np.exp(expected), rtol=1e-12)
    np.testing.assert_allclose(log_expectation(lambda f: 900.0 + a @ f, mean, cov), 900.0 + expected, rtol=1e-14)


def test_expectation_keeps_the_structure_of_what_the_function_returns():
    first, second = expectation(lambda f: (f, jnp.outer(f, f)), jnp.array([1.0, 2.0]), jnp.eye(2))
    np.testing.assert_allclose(first, [1.0, 2.0], atol=1e-13)
    np.testing.assert_allclose(second, [[2.0, 2.0], [2.0, 5.0]], atol=1e-12)


def test_the_gradient_in_the_variance_is_half_the_expected_curvature():
    for var in (0.7, 1e-8, 0.0):
        slope = jax.grad(lambda v: expectation(jnp.sin, jnp.array(0.4), v))(jnp.array(var))
        np.testing.assert_allclose(slope, -0.5 * np.sin(0.4) * np.exp(-var / 2), rtol=1e-3 if var == 0 else 1e-7)


@pytest.mark.parametrize("cov", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0]), -1e-12 * np.eye(3)])
def test_a_singular_covariance_gives_finite_values_and_gradients(cov):
    def value(mean, cov):
        return log_expectation(lambda f: -jnp.sum(jnp.square(f - 1.0)), mean, cov, GaussHermite(5))

    out = [jax.jit(fn) for fn in (value, jax.grad(value, argnums=1), jax.hessian(value))]
    assert all(bool(jnp.all(jnp.isfinite(fn(jnp.zeros(3), jnp.asarray(cov))))) for fn in out)
    factor = semidefinite_cholesky(jnp.asarray(cov))
    np.testing.assert_allclose(factor @ factor.T, np.maximum(cov, 0), atol=1e-11)


def test_the_cholesky_factor_of_a_definite_matrix_is_the_usual_one():
    a = np.random.default_rng(0).standard_normal((6, 6))
    np.testing.assert_allclose(semidefinite_cholesky(jnp.asarray(a @ a.T)), np.linalg.cholesky(a @ a.T), rtol=1e-9)


def test_signed_weights_never_make_the_logarithm_undefined():
    weights = np.array([0.2, -0.3, 1.1])
    np.testing.assert_allclose(log_weighted_sum(jnp.array([0.0, 0.1, 0.2]), weights),
                               np.log(weights @ np.exp([0.0, 0.1, 0.2])), rtol=1e-13)  # fmt: skip
    for log_values in ([0.0, 50.0, 0.0], [-1e6, 1e6, -1e6], [-900.0, -800.0, -1000.0]):
        value, slope = jax.value_and_grad(log_weighted_sum)(jnp.array(log_values), weights)
        assert jnp.isfinite(value)
        assert jnp.all(jnp.isfinite(slope))
        assert slope[0] >= 0


def test_rules_are_hashable_values_that_pass_through_jit():
    assert hash(GaussHermite(5)) == hash(GaussHermite(5))
    assert GaussHermite(5) != GaussHermite(6)
    assert jax.tree.leaves(Unscented5()) == []
    value = jax.jit(lambda rule, v: expectation(jnp.square, jnp.array(0.0), v, rule))(Unscented3(), jnp.array(2.0))
    np.testing.assert_allclose(value, 2.0)


def test_single_precision_in_gives_single_precision_out():
    points, _ = gaussian_points(jnp.zeros(2, jnp.float32), jnp.eye(2, dtype=jnp.float32))
    assert points.dtype == jnp.float32


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="`order` of GaussHermite must be at least 1, got 0"):
        GaussHermite(0).nodes(1)
    with pytest.raises(ValueError, match="Unscented5"):
        GaussHermite(20).nodes(6)
    with pytest.raises(ValueError, match="`samples` of MonteCarlo must be even"):
        MonteCarlo(7).nodes(1)
    with pytest.raises(ValueError, match=r"`var` must have shape \(2, 2\)"):
        expectation(jnp.sum, jnp.zeros(2), jnp.ones(2))
