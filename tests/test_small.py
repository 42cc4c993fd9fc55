"""Matrices of a few rows, number by number, against the library that serves the larger ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele import small


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def matrices(n, count=50):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(count, n, n))
    # Some that need their rows exchanged.
    A[::3, 0, 0] = 0.0
    return jnp.asarray(A)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_solve(n, monkeypatch):
    monkeypatch.setattr(small, "LARGEST", 4)
    A, R = matrices(n), jnp.asarray(np.random.default_rng(0).normal(size=(50, n, 3)))
    A = A + jnp.eye(n) * (n == 1)
    found, log_det = jax.vmap(small.solve)(A, R)
    np.testing.assert_allclose(found, np.linalg.solve(A, R), rtol=1e-9)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_cholesky(n, monkeypatch):
    monkeypatch.setattr(small, "LARGEST", 4)
    A = matrices(n) @ jnp.swapaxes(matrices(n), 1, 2) + 1e-3 * jnp.eye(n)
    np.testing.assert_allclose(jax.vmap(small.cholesky)(A), np.linalg.cholesky(A), rtol=1e-9, atol=1e-12)
    assert np.isnan(small.cholesky(-jnp.eye(n))).any()


@pytest.mark.parametrize("n", [2, 3])
def test_eigenvalues(n):
    A = matrices(n) + jnp.swapaxes(matrices(n), 1, 2)
    special = [np.zeros((2, 2)), np.eye(2), np.diag([1.0, 3.0]), np.diag([3.0, 1.0]), np.ones((2, 2)), -np.ones((2, 2))]
    A = jnp.concatenate([A, jnp.asarray(special)]) if n == 2 else A
    values, vectors = jax.vmap(small.eigh)(A)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(vectors * values[:, None] @ jnp.swapaxes(vectors, 1, 2), A, atol=1e-13)
    np.testing.assert_allclose(jnp.swapaxes(vectors, 1, 2) @ vectors, np.tile(np.eye(n), (len(A), 1, 1)), atol=1e-14)


@pytest.mark.parametrize("A", [np.zeros((2, 2)), np.eye(2), np.diag([1.0, 2.0])], ids=["zero", "equal", "diagonal"])
def test_the_larger_eigenvalue_has_a_finite_derivative(A):
    def largest(A):
        return small.eigh(0.5 * (A + A.T))[0][1]

    slope = jax.grad(largest)(jnp.asarray(A))
    assert np.all(np.isfinite(slope))
    if A[0, 0] != A[1, 1]:
        np.testing.assert_allclose(slope, np.diag([0.0, 1.0]), atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_inverses_of_positive_definite_matrices(n):
    rng = np.random.default_rng(n)
    with jax.enable_x64(True):
        root = rng.normal(size=(50, n, n))
        A = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(n)
        found, log_det = jax.vmap(small.inverse)(jnp.asarray(A))
        np.testing.assert_allclose(found @ A, np.broadcast_to(np.eye(n), A.shape), atol=1e-9)
        np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], atol=1e-10)
        assert np.all(np.isnan(small.inverse(jnp.asarray(-A[0]))[0]))


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_products_of_many(k):
    rng = np.random.default_rng(k)
    X, Y = jnp.asarray(rng.normal(size=(7, 2, 4, k))), jnp.asarray(rng.normal(size=(7, 2, k, 3)))
    np.testing.assert_allclose(small.product(X, Y), X @ Y, atol=1e-12)
