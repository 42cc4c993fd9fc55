"""Sums over the rows of each owner, by a gather: the scatter's numbers, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.runs import added, rows_of

OWNERS = {
    "some without rows": (np.array([0, 0, 2, 2, 2, 5]), 7),
    "one each": (np.arange(4), 4),
    "all of one": (np.zeros(5, int), 1),
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def scattered(x, owner, owners):
    return jnp.zeros((owners, *x.shape[1:])).at[owner].add(x)


@pytest.mark.parametrize("name", OWNERS)
def test_sums_and_derivatives_are_those_of_a_scatter(name):
    owner, owners = OWNERS[name]
    x = jnp.asarray(np.random.default_rng(1).normal(size=(len(owner), 3, 2)))
    row = rows_of(owner, owners)
    by_gather, by_scatter = (lambda x: added(x, owner, row)), (lambda x: scattered(x, owner, owners))
    np.testing.assert_allclose(by_gather(x), by_scatter(x), rtol=1e-15, atol=1e-15)
    for mine, theirs in zip(*(jax.jvp(f, (x,), (x**2,)) for f in (by_gather, by_scatter)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-15, atol=1e-15)
    slopes = [jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x))))(x) for f in (by_gather, by_scatter)]
    np.testing.assert_allclose(*slopes, rtol=1e-14)
    batch = jnp.stack([x, -x])
    np.testing.assert_allclose(jax.vmap(by_gather)(batch), jax.vmap(by_scatter)(batch), rtol=1e-15, atol=1e-15)


def test_rows_are_looked_up_in_few_shapes():
    assert [rows_of(np.zeros(n, int), 1).shape[1] for n in (1, 2, 3, 4, 5, 8)] == [1, 2, 4, 4, 8, 8]


def test_a_row_beyond_those_of_the_owners_is_left_out():
    owner = np.array([0, 1, 1])
    found = added(jnp.ones((4, 1)), np.array([0, 1, 1, 1]), rows_of(owner, 2))
    np.testing.assert_array_equal(found[:, 0], [1.0, 2.0])
