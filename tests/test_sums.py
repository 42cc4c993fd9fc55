"""Sums over groups, whose gradient is added up on the way: against a plain sum, whatever asks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele import sums

RNG = np.random.default_rng(4)
GROUPS = {"x": RNG.normal(size=(5, 7)), "row": RNG.integers(0, 3, (5, 7))}
THETA = {"a": np.array(0.7), "b": RNG.normal(size=3), "label": np.array([2, 0, 1])}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def share(theta, group, carried):
    x = jnp.sin(theta["a"] * group["x"] + theta["b"][theta["label"][group["row"]]])
    count, most = carried
    return jnp.sum(x**2), (count + jnp.sum(x > 0.0), jnp.maximum(most, jnp.max(x)))


def start():
    return jnp.array(0), jnp.array(-1.0)


def plainly(theta):
    found, carried = jnp.zeros(()), start()
    for k in range(len(GROUPS["x"])):
        value, carried = share(theta, jax.tree.map(lambda x, k=k: x[k], GROUPS), carried)
        found = found + value
    return found, carried


def by(way):
    groups = jax.tree.map(jnp.asarray, GROUPS)
    return lambda theta: way(share, theta, groups, start())


def moved(function):
    """Of what moves alone: labels do not."""
    return lambda a, b: function({**jax.tree.map(jnp.asarray, THETA), "a": a, "b": b})


WAYS = {"again": sums.total, "on the way": sums.total_with_slopes}


@pytest.mark.parametrize("name", WAYS)
def test_the_sum_and_what_is_carried(name):
    found, carried = by(WAYS[name])(jax.tree.map(jnp.asarray, THETA))
    expected, left = plainly(THETA)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    for x, y in zip(carried, left, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)


ASKED = {
    "a gradient": lambda f: jax.grad(f, argnums=(0, 1)),
    "a gradient in one": lambda f: jax.grad(f, argnums=1),
    "forward": lambda f: jax.jacfwd(f, argnums=(0, 1)),
    "second derivatives": lambda f: jax.hessian(f, argnums=1),
    "in a program": lambda f: jax.jit(jax.grad(f, argnums=(0, 1))),
    "many at once": lambda f: (
        lambda a, b: jax.vmap(jax.grad(f, argnums=1))(a * jnp.arange(1.0, 4.0), b * jnp.ones((3, 1)))
    ),
}


@pytest.mark.parametrize("most", [sums.MOST_ON_THE_WAY, 0], ids=["few numbers", "too many"])
@pytest.mark.parametrize("asked", ASKED)
def test_derivatives_of_the_sum(asked, most, monkeypatch):
    monkeypatch.setattr(sums, "MOST_ON_THE_WAY", most)
    at = jnp.asarray(THETA["a"]), jnp.asarray(THETA["b"])
    found, expected = (
        ASKED[asked](lambda a, b, way=way: moved(way)(a, b)[0])(*at) for way in (by(sums.total_with_slopes), plainly)
    )
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


def test_what_is_carried_is_held():
    at = jnp.asarray(THETA["a"]), jnp.asarray(THETA["b"])
    most = jax.grad(lambda a, b: moved(by(sums.total_with_slopes))(a, b)[1][1])(*at)
    assert most == 0.0
    assert jax.grad(lambda a, b: moved(by(sums.total))(a, b)[1][1])(*at) != 0.0


def test_groups_that_move_have_their_derivative_too():
    def of(x, way):
        return way(share, jax.tree.map(jnp.asarray, THETA), {"x": x, "row": jnp.asarray(GROUPS["row"])}, start())[0]

    found, expected = (jax.grad(of)(jnp.asarray(GROUPS["x"]), way) for way in (sums.total_with_slopes, sums.total))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_gradient_goes_over_the_groups_once():
    at = jnp.asarray(THETA["a"]), jnp.asarray(THETA["b"])
    loops = {
        name: str(jax.make_jaxpr(jax.grad(lambda a, b, way=way: moved(by(way))(a, b)[0]))(*at)).count("scan[")
        for name, way in WAYS.items()
    }
    assert loops == {"again": 2, "on the way": 1}
