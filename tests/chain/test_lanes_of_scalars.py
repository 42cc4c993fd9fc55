"""Small systems with every entry written out, against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.chain import lanes_of_scalars as alg

LANES = 500


def entries(X):
    return {(i, j): jnp.asarray(X[:, i, j]) for i in range(X.shape[1]) for j in range(X.shape[2])}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_information_and_spread_are_resolved_whatever_their_product_looks_like(size):
    rng = np.random.default_rng(4)
    # Strong and opposed correlations make diagonal entries of I + Λ G negative, although both are positive definite.
    roots = rng.standard_normal((2, LANES, size, size)) * 10.0 ** rng.uniform(-1.5, 1.5, (2, LANES, 1, 1))
    Lam, G = roots @ np.swapaxes(roots, -1, -2)
    h = rng.standard_normal((LANES, size, 1))
    spread = np.eye(size) + Lam @ G
    assert size == 1 or np.min(spread[:, 0, 0]) < -1.0
    with jax.enable_x64(True):
        BLam, Bh, log_det = alg.resolve(entries(Lam), entries(G), entries(h))
    wanted = np.linalg.solve(spread, np.concatenate([Lam, h], axis=-1))
    scale = np.linalg.norm(wanted, axis=(1, 2))
    # Of three, numpy's elimination is off by up to 2e-9 from exact arithmetic, the closed form by 1e-11.
    tolerance = 1e-8 if size == 3 else 1e-10
    for (i, j), value in {**BLam, **{(i, size): x for (i, _), x in Bh.items()}}.items():
        assert np.max(np.abs(value - wanted[:, i, j]) / scale) < tolerance
    np.testing.assert_allclose(log_det, np.linalg.slogdet(spread)[1], rtol=tolerance, atol=tolerance)


def test_more_outputs_are_refused():
    four = np.broadcast_to(np.eye(4), (4, 4, 4))
    with pytest.raises(NotImplementedError, match="at most three outputs, got 4"):
        alg.resolve(entries(four), entries(four), None)
