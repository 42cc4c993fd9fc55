"""Samples, by their moments: tolerances are six standard errors of a Monte Carlo mean."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.chain import reference
from tests.chain.problems import Case, build, deterministic, without_information
from tests.chain.runs import quick_jit
from thiele.chain import Posterior, posterior, sample, sample_prior
from thiele.chain.square_root import semidefinite_root

COUNT = 20_000
CASE = Case(n=4, blocks=(2, 1))
BUTS = {
    "all known": None,
    "deterministic": deterministic,
    "nothing known": without_information(0, 1, 2, 3),
}
H = build(CASE)[1].H


@partial(quick_jit, static_argnames=("count", "form"))
def draw(chain, info, key, count=COUNT, form="covariance"):
    return sample(chain, info._replace(H=H), key, count, lanes=1, form=form)


def assert_moments(draws, mean, cov):
    count = draws.shape[0]
    deviation = np.sqrt(np.diagonal(cov))
    sizes = np.outer(deviation, deviation)
    assert np.isfinite(draws).all()
    assert (np.abs(draws.mean(0) - mean) <= 6 * deviation / np.sqrt(count) + 1e-6).all()
    assert (np.abs(np.cov(draws.T) - cov) <= 6 * sizes * np.sqrt(2 / count) + 1e-6).all()


def flat(draws):
    """(count, d, n) → (count, n d), in the order of the dense reference."""
    return np.moveaxis(np.asarray(draws, float), 1, 2).reshape(draws.shape[0], -1)


def posterior_of(chain, info):
    at = reference.joint(chain, info)
    KH = at.cov @ at.H.T
    gain = jnp.linalg.solve(jnp.eye(KH.shape[1]) + at.precision @ at.H @ KH, at.precision)
    pull = jnp.linalg.solve(jnp.eye(KH.shape[1]) + at.precision @ at.H @ KH, at.shift)
    return at.mean + KH @ (gain @ (at.centre - at.H @ at.mean) + pull), at.cov - KH @ gain @ KH.T


@pytest.mark.parametrize("but", BUTS.values(), ids=BUTS)
@pytest.mark.parametrize("form", ["covariance", "square_root"])
def test_samples_have_the_moments_of_the_joint_posterior(but, form):
    chain, info = build(CASE._replace(but=but))
    draws = draw(chain, info._replace(H=None), jax.random.key(0), form=form)
    assert_moments(flat(draws), *posterior_of(chain, info))


def test_prior_samples_have_the_moments_of_the_chain():
    chain, _ = build(CASE)
    assert_moments(flat(sample_prior(chain, jax.random.key(1), COUNT)), *reference.prior(chain, CASE.n))


def test_one_state_can_be_sampled():
    case = Case(n=1)
    chain, info = build(case)
    assert_moments(flat(sample(chain, info, jax.random.key(2), COUNT)), *posterior_of(chain, info))


def test_single_precision_can_be_sampled():
    chain, info = jax.tree.map(lambda x: x.astype(jnp.float32), build(CASE)[0]), build(CASE)[1]
    info = jax.tree.map(lambda x: x.astype(jnp.float32), info._replace(H=None))
    draws = draw(chain, info, jax.random.key(3), form=None)
    assert draws.dtype == jnp.float32
    assert_moments(flat(draws), *posterior_of(*build(CASE)))


@pytest.mark.parametrize("form", ["covariance", "square_root"])
@pytest.mark.parametrize("case", [CASE, Case(n=3, blocks=(9,), outputs=3)], ids=["small", "large"])
def test_draws_share_their_covariances(case, form):
    chain, info = build(case)

    def found(shift):
        return posterior(chain, info._replace(shift=shift), 1, form, mapped=True)[0]

    # An output that is not mapped over must not depend on the draw, or this raises.
    shared = Posterior(m=0, P=None, r=0, N=None, r0=0, N0=None)
    jax.eval_shape(jax.vmap(found, out_axes=shared), jnp.stack([info.shift] * 3))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_root_of_a_semidefinite_matrix_is_exact_to_rounding_and_keeps_zeros(dtype):
    column = jnp.asarray([[1.0, 1e-8, 0.0, 3e4]], dtype)
    blocks = jnp.stack([column.T @ column, jnp.zeros((4, 4), dtype), jnp.diag(column[0] ** 2)])[..., None]
    root = semidefinite_root(blocks)[..., 0]
    scale = jnp.outer(column, column)
    assert (jnp.abs(root @ root.swapaxes(1, 2) - blocks[..., 0]) <= 8 * jnp.finfo(dtype).eps * scale).all()
    assert (root[1] == 0.0).all()
    assert (root[:, 2] == 0.0).all()


def test_root_of_an_indefinite_matrix_is_finite():
    S = jnp.asarray([[1.0, 2.0, -1.0], [2.0, 1.0, 0.5], [-1.0, 0.5, -3.0]])
    assert jnp.isfinite(semidefinite_root(S[None])).all()
