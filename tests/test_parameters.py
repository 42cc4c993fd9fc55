"""Natural values in the fields, one vector of real numbers for optimisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from thiele.kernels import Matern32, Periodic
from thiele.parameters import (
    Parametric,
    between,
    constrain,
    fixed,
    increasing,
    log_prior,
    param,
    parameters,
    positive,
    real,
    unconstrain,
)
from thiele.priors import Gamma, LogNormal


class Every(Parametric):
    """One hyperparameter of each kind."""

    scale: Array = positive(default=2.0)
    shift: Array = real(default=-0.3)
    share: Array = between(0.0, 2.0, default=0.5)
    cuts: Array = increasing(default=(-1.0, 0.5, 3.0))


class Nested(Parametric):
    parts: tuple
    inner: Every
    level: Array = real(default=0.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-8.0, 8.0), min_size=6, max_size=6))
def test_constraining_and_unconstraining_are_inverse(vector):
    model = constrain(Every(), np.array(vector))
    np.testing.assert_allclose(unconstrain(model), vector, rtol=1e-7, atol=1e-7)


def test_unconstraining_and_constraining_give_the_values_back():
    model = Every(scale=1e-6, shift=1e6, share=1.9, cuts=[0.0, 1e-3, 5.0])
    again = constrain(model, unconstrain(model))
    for name in ("scale", "shift", "share", "cuts"):
        np.testing.assert_allclose(getattr(again, name), getattr(model, name), rtol=1e-12)


def test_fields_hold_natural_values_in_double_precision():
    model = Every(scale=np.float32(0.1))
    assert model.scale.dtype == np.float64
    assert Every().cuts.shape == (3,)
    assert unconstrain(Every()).dtype == np.float64


def test_fixed_values_do_not_move():
    model = Every(scale=fixed(2.0), cuts=fixed([0.0, 1.0]))
    free = unconstrain(model)
    assert free.shape == (2,)
    moved = constrain(model, np.asarray(free) + 1.0)
    assert float(moved.scale) == 2.0
    np.testing.assert_array_equal(moved.cuts, [0.0, 1.0])
    assert float(moved.shift) == pytest.approx(0.7)


def test_a_model_with_nothing_free_has_an_empty_vector():
    model = Matern32(fixed(1.0), fixed(2.0))
    assert unconstrain(model).shape == (0,)
    assert float(constrain(model, unconstrain(model)).lengthscale) == 2.0


def test_hyperparameters_are_found_at_any_depth_and_named_by_their_path():
    model = Nested(parts=(Matern32(), [Periodic(), "text"]), inner=Every())
    assert [p.name for p in parameters(model)] == [
        "parts[0].variance",
        "parts[0].lengthscale",
        "parts[1][0].variance",
        "parts[1][0].lengthscale",
        "parts[1][0].period",
        "inner.scale",
        "inner.shift",
        "inner.share",
        "inner.cuts",
        "level",
    ]
    assert [p.name for p in parameters(Matern32() + 2.0 * Matern32())][2:] == [
        "terms[1].kernel.variance",
        "terms[1].kernel.lengthscale",
        "terms[1].factor",
    ]


def test_a_nested_model_moves_as_one_vector():
    model = Nested(parts=(Matern32(fixed(3.0), 2.0),), inner=Every())
    free = unconstrain(model)
    assert free.shape == (1 + 6 + 1,)
    vector = np.array(free)
    vector[0] += 1.0
    vector[-1] = 5.0
    moved = constrain(model, vector)
    assert float(moved.parts[0].lengthscale) == pytest.approx(2.0 * np.e)
    assert float(moved.level) == 5.0
    assert float(moved.parts[0].variance) == 3.0


def test_priors_add_up_at_natural_values():
    first, second = LogNormal(median=1.0, sigma=0.5), Gamma(concentration=2.0, rate=1.0)
    model = Matern32(variance=param(2.0, prior=first), lengthscale=param(3.0, prior=second, fixed=True)) + Matern32()
    np.testing.assert_allclose(log_prior(model), first.log_prob(2.0) + second.log_prob(3.0))
    assert float(log_prior(Matern32())) == 0.0


def test_gradients_flow_through_constrain():
    def value(vector):
        return constrain(Matern32(2.0, 3.0), vector).lengthscale

    with jax.enable_x64(True):
        gradient = jax.grad(value)(jnp.log(jnp.array([2.0, 3.0])))
    np.testing.assert_allclose(gradient, [0.0, 3.0], rtol=1e-14)


def test_a_model_shows_what_it_holds():
    assert repr(Matern32(2.0, 3.5)) == "Matern32(variance=2., lengthscale=3.5)"


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Every(scale=0.0), ValueError, "`scale` of Every must be positive, got 0.0"),
        (lambda: Every(shift=np.nan), ValueError, "`shift` of Every must be a finite number, got nan"),
        (lambda: Every(share=2.0), ValueError, "`share` of Every must be between 0 and 2, got 2.0"),
        (lambda: Every(cuts=[1.0, 0.0]), ValueError, "`cuts` of Every must be a vector that increases"),
        (lambda: Every(scale="wide"), TypeError, "`scale` of Every must be positive, got 'wide'"),
        (lambda: constrain(Every(), np.zeros(2)), ValueError, r"`vector` must have shape \(6,\) .* got \(2,\)"),
    ],
)
def test_bad_values_are_refused_by_name(build, error, words):
    with pytest.raises(error, match=words):
        build()
