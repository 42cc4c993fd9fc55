"""Outputs with noise that they share with the next move: a chain on (state, noise) says the same in a larger state."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.chain import Chain, Information, Move, Noise, Tabulated, log_normaliser, matrices, outputs, posterior

D, BLOCK, N = 6, 2, 40


def problem(rows, seed=0):
    """A block-diagonal chain, and information on f = B x + K e, where e drives the chain: q = L e."""
    rng = np.random.default_rng(seed)
    random = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    A = 0.5 * random(D // BLOCK, BLOCK, BLOCK, N - 1)
    L = random(D // BLOCK, BLOCK, BLOCK, N - 1)
    root = random(rows, rows, N)
    return {
        "mean": random(D),
        "start": random(D, D),
        "A": A,
        "L": L,
        "precision": jnp.einsum("ijn,kjn->ikn", root, root) * (rng.random(N) > 0.2),
        "shift": random(rows, N),
        "mix": random(rows, D, N),
        "K": random(rows, D, N),
    }


def dense(blocks):
    return jax.vmap(lambda x: jax.scipy.linalg.block_diag(*x), in_axes=-1, out_axes=-1)(blocks)


def noisy(mean, start, A, L, precision, shift, mix, K):
    chain = Chain(mean, ((start @ start.T)[None],), Tabulated(), Move((A,), (jnp.einsum("gijn,gkjn->gikn", L, L),)))
    driven = jnp.pad(dense(L), [(0, 0), (0, 0), (0, 1)])
    noise = Noise(jnp.einsum("lin,min->lmn", K, K), jnp.einsum("ijn,ljn->iln", driven, K))
    return chain, Information(precision, shift, mix=mix, noise=noise)


def doubled(mean, start, A, L, precision, shift, mix, K):
    """The same on (x, e), of twice the size."""
    zero, eye = jnp.zeros((D, D)), jnp.eye(D)
    along = lambda X: jnp.broadcast_to(X[..., None], (*X.shape, N - 1))  # noqa: E731
    A = jnp.concatenate([jnp.concatenate([dense(A), dense(L)], axis=1), along(jnp.zeros((D, 2 * D)))])
    Q = along(jax.scipy.linalg.block_diag(zero, eye))
    cov = jax.scipy.linalg.block_diag(start @ start.T, eye)
    chain = Chain(jnp.concatenate([mean, jnp.zeros(D)]), (cov[None],), Tabulated(), Move((A[None],), (Q[None],)))
    return chain, Information(precision, shift, mix=jnp.concatenate([mix, K], axis=1))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_the_log_normaliser_and_its_gradient_are_those_of_the_larger_chain(rows, lanes):
    parts = problem(rows)
    value, slope = jax.value_and_grad(lambda p: log_normaliser(*noisy(**p), lanes))(parts)
    expected, its_slope = jax.value_and_grad(lambda p: log_normaliser(*doubled(**p), 1))(parts)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for name in parts:
        size = np.max(np.abs(its_slope[name]))
        np.testing.assert_allclose(slope[name], its_slope[name], atol=1e-8 * size, err_msg=name)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("held", [False, True])
def test_outputs_and_what_ties_them_to_state_and_noise(lanes, held):
    parts = problem(4)
    found, log = outputs(*noisy(**parts), lanes, held=held)
    whole, expected = outputs(*doubled(**parts), 1)
    np.testing.assert_allclose(log, expected, rtol=1e-10)
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-9)
    np.testing.assert_allclose(found.var, whole.var, atol=1e-9)
    np.testing.assert_allclose(found.mixed, whole.mixed[:D], atol=1e-9)
    np.testing.assert_allclose(found.cross, whole.cross[:D], atol=1e-9)
    # The noise is known by way of the score of f and the later information.
    K, L, precision = parts["K"], jnp.pad(dense(parts["L"]), [(0, 0), (0, 0), (0, 1)]), parts["precision"]
    score = parts["shift"] - jnp.einsum("lmn,mn->ln", precision, found.mean)
    e = jnp.einsum("lin,ln->in", K, score) + jnp.einsum("jin,jn->in", L, found.r)
    left = jnp.eye(4)[..., None] - jnp.einsum("lkn,kmn->lmn", precision, found.var)
    cross = jnp.einsum("lin,lmn->imn", K, left) - jnp.einsum("jin,jmn->imn", L, found.Z)
    np.testing.assert_allclose(e, whole.mixed[D:], atol=1e-9)
    np.testing.assert_allclose(cross, whole.cross[D:], atol=1e-9)


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_posterior_of_the_states(lanes):
    parts = problem(4)
    found, _ = posterior(*noisy(**parts), lanes)
    whole, _ = posterior(*doubled(**parts), 1)
    np.testing.assert_allclose(found.m, whole.m[:D], atol=1e-9)
    np.testing.assert_allclose(found.P, whole.P[:D, :D], atol=1e-9)
    np.testing.assert_allclose(found.r, whole.r[:D], atol=1e-9)
    np.testing.assert_allclose(found.N, whole.N[:D, :D], atol=1e-9)


def test_the_gradient_can_be_differentiated_again():
    parts = problem(3)
    along = jax.tree.map(lambda x: jnp.asarray(np.random.default_rng(1).normal(size=x.shape)), parts)
    along["precision"] = along["precision"] + jnp.swapaxes(along["precision"], 0, 1)
    curve = lambda of: jax.jvp(jax.grad(lambda p: log_normaliser(*of(**p), 1)), (parts,), (along,))[1]  # noqa: E731
    for name, value in curve(noisy).items():
        expected = curve(doubled)[name]
        np.testing.assert_allclose(value, expected, atol=1e-7 * np.max(np.abs(expected)), err_msg=name)


MANY_SYSTEMS = """
import jax, numpy as np
from thiele.chain import matrices
with jax.enable_x64(True):
    rng = np.random.default_rng(0)
    G, h = rng.normal(size=(4000, 9, 9)), rng.normal(size=(4000, 9, 1))
    G = G @ np.swapaxes(G, 1, 2)
    Lam = np.broadcast_to(np.eye(9), G.shape)
    _, found, _ = jax.jit(jax.vmap(matrices.resolve))(Lam, G, h)
    np.testing.assert_allclose(found, np.linalg.solve(np.eye(9) + G, h), atol=1e-10)
"""


def test_thousands_of_systems_are_solved_without_waiting_for_each_other():
    subprocess.run([sys.executable, "-c", MANY_SYSTEMS], check=True, timeout=100)


@pytest.mark.parametrize("sharpness", [1.0, 1e6, 1e10])
def test_a_shift_is_shrunk_to_full_precision(sharpness):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    G, Lam, h = root @ root.T, sharpness * np.diag(rng.random(5)), sharpness * rng.normal(size=(5, 1))
    _, found, _ = matrices.resolve(jnp.asarray(Lam), jnp.asarray(G), jnp.asarray(h))
    np.testing.assert_allclose(found, np.linalg.solve(np.eye(5) + Lam @ G, h), rtol=1e-12)
