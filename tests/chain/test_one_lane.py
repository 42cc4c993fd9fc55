"""One lane of matrices: what is written out, kept and put in closed form changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.chain.runs import assert_close, quick_jit
from thiele.chain import layouts, matrices
from thiele.chain.normaliser import value_and_gradient
from thiele.chain.recursions import Backward, Step, backward, backward_in_loop, closed_loop, gain
from thiele.chain.types import Information
from thiele.steps import prior_chain

N = 40
KERNEL = th.Stack(th.Matern32(1.0, 2.0) + th.QuasiPeriodic(0.5, 1.0, 3.0, 9.0, harmonics=2), th.Matern52(0.7, 1.5))


def everything():
    """log Z, its gradient and the moments of the outputs, in three chunks of one lane."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(2, 2, N))
    sde = KERNEL.sde()
    info = Information(
        jnp.asarray(np.einsum("ikn,jkn->ijn", root, root)), jnp.asarray(rng.normal(size=(2, N))), H=np.asarray(sde.H)
    )
    chain = prior_chain(sde, jnp.asarray(np.sort(rng.uniform(0.0, 10.0, N))))
    layout = layouts.Layout(1, 3, 16, matrices)
    return quick_jit(lambda chain: value_and_gradient(chain, info, layout))(chain)


@pytest.fixture(scope="module")
def usual():
    with jax.enable_x64(True):
        return everything()


def test_blocks_or_written_out(usual, monkeypatch):
    monkeypatch.setattr(matrices, "LARGEST_WRITTEN_OUT", 0)
    with jax.enable_x64(True):
        assert_close(everything(), usual)


def test_predictions_kept_or_made_again(usual, monkeypatch):
    monkeypatch.setattr(layouts, "MOST_KEPT", 0)
    with jax.enable_x64(True):
        assert_close(everything(), usual)


def test_the_closed_loop_is_the_backward_step():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        d, outputs = 5, 3
        square = lambda size: (lambda X: jnp.asarray(X @ X.T))(rng.normal(size=(size, size)))  # noqa: E731
        H, P = jnp.asarray(rng.normal(size=(outputs, d))), square(d)
        column = lambda size: jnp.asarray(rng.normal(size=(size, 1)))  # noqa: E731
        step = Step(jnp.asarray(rng.normal(size=(d, d))), None, None, square(outputs), column(outputs), column(outputs))
        after = Backward(column(d), square(d))
        p = P @ H.T
        found = gain(matrices, H, step, column(d), p)
        loop = closed_loop(matrices, H, step, p, found)
        assert_close(backward_in_loop(matrices, after, loop), backward(matrices, H, after, step, p, found))


def systems(p, count=3):
    rng = np.random.default_rng(p)
    X, Y = rng.normal(size=(2, count, p, p))
    Lam, G = X @ X.swapaxes(1, 2), Y @ Y.swapaxes(1, 2)
    Lam[1] -= 0.3 * np.eye(p)  # a site may take information away
    return jnp.asarray(Lam), jnp.asarray(G), jnp.asarray(rng.normal(size=(count, p, 1)))


@pytest.mark.parametrize("p", [2, 4, matrices.LARGEST_IN_ONE_FUNCTION])
def test_one_small_system_is_solved_as_the_library_does(p):
    Lam, G, h = systems(p)
    alone, library = jax.jit(matrices.resolve), jax.jit(matrices._resolved)
    for k in range(3):
        for mine, theirs in zip(alone(Lam[k], G[k], h[k]), library(Lam[k], G[k], h[k]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
    for mine, theirs in zip(jax.vmap(matrices.resolve)(Lam, G, h), jax.vmap(library)(Lam, G, h), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def test_many_shifts_share_the_rest_of_a_small_system():
    Lam, G, h = systems(3)
    traced = jax.make_jaxpr(jax.vmap(matrices.resolve, (None, None, 0), (None, 0, None)))(Lam[0], G[0], h)
    assert [x.aval.shape for x in traced.jaxpr.outvars] == [(3, 3), (3, 3, 1), ()]


def test_derivatives_of_a_small_system_are_the_librarys():
    Lam, G, h = (x[0] for x in systems(4))
    total = lambda resolve: lambda *x: sum(jnp.sum(jnp.sin(y)) for y in resolve(*x))  # noqa: E731
    for transform in (lambda f: jax.grad(f, (0, 1, 2)), lambda f: jax.hessian(f, (0, 1))):
        mine, theirs = (jax.jit(transform(total(f)))(Lam, G, h) for f in (matrices.resolve, matrices._resolved))
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
