"""Enough inducing times, and what they lose."""

import numpy as np
import pytest

import thiele as th

T = np.linspace(0.0, 20.0, 160)
Y = np.random.default_rng(4).poisson(np.exp(1.0 + np.sin(T))).astype(float)
KERNEL = th.Matern52(1.0, 3.0)


@pytest.fixture(scope="module")
def full():
    return th.GP(KERNEL, th.Poisson()).condition(T, Y)


@pytest.mark.parametrize("tolerance", [1e-2, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_automatic_inducing_times_lose_about_what_was_allowed(full, tolerance):
    fit = th.GP(KERNEL, th.Poisson(), inducing=th.Inducing("auto", tolerance=tolerance)).condition(T, Y)
    lost = full.objective - fit.objective
    assert fit.inducing is not None
    assert len(fit.inducing) < T.size / 3
    assert 0.0 < lost < 1.5 * tolerance * T.size
    # The estimate is one of first order; it is shown to the user, and must have the right size.
    assert 0.5 * lost < fit.slack < 2.0 * lost


def test_where_all_times_are_needed_the_model_is_the_full_one(full):
    rough = th.GP(th.Matern12(1.0, 0.05), th.Poisson(), inducing="auto").condition(T, Y)
    assert rough.inducing is None
    assert rough.slack == 0.0


@pytest.mark.slow
def test_learning_looks_again_at_how_many_are_enough():
    model = th.GP(th.Matern52(1.0, 30.0), th.Poisson(), inducing=th.Inducing("auto", tolerance=1e-3))
    before, fit = model.condition(T, Y), model.fit(T, Y)
    assert float(fit.kernel.lengthscale) < 10.0
    assert len(fit.inducing) > len(before.inducing)
    assert fit.slack < 1e-3 * T.size
