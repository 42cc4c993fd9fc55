"""Chains of regular series: distinct steps are computed once, and nothing else changes."""

import jax
import numpy as np
import pytest

import thiele as th
from thiele import dense
from thiele.steps import RepeatedSteps, distinct_steps, prior_chain

RNG = np.random.default_rng(2)


def test_steps_that_differ_by_rounding_are_one_step():
    found = distinct_steps(np.linspace(0.0, 0.7, 1000))
    assert len(np.unique(found.values)) == 1
    np.testing.assert_allclose(found.values, 0.7 / 999, rtol=1e-12)


def test_the_distinct_steps_give_the_steps_back():
    times = np.cumsum(RNG.choice([0.0, 1.0, 30.0], size=200))
    found = distinct_steps(times)
    assert len(np.unique(found.values)) == 3
    np.testing.assert_array_equal(found.values[found.index], np.diff(times))


def test_a_few_more_distinct_steps_do_not_change_a_shape():
    regular = np.arange(100.0)
    with_gaps = regular + np.cumsum(np.isin(regular, [10.0, 20.0])) + np.cumsum(regular == 30.0) * 5.0
    assert distinct_steps(regular).values.shape == distinct_steps(with_gaps).values.shape


@pytest.mark.parametrize("times", [np.array([1.0]), np.array([1.0, 2.0]), np.sort(RNG.uniform(size=500))])
def test_irregular_and_tiny_series_have_none(times):
    assert distinct_steps(times) is None


@pytest.mark.parametrize(
    "kernel",
    [th.Matern52(1.2, 3.0), th.QuasiPeriodic(1.0, 1.5, 7.0, 40.0, harmonics=3), th.RBF(0.8, 4.0)],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_regular_series_with_gaps_agrees_with_dense_algebra(kernel):
    t = np.delete(np.arange(60.0), [7, 8, 30, 44])
    y = np.sin(t) + 0.1 * RNG.normal(size=len(t))
    model = th.GP(kernel, th.Gaussian(0.05))
    with jax.enable_x64(True):
        assert isinstance(prior_chain(kernel.sde(), t, distinct_steps(t)).moves, RepeatedSteps)
        value, gradient = jax.jit(jax.value_and_grad(lambda m: m.log_likelihood(t, y)))(model)
        expected, slope = jax.value_and_grad(lambda m: dense.log_likelihood(m.kernel, t, y, m.likelihood.variance))(
            model
        )
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    for ours, theirs in zip(jax.tree.leaves(gradient.kernel), jax.tree.leaves(slope.kernel), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    prediction = model.condition(t, y).predict([7.5, 70.0])
    mean, _ = dense.posterior(kernel, t, y, 0.05, [7.5, 70.0])
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-8, atol=1e-9)
