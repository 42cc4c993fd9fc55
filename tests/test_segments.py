"""Sites of segments: the gradient of log Z from moments, against differentiation of every operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.chain.runs import assert_close, quick_jit
from thiele import segments
from thiele.rules import Site
from thiele.segments import Steps

SEGMENTS = 5
# Sizes of the blocks of each stack, and how many such blocks.
STATES = {"one number": ((1, 1),), "one block": ((2, 1),), "stacks": ((1, 2), (3, 1))}
# Some entries of (u, e) that a site bears on: of few data, sites are singular.
RANKS = {"every entry": None, "one datum a segment": 1, "no data": 0}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def problem(state, rank):
    rng = np.random.default_rng(3)
    d = sum(dim * count for dim, count in STATES[state])
    draw = lambda *shape: jnp.asarray(0.6 * rng.normal(size=shape))  # noqa: E731
    # Nothing comes before the first state, and nothing follows the last.
    A = tuple(draw(count, dim, dim, SEGMENTS).at[..., 0].set(0.0).at[..., -1].set(0.0) for dim, count in STATES[state])
    L = tuple(draw(count, dim, dim, SEGMENTS).at[..., -1].set(0.0) for dim, count in STATES[state])
    columns = 2 * d if RANKS[rank] is None else RANKS[rank]
    root = draw(SEGMENTS, 2 * d, columns)
    return Steps(A, L), Site(jnp.einsum("sik,sk->si", root, draw(SEGMENTS, columns)), root @ root.swapaxes(1, 2))


def symmetrised(gradient):
    at, sites = gradient
    return at, sites._replace(precision=0.5 * (sites.precision + sites.precision.swapaxes(1, 2)))


def by_operations(at, sites):
    return segments.smooth(at, sites)[1]


CASES = [(state, rank) for state in STATES for rank in RANKS]


@pytest.mark.parametrize(("state", "rank"), CASES)
def test_the_gradient_of_log_z_is_found_from_moments(state, rank):
    @quick_jit
    def both(at, sites):
        ours = jax.value_and_grad(segments.log_normaliser, argnums=(0, 1))(at, sites)
        return ours, jax.value_and_grad(by_operations, argnums=(0, 1))(at, sites)

    (value, ours), (expected, slow) = both(*problem(state, rank))
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)
    assert_close(symmetrised(ours), symmetrised(slow))


@pytest.mark.parametrize(("state", "rank"), CASES)
def test_held_moments_are_the_free_ones_and_leave_the_gradient_to_log_z(state, rank):
    def with_moments(at, sites):
        q, log_z = segments.smooth_held(at, sites)
        return log_z + jnp.sum(jnp.sin(q.mean)) + jnp.sum(jnp.cos(q.var)), (q, log_z)

    @quick_jit
    def all_of_it(at, sites):
        by_held, held = jax.grad(with_moments, argnums=(0, 1), has_aux=True)(at, sites)
        return held, segments.smooth(at, sites), by_held, jax.grad(by_operations, argnums=(0, 1))(at, sites)

    held, free, by_held, slow = all_of_it(*problem(state, rank))
    assert_close(held, free)
    assert_close(symmetrised(by_held), symmetrised(slow))


def test_log_z_can_be_differentiated_twice():
    at, sites = problem("stacks", "one datum a segment")
    rng = np.random.default_rng(8)
    aside = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), (at, sites))
    # Sites stay symmetric on the way.
    aside = symmetrised(aside)

    def along(function):
        line = lambda s: function(*jax.tree.map(lambda x, dx: x + s * dx, (at, sites), aside))  # noqa: E731
        return quick_jit(jax.grad(jax.grad(line)))(0.0)

    np.testing.assert_allclose(along(segments.log_normaliser), along(by_operations), rtol=1e-9)


def test_only_what_moves_is_differentiated():
    at, sites = problem("one block", "every entry")
    ours = quick_jit(jax.grad(lambda shift: segments.log_normaliser(at, sites._replace(shift=shift))))(sites.shift)
    slow = quick_jit(jax.grad(lambda shift: by_operations(at, sites._replace(shift=shift))))(sites.shift)
    assert_close(ours, slow)
