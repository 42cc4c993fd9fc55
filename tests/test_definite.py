"""The nearest positive semidefinite matrix, of one and of many, against LAPACK's eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele import definite
from thiele.definite import by_rotations, semidefinite

MANY = 1500


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def matrices(n):
    rng = np.random.default_rng(n)
    G = rng.normal(size=(MANY, n, n))
    symmetric = G + np.swapaxes(G, 1, 2)
    Q, _ = np.linalg.qr(G)
    turned = lambda values: np.einsum("kij,kj,klj->kil", Q, values, Q)  # noqa: E731
    D, a, b = 10.0 ** rng.uniform(-6.0, 6.0, (MANY, n)), *rng.normal(size=(2, MANY, n))
    sign = rng.choice([-1.0, 1.0], (MANY, n))
    return {
        "of one size": symmetric,
        "eigenvalues of very different size": turned(sign * 10.0 ** rng.uniform(-12.0, 0.0, (MANY, n))),
        "rows of very different size": D[:, :, None] * symmetric * D[:, None],
        "eigenvalues alike": turned(rng.choice([-1.0, 0.0, 1.0], (MANY, n))),
        "low rank": a[:, :, None] * b[:, None] + b[:, :, None] * a[:, None],
        "diagonal": np.eye(n) * sign[:, None],
        "zero": np.zeros((MANY, n, n)),
        "tiny": 1e-200 * symmetric,
        "huge": 1e200 * symmetric,
    }


def by_lapack(A):
    values, vectors = np.linalg.eigh(A)
    return np.einsum("kij,kj,klj->kil", vectors, np.maximum(values, 0.0), vectors), values


@pytest.mark.parametrize("n", [3, 6, 8])
def test_rotations_find_what_lapack_finds(n):
    run = jax.jit(by_rotations)
    for name, A in matrices(n).items():
        clipped, least, most = run(jnp.asarray(A))
        expected, values = by_lapack(A)
        size = np.max(np.abs(values), axis=1)
        for found, wanted in (
            (clipped, expected),
            (least, values[:, 0]),
            (most, size),
        ):
            error = np.abs(np.asarray(found) - wanted).reshape(MANY, -1).max(axis=1)
            assert np.all(error <= 1e-13 * size), name


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_many_are_as_each_by_itself(n):
    A = next(iter(matrices(n).values()))[:1200].reshape(3, 400, n, n)
    many, negative = jax.jit(jax.vmap(jax.vmap(semidefinite)))(jnp.asarray(A))
    expected, values = by_lapack(A.reshape(-1, n, n))
    np.testing.assert_allclose(many.reshape(-1, n, n), expected, atol=1e-12)
    np.testing.assert_array_equal(negative.reshape(-1), values[:, 0] < 0.0)
    one, is_negative = semidefinite(jnp.asarray(A[1, 2]))
    np.testing.assert_allclose(one, expected[402], atol=1e-12)
    assert bool(is_negative) == (values[402, 0] < 0.0)


def test_what_is_semidefinite_but_for_rounding_stays_as_it_is():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(MANY, 6, 2))
    A = g @ np.swapaxes(g, 1, 2)
    found, negative = jax.jit(jax.vmap(semidefinite))(jnp.asarray(A))
    np.testing.assert_array_equal(found, 0.5 * (A + np.swapaxes(A, 1, 2)))
    assert not np.any(negative)


def test_what_is_no_number_is_said_so_and_harms_no_other():
    A = matrices(3)["of one size"].copy()
    A[7] = np.nan
    A[70, 1, 1] = np.inf
    found, _ = jax.jit(jax.vmap(semidefinite))(jnp.asarray(A))
    for k in (7, 70):
        assert not np.all(np.isfinite(found[k]))
    others = ~np.isin(np.arange(MANY), (7, 70))
    np.testing.assert_allclose(found[others], by_lapack(A[others])[0], atol=1e-12)


@pytest.mark.parametrize("many", [3, MANY], ids=["few", "many"])
def test_the_derivative_is_a_difference_quotient(many):
    rng = np.random.default_rng(1)
    A = matrices(4)["of one size"][:many]
    A[0] = np.diag([1.0, 1.0, -1.0, -1.0])  # eigenvalues alike
    A[1] = np.eye(4)  # nothing to set to zero
    step = rng.normal(size=A.shape)
    found = lambda A: jax.vmap(lambda X: semidefinite(X)[0])(A)  # noqa: E731
    _, change = jax.jit(lambda A: jax.jvp(found, (A,), (jnp.asarray(step),)))(jnp.asarray(A))
    h = 1e-6
    quotient = (by_lapack(_symmetric(A + h * step))[0] - by_lapack(_symmetric(A - h * step))[0]) / (2 * h)
    # An eigenvalue that changes its sign within the step has no derivative that a quotient would show.
    clear = np.min(np.abs(np.linalg.eigvalsh(_symmetric(A))), axis=1) > 1e-3
    assert np.sum(clear) > 0.9 * many
    np.testing.assert_allclose(change[clear], quotient[clear], atol=1e-6)


def _symmetric(X):
    return 0.5 * (X + np.swapaxes(X, 1, 2))


def test_the_rotations_are_used_where_there_are_many(monkeypatch):
    used = []
    monkeypatch.setattr(definite, "by_rotations", lambda A: used.append(A.shape) or jax.vmap(definite._clipped.fun)(A))
    jax.vmap(jax.vmap(semidefinite))(jnp.zeros((300, 4, 5, 5)))
    jax.vmap(semidefinite)(jnp.zeros((1000, 5, 5)))
    jax.vmap(semidefinite)(jnp.zeros((5000, 2, 2)))
    assert used == ([(1200, 5, 5)] if jax.default_backend() == "cpu" else [])
