"""Λ = C D Cᵀ and what is resolved by it, against numpy with residuals in extended precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.chain import matrices
from thiele.chain.roots import resolve, root

MANY = 400


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def trailing(X):
    return jnp.asarray(np.moveaxis(X, 0, -1))


def squares(rng, size, rank, spread=0.0):
    """Positive semidefinite matrices, whose factors have columns of very different sizes."""
    factors = rng.standard_normal((MANY, size, rank)) * 10.0 ** rng.uniform(-spread, spread, (MANY, 1, rank))
    return factors @ np.swapaxes(factors, -1, -2)


PRECISIONS = {
    "full rank": lambda rng: squares(rng, 6, 6, 2.0),
    "low rank": lambda rng: squares(rng, 6, 2),
    "rows of very different sizes": lambda rng: (lambda D: D[:, :, None] * squares(rng, 5, 5) * D[:, None])(
        10.0 ** rng.uniform(-8.0, 8.0, (MANY, 5))
    ),
    "some outputs not observed": lambda rng: np.pad(squares(rng, 3, 3), [(0, 0), (1, 2), (1, 2)]),
    "nothing observed": lambda rng: np.zeros((MANY, 4, 4)),
    "diagonal, of either sign": lambda rng: (
        np.eye(7) * rng.normal(size=(MANY, 1, 7)) * (rng.random((MANY, 1, 7)) < 0.8)
    ),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_root_is_of_the_matrix(name):
    Lam = PRECISIONS[name](np.random.default_rng(0))
    C, D = (np.moveaxis(x, -1, 0) for x in root(trailing(Lam)))
    diagonal = np.sqrt(np.abs(np.einsum("nii->ni", Lam)))
    error = np.abs(C @ (D * np.swapaxes(C, -1, -2)) - Lam)
    # Entry by entry, as the Cauchy-Schwarz inequality bounds them.
    assert np.all(error <= 1e-13 * diagonal[:, :, None] * diagonal[:, None])


@pytest.mark.parametrize("Lam", [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.5, -1.0]]])
def test_a_matrix_that_is_neither_semidefinite_nor_diagonal_is_never_resolved_wrongly(Lam):
    C, D = root(jnp.asarray(Lam))
    exact = np.allclose(C @ (D * C.T), np.asarray(Lam), atol=1e-13)
    assert exact or np.all(np.isnan(D))


def refined(A, R):
    """A⁻¹ R, where rounding of the elimination is taken out by residuals in extended precision."""
    found = np.linalg.solve(A, R).astype(np.longdouble)
    for _ in range(4):
        rest = R - np.einsum("nij,njk->nik", A.astype(np.longdouble), found)
        found = found + np.linalg.solve(A, rest.astype(float))
    return found.astype(float)


@pytest.mark.parametrize("size", [4, 6, 8])
def test_information_and_spread_are_resolved(size):
    rng = np.random.default_rng(1)
    Lam, G, h = squares(rng, size, size, 1.0), squares(rng, size, size, 1.0), rng.standard_normal((MANY, size, 1))
    spread = np.eye(size) + Lam @ G
    # Elimination would divide by these if it did not look for pivots.
    assert np.min(spread[:, 0, 0]) < 0.0
    M, x, log_det = resolve(root(trailing(Lam)), trailing(Lam), trailing(G), trailing(h))
    for found, wanted in ((M, refined(spread, Lam)), (x, refined(spread, h))):
        error = np.linalg.norm(np.moveaxis(found, -1, 0) - wanted, axis=(1, 2))
        assert np.max(error / np.linalg.norm(wanted, axis=(1, 2))) < 1e-8
    np.testing.assert_allclose(log_det, np.linalg.slogdet(spread)[1], rtol=1e-9)


def test_sharp_information_loses_no_digits():
    rng = np.random.default_rng(2)
    noise = 10.0 ** rng.uniform(-12.0, 0.0, (MANY, 5))
    Lam, G, h = np.eye(5) / noise[:, None], squares(rng, 5, 5), rng.standard_normal((MANY, 5, 1))
    # (I + Λ G)⁻¹ Λ = (G + Λ⁻¹)⁻¹.
    M, x, _ = resolve(root(trailing(Lam)), trailing(Lam), trailing(G), trailing(h))
    wanted = refined(G + np.eye(5) * noise[:, None], np.concatenate([np.eye(5) + 0 * G, noise[..., None] * h], axis=-1))
    condition = np.linalg.cond(G + np.eye(5) * noise[:, None])
    # B Λ has them all. B h is corrected twice, and each time all but so much of what is left is taken out.
    left = np.finfo(float).eps * np.linalg.norm(Lam @ G, 2, axis=(1, 2)) * condition
    for found, exact, more in ((M, wanted[..., :5], 0.0), (x, wanted[..., 5:], left**3)):
        error = np.linalg.norm(np.moveaxis(found, -1, 0) - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))
        assert np.all(error < 1e-14 * condition + more)


def test_derivatives_are_those_of_elimination():
    rng = np.random.default_rng(3)
    # Steps towards other such matrices, from some of low rank: where these have no root that could be differentiated.
    point = squares(rng, 5, 3), squares(rng, 5, 5), rng.standard_normal((MANY, 5, 1))
    step = squares(rng, 5, 5), squares(rng, 5, 5), rng.standard_normal((MANY, 5, 1))
    by_elimination = jax.vmap(matrices._resolved, in_axes=-1, out_axes=-1)

    def by_root(Lam, G, h):
        return resolve(jax.lax.stop_gradient(root(Lam)), Lam, G, h)

    def second(function):
        slope = lambda *x: jax.jvp(function, x, tuple(map(trailing, step)))[1]  # noqa: E731
        return jax.jvp(slope, tuple(map(trailing, point)), tuple(map(trailing, step)))

    for found, wanted in zip(jax.tree.leaves(second(by_root)), jax.tree.leaves(second(by_elimination)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7 * np.max(np.abs(wanted)))
