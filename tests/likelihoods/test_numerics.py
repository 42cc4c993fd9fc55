"""Extremes, single precision, transformations, and learning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.likelihoods.registry import LIKELIHOODS, jit, long, moments
from thiele import likelihoods as th
from thiele.likelihoods.special import (
    capped_exp,
    log_ndtr,
    log_one_plus,
    log_sigmoid,
    log_softplus,
    softplus,
    softplus_and_slope,
)
from thiele.parameters import constrain, fixed, parameters, unconstrain

EXTREMES = np.array([-1e3, -700.0, -100.0, -30.0, 0.0, 30.0, 100.0, 700.0, 1e3])


def finite(tree) -> bool:
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))


def with_derivatives(function):
    """x ↦ (second derivative, (value, slope)), in one program."""

    def slope(x):
        value, first = jax.value_and_grad(function)(x)
        return first, (value, first)

    return jax.jacfwd(slope, has_aux=True)


def as_latents(likelihood, values):
    """Each value in turn in every latent, and alternating with its negative."""
    if likelihood.latents == 1:
        return jnp.asarray(values)
    signs = np.resize([1.0, -1.0], likelihood.latents)
    return jnp.concatenate([values[:, None] * np.ones(likelihood.latents), values[:, None] * signs])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_density_and_two_derivatives_are_finite_at_extreme_latent_values(name):
    likelihood, ys = LIKELIHOODS[name]
    one = lambda y, f: with_derivatives(lambda f: likelihood.log_prob(y, f))(f)  # noqa: E731
    both = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    assert finite(jit(both)(jnp.asarray(ys), as_latents(likelihood, EXTREMES)))


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_what_the_rules_differentiate_is_finite_also_without_variance_and_far_away(name):
    likelihood, ys = LIKELIHOODS[name]
    size = likelihood.latents
    scale = np.ones(size) if size > 1 else np.array(1.0)
    shape = np.eye(size) if size > 1 else np.array(1.0)
    means = jnp.asarray(np.array([0.0, 0.0, -40.0, 40.0]).reshape(-1, *[1] * scale.ndim) * scale)
    variances = jnp.asarray(np.array([0.0, 100.0, 1.0, 1.0]).reshape(-1, *[1] * shape.ndim) * shape)

    def quantities(y, mean, var):
        return (
            jax.value_and_grad(likelihood.expected_log_prob, argnums=(1, 2))(y, mean, var),
            with_derivatives(lambda m: likelihood.log_expected_power(y, m, var, 0.5))(mean),
            likelihood.predict_mean_var(mean, var),
        )

    assert finite(jit(jax.vmap(quantities, (None, 0, 0)))(jnp.asarray(ys[0]), means, variances))


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_single_precision_stays_single_and_agrees(name):
    likelihood, ys = LIKELIHOODS[name]
    mean, var = moments(likelihood)

    def quantities(likelihood, y, mean, var):
        return (
            likelihood.expected_log_prob(y, mean, var),
            likelihood.log_expected_power(y, mean, var, 0.5),
            likelihood.predict_mean_var(mean, var),
        )

    double = jit(quantities)(likelihood, *map(jnp.asarray, (ys[1], mean, var)))
    narrow = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (likelihood, ys[1], mean, var))
    single = jit(quantities)(*narrow)
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {jnp.dtype(jnp.float32)}
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", long(name for name, entry in LIKELIHOODS.items() if [*parameters(entry.likelihood)]))
def test_parameters_are_learnt_through_one_vector(name):
    likelihood, ys = LIKELIHOODS[name]
    mean, var = map(jnp.asarray, moments(likelihood))
    free = unconstrain(likelihood)

    def objective(vector):
        model = constrain(likelihood, vector)
        each = jax.vmap(lambda y: model.expected_log_prob(y, mean, var) + model.log_expected_power(y, mean, var, 0.5))
        return jnp.sum(each(jnp.asarray(ys)))

    slope = jit(jax.grad(objective))(free)
    assert finite(slope)
    assert slope.shape == free.shape
    assert np.all(np.asarray(slope) != 0)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_starting_values_from_data_are_allowed_values_of_the_parameters(name):
    likelihood, ys = LIKELIHOODS[name]
    data = np.append(np.random.default_rng(0).permutation(np.tile(ys, 5)), np.nan)
    known = {p.path[-1]: p for p in parameters(likelihood)}
    for key, value in likelihood.initial_guess(data).items():
        assert known[key].constraint.allows(np.asarray(value, float)), key
        assert np.shape(value) == np.shape(known[key].value)


def test_a_parameter_that_is_held_is_not_learnt():
    assert unconstrain(th.StudentT(df=fixed(4.0))).shape == (1,)


def test_special_functions_are_accurate_in_the_tails():
    x = np.concatenate([np.linspace(-60.0, 10.0, 2001), [-1e3, 1e3]])
    slope = jax.grad(log_ndtr)
    values, slopes, curvatures = jit(jax.vmap(lambda x: (log_ndtr(x), slope(x), jax.grad(slope)(x))))(jnp.asarray(x))
    np.testing.assert_allclose(values, special.log_ndtr(x), rtol=1e-12)
    hazard = np.exp(-0.5 * x**2 - 0.5 * np.log(2 * np.pi) - special.log_ndtr(x))
    np.testing.assert_allclose(slopes[:-2], hazard[:-2], rtol=1e-10)
    np.testing.assert_allclose(slopes[-2:], [1000.000999998, 0.0], rtol=1e-12)
    np.testing.assert_allclose(curvatures[-2:], [-(1 - 1e-6), 0.0], rtol=1e-9)
    near = x[(x > -30.0) & (x < 100.0)]
    np.testing.assert_allclose(log_softplus(jnp.asarray(near)), np.log(np.logaddexp(0, near)), rtol=1e-12)
    assert log_softplus(jnp.array(-1e3)) == -1e3
    assert jax.grad(capped_exp)(500.0) > 0
    np.testing.assert_allclose(capped_exp(jnp.array(300.0)), np.exp(300.0))


def test_softplus_and_its_derivatives_are_accurate_everywhere():
    x = np.concatenate([np.linspace(-60.0, 60.0, 2401), [-1e3, -745.0, 1e3]])
    slope = jax.grad(softplus)
    values, slopes, curvatures = jit(jax.vmap(lambda x: (softplus(x), slope(x), jax.grad(slope)(x))))(jnp.asarray(x))
    np.testing.assert_allclose(values, np.logaddexp(0.0, x), rtol=1e-14, atol=1e-320)
    np.testing.assert_allclose(slopes, special.expit(x), rtol=1e-14)
    np.testing.assert_allclose(curvatures, special.expit(x) * special.expit(-x), rtol=1e-13, atol=1e-320)
    below = jnp.asarray(x[:-1])
    np.testing.assert_allclose(log_sigmoid(below), -np.logaddexp(0.0, -x[:-1]), rtol=1e-14, atol=1e-320)
    assert np.isinf(softplus(jnp.array(jnp.inf)))
    assert softplus(jnp.array(-jnp.inf)) == 0.0


def test_softplus_comes_with_its_slope():
    x = jnp.asarray([-800.0, -3.0, 0.0, 1e-9, 2.0, 800.0])
    value, slope = softplus_and_slope(x)
    np.testing.assert_array_equal(value, softplus(x))
    np.testing.assert_allclose(slope, special.expit(x), rtol=1e-15)


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-15), (np.float32, 3e-7)])
def test_log_one_plus_is_right_to_rounding(dtype, rounding):
    t = np.concatenate([np.logspace(-300.0 if dtype == np.float64 else -37.0, 0.0, 4001), [0.0]]).astype(dtype)
    found, slopes = jit(jax.vmap(jax.value_and_grad(log_one_plus)))(jnp.asarray(t))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.log1p(t.astype(float)), rtol=rounding)
    np.testing.assert_allclose(slopes, 1.0 / (1.0 + t.astype(float)), rtol=rounding)


def test_the_normal_tail_has_no_gap_in_single_precision():
    x = np.linspace(-30.0, 5.0, 2001, dtype=np.float32)
    np.testing.assert_allclose(jit(log_ndtr)(jnp.asarray(x)), special.log_ndtr(x.astype(float)), rtol=3e-6)


def test_categories_far_from_the_latent_value_keep_their_slope():
    for link, slope in (("logit", -1.0), ("probit", -999.0)):
        middle = jax.grad(lambda f, link=link: th.Ordinal([-1.0, 1.0], link).log_prob(1.0, f))
        np.testing.assert_allclose(middle(1e3), slope, rtol=1e-5)
        np.testing.assert_allclose(middle(-1e3), -slope, rtol=1e-5)
