"""A summary tells how sure the hyperparameters are, how each came to be, and what to be careful about."""

import jax
import numpy as np
import pytest

import thiele as th
from thiele.parameters import constrain, unconstrain
from thiele.summary import standard_errors

RNG = np.random.default_rng(2)
T = np.arange(80) * 0.5
Y = np.sin(T / 2.0) + 0.3 * RNG.standard_normal(T.size)


@pytest.fixture(scope="module")
def fit():
    return th.GP(th.Matern52(), th.Gaussian()).fit(T, Y)


@pytest.mark.slow
def test_standard_errors_are_those_of_the_hessian(fit):
    with jax.enable_x64(True):
        hessian = jax.hessian(
            lambda u: constrain(fit.model, u).log_likelihood(jax.numpy.asarray(T), jax.numpy.asarray(Y))
        )
        curvature = -np.asarray(hessian(unconstrain(fit.model)))
    np.testing.assert_allclose(standard_errors(fit), np.sqrt(np.diag(np.linalg.inv(curvature))), rtol=1e-4)


def test_a_summary_names_values_intervals_and_how_they_came_to_be(fit):
    found = fit.summary()
    named = {entry.name: entry for entry in found.parameters}
    assert set(named) == {"kernel.variance", "kernel.lengthscale", "likelihood.variance", "mean.value"}
    noise = named["likelihood.variance"]
    assert noise.lower < 0.09 < noise.upper
    assert noise.said == "learnt"
    assert found.warnings == ()
    text = str(found)
    assert "80 observations, from 0 to 39.5" in text
    assert "posterior exact" in text


def test_a_lower_level_is_narrower(fit):
    wide, narrow = fit.summary(0.99).parameters[0], fit.summary(0.5).parameters[0]
    assert wide.lower < narrow.lower < narrow.value < narrow.upper < wide.upper
    with pytest.raises(ValueError, match="`level` must be a number between 0 and 1"):
        fit.summary(95)


def test_dates_are_shown_as_durations_and_fixed_values_have_no_interval():
    days = np.datetime64("2020-01-01") + np.arange(T.size)
    model = th.GP(th.Matern52(variance=th.fixed(1.0), lengthscale="1 week"), th.Gaussian(variance=0.1), mean=0.0)
    found = model.fit(days, Y, max_steps=3).summary()
    text = str(found)
    assert "from 2020-01-01" in text
    assert "span 79 days, usual step 1 day" in text
    named = {entry.name: entry for entry in found.parameters}
    assert named["kernel.variance"].said == "fixed"
    assert np.isnan(named["kernel.variance"].lower)
    assert named["kernel.lengthscale"].time
    assert " days and " in text


def test_what_goes_wrong_is_said_in_words():
    noise = th.GP(th.Matern52(), th.Gaussian()).fit(
        T, 1e-3 * np.arange(80) + 1e-5 * RNG.standard_normal(80), max_steps=1
    )
    assert any("learning stopped early" in text for text in noise.summary().warnings)
    long = th.GP(th.Matern52(1.0, th.param(500.0)), th.Gaussian(0.09), mean=0.0).condition(T, Y)
    assert any("longer than the data" in text for text in long.summary().warnings)
    short = th.GP(th.Matern52(1.0, 0.01), th.Gaussian(0.09), mean=0.0).condition(T, Y)
    assert any("acts as noise" in text for text in short.summary().warnings)


def test_what_the_data_leave_open_is_said():
    # A constant and a mean say the same thing.
    model = th.GP(th.Matern52(1.0, 2.0) + th.Scale(th.Constant(1.0), 1.0), th.Gaussian(0.09), mean=0.0)
    found = model.fit(T, Y, max_steps=60).summary()
    left_open = {entry.name for entry in found.parameters if "leave it open" in entry.said}
    assert left_open == {"kernel.terms[1].factor", "kernel.terms[1].kernel.variance"}
    assert any("state a prior" in text for text in found.warnings)
