"""Exact inference with Gaussian noise, against the textbook O(n³) formulas of `thiele.dense`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thiele as th
from tests.kernels.registry import KERNELS, LONG
from thiele import dense
from thiele.chain import layouts
from thiele.parameters import constrain, unconstrain

RNG = np.random.default_rng(7)
T = np.sort(RNG.uniform(0.0, 6.0, 30))
T[5] = T[6]  # two observations at one time
Y = np.sin(2.0 * T) + 0.3 * RNG.normal(size=30) + 1.0
T_NEW = np.array([-0.7, 0.01, T[5], 2.345, T[20], 6.0, 7.9])
NOISE, MEAN = 0.08, 0.7


@pytest.mark.parametrize("name", LONG)
def test_every_kernel_agrees_with_dense_algebra(name):
    model = th.GP(KERNELS[name], th.Gaussian(NOISE), mean=th.param(MEAN))
    free = unconstrain(model)

    def by_chain(vector):
        return constrain(model, vector).log_likelihood(T, Y)

    def by_algebra(vector):
        moved = constrain(model, vector)
        return dense.log_likelihood(moved.kernel, T, Y, moved.likelihood.variance, moved.mean.value)

    value, gradient = jax.jit(jax.value_and_grad(by_chain))(free)
    with jax.enable_x64(True):
        expected, expected_gradient = jax.jit(jax.value_and_grad(by_algebra))(free)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(
        gradient, expected_gradient, rtol=1e-7, atol=1e-8 * np.max(np.abs(np.asarray(expected_gradient)))
    )

    prediction = model.condition(T, Y).predict(T_NEW)
    mean, cov = dense.posterior(KERNELS[name], T, Y, NOISE, T_NEW, MEAN)
    scale = np.sqrt(np.max(np.asarray(KERNELS[name](T_NEW, T_NEW))))
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(prediction.var, np.diagonal(np.asarray(cov)), rtol=1e-8, atol=1e-9 * scale**2)


@pytest.fixture
def in_lanes(monkeypatch):
    """Make even a short series run in lanes."""
    monkeypatch.setattr(layouts, "SHORTEST_IN_LANES_OF_SCALARS", 2)
    monkeypatch.setattr(layouts, "_lanes_for_caches", lambda *_: 2)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize(
    "name", ["Matern32", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Matern72", "Matern32 + Matern52"))]
)
def test_many_lanes_agree_with_dense_algebra(name, in_lanes):
    kernel = {
        "Matern32": th.Matern32(1.2, 0.9),
        "Matern72": th.Matern72(1.2, 0.9),
        "Matern32 + Matern52": th.Matern32(1.2, 0.9) + th.Matern52(0.5, 3.0),
    }[name]
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 20.0, 200))
    y = np.sin(t) + 0.3 * rng.normal(size=200)
    assert layouts.choose_layout(200, kernel.sde().dim, 1).lanes == 2
    model = th.GP(kernel, th.Gaussian(NOISE))
    with jax.enable_x64(True):
        value, gradient = jax.jit(jax.value_and_grad(lambda m: m.log_likelihood(t, y)))(model)
        expected, expected_gradient = jax.jit(
            jax.value_and_grad(lambda m: dense.log_likelihood(m.kernel, t, y, m.likelihood.variance))
        )(model)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    for ours, theirs in zip(jax.tree.leaves(gradient.kernel), jax.tree.leaves(expected_gradient.kernel), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    t_new = np.array([-1.0, 3.3, 12.0, 22.0])
    prediction = model.condition(t, y).predict(t_new)
    mean, cov = dense.posterior(kernel, t, y, NOISE, t_new)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(prediction.var, np.diagonal(np.asarray(cov)), rtol=1e-8, atol=1e-10)


MODEL = th.GP(th.Matern32(1.3, 0.8), th.Gaussian(0.1))
times = st.lists(st.floats(-50.0, 50.0, width=32), min_size=12, max_size=12)
values = st.lists(st.floats(-5.0, 5.0, width=32), min_size=12, max_size=12)
FAST = settings(max_examples=20, deadline=None)


@eqx.filter_jit
def _log_likelihood(model, t, y):
    return model.log_likelihood(t, y)


def log_likelihood(model, t, y):
    # A caller's own `jit` takes numpy arrays in the caller's precision.
    with jax.enable_x64(True):
        return float(_log_likelihood(model, t, y))


@FAST
@given(t=times, y=values, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_rows_does_not_matter(t, y, seed):
    order = np.random.default_rng(seed).permutation(12)
    t, y = np.array(t), np.array(y)
    np.testing.assert_allclose(log_likelihood(MODEL, t[order], y[order]), log_likelihood(MODEL, t, y), rtol=1e-10)


# Dense algebra is compiled for every number of rows that are left.
some = st.sampled_from([1, 7, 11]).flatmap(lambda k: st.permutations([True] * k + [False] * (12 - k)))


@FAST
@given(t=times, y=values, keep=some)
def test_a_missing_value_is_as_if_its_row_were_not_there(t, y, keep):
    t, y, keep = np.array(t), np.array(y), np.array(keep)
    masked = MODEL.log_likelihood(t, np.where(keep, y, np.nan))
    expected = dense.log_likelihood(MODEL.kernel, t[keep], y[keep], 0.1)
    np.testing.assert_allclose(masked, expected, rtol=1e-8, atol=1e-8)


@FAST
@given(t=times, y=values, factor=st.floats(1e-3, 1e3))
def test_time_and_lengthscale_may_be_rescaled_together(t, y, factor):
    t, y = np.array(t), np.array(y)
    rescaled = th.GP(th.Matern32(1.3, 0.8 * factor), th.Gaussian(0.1))
    expected = log_likelihood(MODEL, t, y)
    np.testing.assert_allclose(log_likelihood(rescaled, t * factor, y), expected, rtol=1e-7, atol=1e-7)


@FAST
@given(t=times, y=values, shift=st.floats(-10.0, 10.0))
def test_a_mean_is_a_shift_of_the_data(t, y, shift):
    t, y = np.array(t), np.array(y)
    shifted = th.GP(MODEL.kernel, MODEL.likelihood, mean=shift)
    np.testing.assert_allclose(log_likelihood(shifted, t, y + shift), log_likelihood(MODEL, t, y), rtol=1e-9, atol=1e-9)


def test_a_nearly_noise_free_likelihood_keeps_its_digits():
    # Written with precision times value, y²/σ² of 1e12 would swallow the rest.
    t, y = np.linspace(0.0, 10.0, 8), RNG.normal(size=8)
    model = th.GP(th.Matern12(1.0, 2.0), th.Gaussian(1e-12))
    expected = dense.log_likelihood(model.kernel, t, y, 1e-12)
    np.testing.assert_allclose(model.log_likelihood(t, y), expected, rtol=1e-10)


def test_log_density_is_that_of_the_predictive_distribution():
    fit = MODEL.condition(T, Y)
    p = fit.predict(T_NEW)
    y = np.array([0.3, np.nan, -1.0, 0.0, 2.0, 0.5, 0.1])
    expected = -0.5 * (y - p.y_mean) ** 2 / p.y_var - 0.5 * np.log(2.0 * np.pi * p.y_var)
    np.testing.assert_allclose(fit.log_density(T_NEW, y), expected, rtol=1e-12)


def test_an_interval_holds_its_share_of_a_gaussian():
    p = MODEL.condition(T, Y).predict(T_NEW)
    lower, upper = p.interval(0.95)
    np.testing.assert_allclose(upper - p.mean, 1.959963984540054 * np.sqrt(p.var + 0.1), rtol=1e-10)
    np.testing.assert_allclose(p.mean - lower, upper - p.mean, rtol=1e-10)


def test_samples_have_the_moments_of_the_posterior():
    count = 4000
    draws = MODEL.condition(T, Y).sample(T_NEW, count, key=1)
    mean, cov = (np.asarray(x) for x in dense.posterior(MODEL.kernel, T, Y, 0.1, T_NEW))
    assert draws.shape == (count, len(T_NEW))
    spread = np.sqrt(np.diag(cov))
    # Five standard errors of a mean and of a covariance.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5.0 * spread / np.sqrt(count))
    error = np.abs(np.cov(draws.T) - cov) / np.outer(spread, spread)
    assert np.max(error) < 5.0 * np.sqrt(2.0 / count)


def test_second_derivatives_agree_with_dense_algebra():
    vector = unconstrain(MODEL)
    with jax.enable_x64(True):
        ours = jax.jit(jax.hessian(lambda v: constrain(MODEL, v).log_likelihood(T, Y)))(vector)

        def by_algebra(v):
            moved = constrain(MODEL, v)
            return dense.log_likelihood(moved.kernel, T, Y, moved.likelihood.variance)

        theirs = jax.hessian(by_algebra)(vector)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.parametrize("flag", [False, True])
def test_transformations_work_whatever_the_precision_flag(flag):
    with jax.enable_x64(flag):
        value = MODEL.log_likelihood(T, Y)
        assert value.dtype == np.float64
        np.testing.assert_allclose(jax.jit(lambda m, t, y: m.log_likelihood(t, y))(MODEL, T, Y), value, rtol=1e-5)
        gradient = jax.grad(lambda m: m.log_likelihood(T, Y))(MODEL)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
        many = jax.tree.map(lambda x: jnp.stack([x, x]), MODEL)
        mapped, slopes = jax.vmap(jax.value_and_grad(lambda m: m.log_likelihood(T, Y)))(many)
        np.testing.assert_allclose(mapped, [value, value], rtol=1e-10)
        np.testing.assert_allclose(slopes.kernel.lengthscale[0], gradient.kernel.lengthscale, rtol=1e-9)


def test_the_gradient_in_the_data_is_that_of_dense_algebra():
    ours = jax.grad(lambda t, y: MODEL.log_likelihood(t, y), argnums=(0, 1))
    with jax.enable_x64(True):
        t, y = jnp.asarray(np.unique(T)), jnp.asarray(Y[: len(np.unique(T))])
        theirs = jax.grad(lambda t, y: dense.log_likelihood(MODEL.kernel, t, y, 0.1), argnums=(0, 1))(t, y)
        for a, b in zip(ours(t, y), theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
