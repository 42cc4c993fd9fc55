"""Claims about stacks of blocks and about the single families."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from tests.sde.reference import transition
from thiele.sde import (
    SDE,
    Cascade,
    DampedOscillator,
    IntegratedRandomWalk,
    Level,
    Output,
    Product,
    RandomWalk,
    Rotation,
    damped_waves,
    discretise,
)
from thiele.tables import as_array

STEPS = np.array([0.0, 1e-3, 0.4, 2.0])
PAIRS = {
    "Cascade": lambda a, b: Cascade(a, b, 2),
    "Level": lambda a, b: Level(a),
    "Rotation": lambda a, b: Rotation(a, b),
    "DampedOscillator": lambda a, b: DampedOscillator(a, b, a + b),
    "Product": lambda a, b: Product(Rotation(b, a), Cascade(a, b, 1)),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_a_stack_of_two_is_its_two_blocks(make):
    a, b = jnp.array([1.3, 0.4]), jnp.array([0.8, 2.0])
    both = make(a, b)
    step = jax.jit(lambda block: tuple(as_array(part) for part in block.transition(STEPS, STEPS)))
    # A product holds all pairs of a left and a right block; those of equal index come first and last.
    for i, place in enumerate([0, -1]):
        single = make(a[i : i + 1], b[i : i + 1])
        for whole, part in zip(step(both), step(single), strict=True):
            np.testing.assert_allclose(whole[place], part[0], rtol=1e-14)
        covariances = as_array(both.covariance(STEPS)), as_array(single.covariance(STEPS))
        np.testing.assert_array_equal(covariances[0][place], covariances[1][0])
        np.testing.assert_array_equal(both.drift()[place], single.drift()[0])
        np.testing.assert_array_equal(both.diffusion()[place], single.diffusion()[0])


def test_the_state_lists_blocks_in_order_and_the_emission_selects_from_each():
    ones = jnp.ones(2)
    outputs = (Level(ones[:1]), Rotation(ones, ones)), (Cascade(ones[:1], ones[:1], 1),)
    sde = SDE(tuple(Output(blocks) for blocks in outputs))
    np.testing.assert_array_equal(sde.H, [[1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]])
    assert sde.dim == 7
    assert sde.F.shape == (7, 7)


def test_a_level_adds_no_dimension_to_a_product():
    block = Product(Level(jnp.ones(1)), Cascade(jnp.ones(1), jnp.ones(1), 2))
    assert (block.count, block.dim, block.observed) == (1, 3, 2)


def test_oscillators_pass_smoothly_through_critical_damping():
    theta = jnp.array([0.0, 0.1, 0.9, 1.1, 5.0, 300.0])
    dampings = 1.0 + jnp.array([-1e-6, 0.0, 1e-6])
    slope = jax.jit(jax.vmap(jax.vmap(jax.jacfwd(damped_waves), (None, 0)), (0, None)))(dampings, theta)
    for derivative in slope:
        assert np.all(np.isfinite(derivative))
        np.testing.assert_allclose(derivative[0], derivative[2], rtol=0.0, atol=2e-5)
        np.testing.assert_allclose(0.5 * (derivative[0] + derivative[2]), derivative[1], rtol=0.0, atol=1e-9)


def test_oscillators_are_exact_on_both_sides_of_the_switch_to_waves():
    waves = jax.jit(damped_waves)
    for d in (0.2, 0.999, 1.0, 1.001, 7.0):
        for theta in (0.5, 1.0, 1.02, 1.03, 22.0, 22.5):
            even, odd = waves(d, theta)
            exact = expm(theta * np.array([[0.0, 1.0], [-1.0, -2.0 * d]]))
            np.testing.assert_allclose([even + d * odd, odd], exact[0], rtol=0.0, atol=1e-13)


WALKS = {
    "RandomWalk": RandomWalk(np.array(0.7), np.array(0.2), 0.5),
    "IntegratedRandomWalk": IntegratedRandomWalk(np.array(0.7), np.array(0.2), np.array(0.3), 0.5),
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_walk_keeps_tiny_steps_far_left_of_its_origin_accurate(walk):
    # Far out the way back to the origin looks like a walk: its noise is that of a step to the right.
    step = jnp.asarray(1e-6)
    _, ahead = walk.transition(jnp.asarray(0.5), step)
    _, back = walk.transition(jnp.asarray(-1e6), step)
    np.testing.assert_allclose(as_array(back)[0].diagonal(), as_array(ahead)[0].diagonal(), rtol=1e-5)


def test_the_two_sides_of_a_walk_are_mirror_images():
    walk = WALKS["IntegratedRandomWalk"]
    right, left = walk.covariance(jnp.asarray(0.5 + 1.7)), walk.covariance(jnp.asarray(0.5 - 1.7))
    np.testing.assert_allclose(as_array(left)[0], as_array(right)[0] * np.array([[1.0, -1.0], [-1.0, 1.0]]), rtol=1e-14)


def test_any_linear_sde_is_discretised_stable_or_not():
    rng = np.random.default_rng(1)
    drift, noise = rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    diffusion = noise @ noise.T
    steps = np.array([0.0, 1e-4, 0.3, 2.0, 9.0])
    A, Q = jax.jit(lambda steps: discretise(drift, diffusion, steps))(steps)
    for i, step in enumerate(steps):
        exact_A, exact_Q = transition(drift, diffusion, step)
        np.testing.assert_allclose(A[0, ..., i], exact_A, rtol=0.0, atol=1e-12 * np.max(np.abs(exact_A)))
        np.testing.assert_allclose(Q[0, ..., i], exact_Q, rtol=0.0, atol=1e-12 * np.max(np.abs(exact_Q)))


def test_the_derivative_in_the_step_is_the_differential_equation():
    drift, diffusion = np.array([[0.0, 1.0], [-2.0, -0.3]]), np.diag([0.0, 1.0])
    chain = jax.jit(lambda step: discretise(drift, diffusion, step))
    slope_A, slope_Q = jax.jacfwd(chain)(1.1)
    up, down = chain(1.1 + 1e-5), chain(1.1 - 1e-5)
    np.testing.assert_allclose(slope_A, (up[0] - down[0]) / 2e-5, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(slope_Q, (up[1] - down[1]) / 2e-5, rtol=0.0, atol=1e-9)
