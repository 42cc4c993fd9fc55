"""Claims about single families: their formulas, their limits, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ive

from tests.kernels.registry import KERNELS
from thiele.kernels import (
    RBF,
    SHO,
    Constant,
    Cosine,
    IntegratedWiener,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    Product,
    QuasiPeriodic,
    Scale,
    Stack,
    Subband,
    Sum,
    Wiener,
)
from thiele.kernels.harmonics import scaled_bessel
from thiele.kernels.rbf import LADDERS
from thiele.parameters import param, parameters

TAU = np.linspace(0.0, 6.0, 200)
times = st.floats(-5.0, 5.0)


@settings(max_examples=25, deadline=None)
@given(t=times, s=times, name=st.sampled_from(sorted(KERNELS)))
def test_covariance_is_symmetric(t, s, name):
    kernel = KERNELS[name]
    assert kernel(t, s) == kernel(s, t)


@settings(max_examples=25, deadline=None)
@given(t=times, unit=st.floats(0.01, 100.0), kind=st.sampled_from([Matern12, Matern32, Matern52, Matern72, RBF]))
def test_measuring_time_and_lengthscale_in_another_unit_changes_nothing(t, unit, kind):
    np.testing.assert_allclose(kind(1.0, unit)(0.0, unit * t), kind(1.0, 1.0)(0.0, t), rtol=1e-12, atol=1e-14)


def test_matern_kernels_have_their_textbook_form():
    a = np.sqrt(3.0) * TAU / 1.7
    np.testing.assert_allclose(Matern32(2.0, 1.7)(0.0, TAU), 2.0 * (1 + a) * np.exp(-a), rtol=1e-14)
    a = np.sqrt(5.0) * TAU / 1.7
    np.testing.assert_allclose(Matern52(2.0, 1.7)(0.0, TAU), 2.0 * (1 + a + a**2 / 3) * np.exp(-a), rtol=1e-14)
    a = np.sqrt(7.0) * TAU / 1.7
    seven = 2.0 * (1 + a + 2 * a**2 / 5 + a**3 / 15) * np.exp(-a)
    np.testing.assert_allclose(Matern72(2.0, 1.7)(0.0, TAU), seven, rtol=1e-14)


def test_subband_and_quasi_periodic_are_products():
    subband = Cosine(0.7, 3.0) * Matern52(1.0, 1.5)
    np.testing.assert_allclose(Subband(0.7, 1.5, 3.0, order=2.5)(0.0, TAU), subband(0.0, TAU), atol=1e-15)
    quasi = Periodic(0.7, 1.1, 3.0) * Matern32(1.0, 9.0)
    np.testing.assert_allclose(QuasiPeriodic(0.7, 1.1, 3.0, 9.0, 1.5)(0.0, TAU), quasi(0.0, TAU), atol=1e-15)


@pytest.mark.parametrize("quality", [0.2, 0.4999, 0.5, 0.5001, 3.0, 200.0])
def test_sho_is_the_kernel_of_celerite(quality):
    eta = np.sqrt(np.abs(1.0 - 0.25 / quality**2)) + 1e-30
    x = 2.0 * TAU
    even, odd = (np.cos(eta * x), np.sin(eta * x)) if quality > 0.5 else (np.cosh(eta * x), np.sinh(eta * x))
    expected = 1.3 * np.exp(-x / (2 * quality)) * (even + odd / (2 * eta * quality))
    np.testing.assert_allclose(SHO(1.3, 2.0, quality)(0.0, TAU), expected, rtol=0.0, atol=1e-11)


def test_sho_at_critical_damping_is_a_matern32():
    lengthscale = np.sqrt(3.0) / 2.0
    np.testing.assert_allclose(SHO(1.3, 2.0, 0.5)(0.0, TAU), Matern32(1.3, lengthscale)(0.0, TAU), atol=1e-15)


@pytest.mark.parametrize("x", [1e-6, 1e-2, 0.3, 1.0, 7.0, 60.0, 400.0])
def test_scaled_bessel_functions_agree_with_scipy(x):
    orders = np.arange(65)
    np.testing.assert_allclose(scaled_bessel(64, jnp.asarray(x)), ive(orders, x), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(scaled_bessel(3, jnp.asarray(x)), ive(orders[:4], x), rtol=1e-12)


def test_scaled_bessel_functions_have_the_right_derivative():
    x, orders = 2.3, np.arange(1, 9)
    slope = jax.jacfwd(lambda x: scaled_bessel(8, x))(jnp.asarray(x))
    np.testing.assert_allclose(slope[1:], 0.5 * (ive(orders - 1, x) + ive(orders + 1, x)) - ive(orders, x), rtol=1e-12)


@pytest.mark.parametrize("lengthscale", [0.2, 0.5, 1.0, 3.0, 1e3])
def test_periodic_differs_from_its_limit_by_no_more_than_it_says(lengthscale):
    kernel = Periodic(1.7, lengthscale, 2.5)
    full = 1.7 * np.exp(-2.0 * np.sin(np.pi * TAU / 2.5) ** 2 / lengthscale**2)
    bound = float(kernel.truncation_error())
    assert bound < 1.7e-6
    assert np.max(np.abs(kernel(0.0, TAU) - full)) < bound + 1e-14


def test_periodic_leaves_room_for_the_lengthscale_to_halve():
    for lengthscale in (0.5, 1.0, 4.0):
        chosen = Periodic(1.0, lengthscale).harmonics
        assert Periodic(1.0, lengthscale / 2, harmonics=chosen).truncation_error() < 1e-3


def test_periodic_refuses_what_it_cannot_choose():
    with pytest.raises(ValueError, match="`lengthscale` of Periodic must be large enough for 64 harmonics"):
        Periodic(1.0, 0.05)
    with pytest.raises(ValueError, match="`harmonics` of QuasiPeriodic must be stated"):
        jax.jit(lambda lengthscale: QuasiPeriodic(1.0, lengthscale)(0.0, 1.0))(1.0)
    with pytest.raises(ValueError, match="`harmonics` of Periodic must be a positive integer or None, got 0"):
        Periodic(harmonics=0)
    assert Periodic(1.0, 0.05, harmonics=80).harmonics == 80
    assert Periodic(lengthscale=param(1.0, fixed=True)).harmonics == Periodic(lengthscale=1.0).harmonics


def test_a_kernel_may_be_built_inside_jit():
    build = jax.jit(lambda variance: (Periodic(variance, 1.0) + SHO(variance))(0.0, TAU))
    np.testing.assert_allclose(build(1.5), (Periodic(1.5, 1.0) + SHO(1.5))(0.0, TAU), atol=1e-14)


@pytest.mark.parametrize("order", LADDERS)
def test_rbf_differs_from_the_squared_exponential_by_no_more_than_it_says(order):
    tau = np.linspace(0.0, 30.0, 6001)
    kernel = RBF(1.4, 0.8, order=order)
    error = np.max(np.abs(kernel(0.0, 0.8 * tau) - 1.4 * np.exp(-0.5 * tau**2)))
    stated = float(kernel.approximation_error())
    assert 0.9 * stated < error <= stated
    np.testing.assert_allclose(kernel(0.0, 0.0), 1.4, rtol=1e-13)


def test_wiener_has_independent_increments_on_both_sides():
    kernel = Wiener(0.6, 0.3, origin=1.0)
    np.testing.assert_allclose(kernel(3.0, 4.5), 0.3 + 0.6 * 2.0)
    np.testing.assert_allclose(kernel(-3.0, -0.5), 0.3 + 0.6 * 1.5)
    np.testing.assert_allclose(kernel(-3.0, 4.5), 0.3)


def test_integrated_wiener_is_the_double_integral_of_a_wiener_process():
    walk = Wiener(0.6, 0.2)
    t, s = 1.3, -0.8
    grid = (np.arange(400) + 0.5) / 400
    for t, s in ((1.3, 0.8), (-1.3, -0.4), (1.3, -0.8)):
        slopes = np.asarray(walk(t * grid[:, None], s * grid[None, :]))
        np.testing.assert_allclose(IntegratedWiener(0.6, 0.3, 0.2)(t, s), 0.3 + t * s * slopes.mean(), rtol=1e-4)


def test_sums_flatten_and_products_distribute():
    a, b, c = Matern12(), Matern32(), Constant()
    assert [type(term) for term in (a + (b + c)).terms] == [Matern12, Matern32, Constant]
    assert len(((a + b) * c).sde().blocks) == 2
    assert isinstance(a * b, Product)
    assert isinstance(a + b, Sum)


def test_a_number_in_an_expression_is_held_and_a_scale_is_learnt():
    assert [p.fixed for p in parameters(2.0 * Constant()) if p.name == "factor"] == [True]
    assert [p.fixed for p in parameters(Scale(Constant(), 2.0)) if p.name == "factor"] == [False]
    np.testing.assert_allclose((Matern32() * 3)(0.0, 0.0), 3.0)
    np.testing.assert_allclose((param(3.0) * Matern32())(0.0, 0.0), 3.0)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Matern32(variance=-1.0), ValueError, "`variance` of Matern32 must be positive, got -1.0"),
        (lambda: Matern32(lengthscale=[1.0, 2.0]), ValueError, r"`lengthscale` of Matern32 must be one number"),
        (lambda: Subband(order=1.0), ValueError, "`order` of Subband must be 0.5, 1.5, 2.5 or 3.5, got 1.0"),
        (lambda: QuasiPeriodic(order=4), ValueError, "`order` of QuasiPeriodic must be"),
        (lambda: RBF(order=0), ValueError, "`order` of RBF must be an integer from 1 to 8, got 0"),
        (lambda: Wiener(origin="noon"), TypeError, "`origin` must be one number on the axis of time, got 'noon'"),
        (lambda: Wiener(origin=np.inf), ValueError, "`origin` must be finite, got inf"),
        (lambda: Matern32() + 1.0, TypeError, "unsupported operand"),
        (lambda: -1.0 * Matern32(), ValueError, "`factor` of Scale must be positive, got -1.0"),
        (lambda: Sum(()), ValueError, "`terms` of Sum must hold at least one kernel"),
        (lambda: Sum((Matern32(), 3.0)), TypeError, "`terms` of Sum must be a kernel, got 3.0"),
        (lambda: Stack(), ValueError, "`kernels` of Stack must hold at least one kernel"),
        (lambda: Stack(Matern32()) * Matern32(), ValueError, "`left` of Product must be a kernel of one latent"),
    ],
)
def test_bad_arguments_are_refused_by_name(build, error, words):
    with pytest.raises(error, match=words):
        build()
