"""Transitions against arithmetic of 120 digits, from a millionth of a time unit to a million."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gamma, gammainc

from tests.sde.reference import scaled_error, transition
from thiele.kernels.rbf import LADDERS
from thiele.sde import Cascade, DampedOscillator, Ladder, Product, Rotation
from thiele.sde.incomplete_gamma import lower_gammas
from thiele.tables import as_array

STEPS = np.array([1e-6, 1e-4, 1e-2, 0.03, 0.1, 0.24, 0.26, 0.49, 0.51, 1.0, 1.7, 3.0, 10.0, 1e3, 1e6])


def one(value):
    return np.array([value])


def ladder(order):
    *couplings, damping = LADDERS[order][0]
    return Ladder(np.array(1.3), np.array(1.0), tuple(couplings), damping)


BLOCKS = {
    **{f"Matern, p={p}": lambda p=p: Cascade(one(1.3), one(np.sqrt(2 * p + 1.0)), p) for p in range(4)},
    **{
        f"oscillator, quality {quality}": lambda quality=quality: DampedOscillator(one(1.3), one(1.0), one(quality))
        for quality in (0.05, 0.3, 0.5, 0.5000001, 0.7, 3.0, 100.0, 1e4)
    },
    **{f"ladder of {order}": lambda order=order: ladder(order) for order in (2, 6, 8)},
    "Matern32 * Matern12": lambda: Product(Cascade(one(1.3), one(1.0), 1), Cascade(one(0.4), one(2.0), 0)),
    "rotation * Matern32": lambda: Product(Rotation(one(1.3), one(3.0)), Cascade(one(0.4), one(1.0), 1)),
}


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_transition_and_noise_are_accurate_at_every_step(make):
    block = make()
    A, Q = jax.jit(lambda step: block.transition(step, step))(STEPS)
    A, Q = np.asarray(as_array(A)), np.asarray(as_array(Q))
    drift, diffusion = np.asarray(block.drift()[0]), np.asarray(block.diffusion()[0])
    for i, step in enumerate(STEPS):
        exact_A, exact_Q = transition(drift, diffusion, step)
        # An angle of `step` radians is known to no more than its rounding.
        np.testing.assert_allclose(A[0, :, :, i], exact_A, rtol=0.0, atol=1e-12 + 1e-15 * step)
        assert scaled_error(Q[0, :, :, i], exact_Q) < 1e-10, step


@pytest.mark.parametrize("n", [1, 3, 5, 7])
def test_incomplete_gamma_functions_keep_their_relative_accuracy(n):
    x = np.concatenate([np.logspace(-8, 2.9, 120), n / 2 * np.array([1.0 - 1e-9, 1.0, 1.0 + 1e-9])])
    for k, value in enumerate(lower_gammas(n, jnp.asarray(x)), start=1):
        np.testing.assert_allclose(value, gammainc(k, x) * gamma(k), rtol=3e-14)


def test_incomplete_gamma_functions_have_the_integrand_as_their_derivative():
    x = jnp.array([0.0, 0.3, 3.4, 3.6, 50.0])
    _, derivatives = jax.jvp(lambda x: lower_gammas(7, x), (x,), (jnp.ones_like(x),))
    for k, derivative in enumerate(derivatives, start=1):
        np.testing.assert_allclose(derivative, x ** (k - 1) * np.exp(-x), rtol=1e-14)
