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
