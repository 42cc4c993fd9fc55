"""Claims that hold for every kernel in the registry."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.linalg import expm

from tests.kernels.registry import KERNELS, STACKS, STATIONARY
from thiele.parameters import constrain, unconstrain

STARTS = np.array([-2.0, -0.3, 0.0, 0.4, 1.7])
STEPS = np.array([0.0, 1e-5, 0.1, 0.9, 3.7])
GRID = tuple(axis.ravel() for axis in np.meshgrid(STARTS, STEPS))

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
stationary = pytest.mark.parametrize("kernel", [KERNELS[name] for name in STATIONARY], ids=STATIONARY)
every_stack = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)


@eqx.filter_jit
def dense_chain(kernel, start, step):
    """(P(start), P(start + step), A, Q), dense, with the axis of time last."""
    sde = kernel.sde()
    A, Q = zip(*sde.transition(start, step), strict=True)
    before, after = sde.covariance(start), sde.covariance(start + step)
    return tuple(sde.dense(stacks) for stacks in (before, after, A, Q))


def multiply(*matrices):
    product = matrices[0]
    for matrix in matrices[1:]:
        product = np.einsum("ij...,jk...->ik...", product, matrix)
    return product


def turned(matrix):
    return np.swapaxes(matrix, 0, 1)


@every_kernel
def test_the_chain_has_the_covariance_that_the_kernel_states(kernel):
    start, step = GRID
    P, _, A, _ = dense_chain(kernel, start, step)
    H = kernel.sde().H[0]
    through_the_chain = np.einsum("i,ijn,jkn,k->n", H, A, P, H)
    np.testing.assert_allclose(through_the_chain, kernel(start, start + step), rtol=0.0, atol=1e-10)


@every_kernel
def test_one_step_carries_the_prior_covariance_to_the_next(kernel):
    P, P_next, A, Q = dense_chain(kernel, *GRID)
    np.testing.assert_allclose(multiply(A, P, turned(A)) + Q, P_next, rtol=0.0, atol=1e-10)


@every_kernel
def test_the_transition_is_the_exponential_of_the_drift(kernel):
    sde = kernel.sde()
    steps = GRID[1]
    start = np.full_like(steps, 2.0)  # right of every origin, where the drift of a random walk is stated
    _, _, A, _ = dense_chain(kernel, start, steps)
    for step, transition in zip(STEPS, np.moveaxis(A, -1, 0)[:: len(STARTS)], strict=True):
        np.testing.assert_allclose(transition, expm(np.asarray(sde.F) * step), rtol=0.0, atol=1e-11)


@every_kernel
def test_two_short_steps_are_one_long_step(kernel):
    start, step = GRID
    _, _, A, Q = dense_chain(kernel, start, step)
    _, _, A1, Q1 = dense_chain(kernel, start, 0.3 * step)
    _, _, A2, Q2 = dense_chain(kernel, start + 0.3 * step, step - 0.3 * step)
    np.testing.assert_allclose(multiply(A2, A1), A, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(multiply(A2, Q1, turned(A2)) + Q2, Q, rtol=0.0, atol=1e-11)


@every_kernel
def test_noise_is_symmetric_and_positive_semidefinite_at_every_step(kernel):
    steps = np.concatenate([np.zeros(1), np.logspace(-6, 6, 24)])
    for start in (-5.0, 0.4, 5.0):
        _, _, _, Q = dense_chain(kernel, np.full_like(steps, start), steps)
        Q = np.moveaxis(np.asarray(Q), -1, 0)
        scale = np.sqrt(np.einsum("nii->ni", Q))
        scale = np.where(scale == 0.0, 1.0, scale)
        scaled = Q / scale[:, :, None] / scale[:, None, :]
        assert np.max(np.abs(scaled - np.swapaxes(scaled, 1, 2))) < 1e-13
        assert np.min(np.linalg.eigvalsh(scaled)) > -1e-13


@stationary
def test_drift_diffusion_and_covariance_satisfy_the_lyapunov_equation(kernel):
    sde = kernel.sde()
    F, D, P = sde.F, sde.LQcL, sde.Pinf
    np.testing.assert_allclose(F @ P + P @ F.T + D, 0.0, rtol=0.0, atol=1e-12 * float(1.0 + jnp.max(jnp.abs(D))))


@stationary
def test_a_stationary_kernel_depends_on_the_lag_alone(kernel):
    assert kernel.sde().stationary
    t = jnp.linspace(-1.0, 2.0, 7)
    np.testing.assert_allclose(kernel(t, t + 0.7), kernel(0.0, 0.7), rtol=0.0, atol=1e-12)


@every_kernel
def test_gram_matrices_are_symmetric_and_positive_semidefinite(kernel):
    t = jnp.asarray(np.random.default_rng(0).uniform(-4.0, 5.0, 40))
    gram = np.asarray(kernel(t[:, None], t[None, :]))
    np.testing.assert_array_equal(gram, gram.T)
    assert np.min(np.linalg.eigvalsh(gram)) > -1e-12 * np.trace(gram)


@eqx.filter_jit
def total_and_gradient(kernel, free, start, step):
    """A number that depends on all of the chain and of the covariance, and its gradient in the hyperparameters."""

    def total(free):
        moved = constrain(kernel, free)
        chain, _ = ravel_pytree(moved.sde().transition(start, step))
        return jnp.sum(jnp.tanh(chain)) + jnp.sum(jnp.tanh(moved(start, start + step)))

    return jax.value_and_grad(total)(free)


@every_kernel
def test_values_and_gradients_are_finite_at_no_step_and_at_a_huge_one(kernel):
    for start in (-1.0, 0.0, 1.0):
        for step in (0.0, 1e-12, 1e8):
            value, gradient = total_and_gradient(kernel, unconstrain(kernel), np.full(3, start), np.full(3, step))
            assert np.isfinite(value)
            assert np.all(np.isfinite(gradient))


@every_kernel
def test_no_step_changes_nothing(kernel):
    _, _, A, Q = dense_chain(kernel, GRID[0], np.zeros_like(GRID[0]))
    np.testing.assert_array_equal(A, np.broadcast_to(np.eye(A.shape[0])[..., None], A.shape))
    np.testing.assert_array_equal(Q, np.zeros_like(Q))


@every_kernel
def test_gradients_agree_with_finite_differences(kernel):
    start, step = np.array([-0.7, 0.1, 0.9]), np.array([0.4, 0.8, 0.2])
    free = unconstrain(kernel)
    _, gradient = total_and_gradient(kernel, free, start, step)
    for i, direction in enumerate(np.eye(free.size)):
        above, _ = total_and_gradient(kernel, free + 1e-5 * direction, start, step)
        below, _ = total_and_gradient(kernel, free - 1e-5 * direction, start, step)
        np.testing.assert_allclose(gradient[i], (above - below) / 2e-5, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["Matern32", "Periodic", "SHO, ringing", "IntegratedWiener", "RBF"])
def test_mapping_over_hyperparameters_equals_a_loop(name):
    kernel = KERNELS[name]
    free = unconstrain(kernel)
    many = jnp.stack([free, free + 0.1])

    @jax.jit
    def gram(vector):
        moved = constrain(kernel, vector)
        return moved(STARTS, 0.3), moved.sde().transition(STARTS, STEPS)

    mapped = jax.vmap(gram)(many)
    for i in range(2):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[i], b, rtol=0.0, atol=1e-13), mapped, gram(many[i]))  # noqa: B023


@every_kernel
def test_double_precision_is_used_whatever_the_flag_says(kernel):
    def everything(kernel):
        sde = kernel.sde()
        return kernel(0.1, 0.4), sde.transition(0.0, 0.5), sde.covariance(0.0), sde.F, sde.LQcL, sde.Pinf

    with jax.enable_x64(False):
        arrays = jax.tree.leaves(eqx.filter_eval_shape(everything, kernel))
    assert {array.dtype for array in arrays} == {np.dtype(np.float64)}


@every_kernel
def test_shapes_of_the_chain_follow_the_shape_of_time(kernel):
    sde = kernel.sde()
    t = np.ones((3, 2))
    transitions, covariances = eqx.filter_eval_shape(lambda sde: (sde.transition(t, t), sde.covariance(t)), sde)
    assert sde.H.shape == (1, sde.dim)
    for block, (A, Q), P in zip(sde.blocks, transitions, covariances, strict=True):
        for part in (A, Q, P):
            assert len(part) == len(part[0]) == block.dim
            assert {entry.shape for row in part for entry in row if entry is not None} == {(block.count, 3, 2)}


@every_stack
def test_a_stack_is_its_kernels_side_by_side(stack):
    start, step = GRID
    P, _, A, _ = dense_chain(stack, start, step)
    H = stack.sde().H
    assert H.shape == (stack.latents, stack.sde().dim)
    joint = np.einsum("li,ijn,jkn,mk->lmn", H, A, P, H)
    expected = np.stack([kernel(start, start + step) for kernel in stack.kernels])
    np.testing.assert_allclose(np.einsum("lln->ln", joint), expected, rtol=0.0, atol=1e-10)
    np.testing.assert_array_equal(stack(start, start + step), expected)
    assert np.all(joint[~np.eye(stack.latents, dtype=bool)] == 0.0)
