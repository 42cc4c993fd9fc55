"""Inducing values: the sparse GP of the textbooks, against its closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from thiele.inference import ascend, begin_ascent
from thiele.rules import VGP, Site

T = np.sort(np.random.default_rng(1).uniform(0.0, 10.0, 25))
Y = np.sin(T) + 0.2 * np.random.default_rng(2).standard_normal(T.size)
Z = np.array([1.0, 3.0, 5.5, 8.0])
NEW = np.array([-1.0, 3.0, 4.2, 12.0])
KERNEL = th.Matern52(1.3, 2.0)
NOISE = 0.05


@pytest.fixture(scope="module")
def fit():
    return th.GP(KERNEL, th.Gaussian(NOISE), inducing=th.Inducing(times=tuple(Z), of="values"), mean=0.0).condition(
        T, Y
    )


def gram(t, s):
    return np.asarray(KERNEL(t[:, None], s[None, :]))


def test_the_objective_is_the_collapsed_bound(fit):
    Kuu, Kuf = gram(Z, Z), gram(Z, T)
    Q = Kuf.T @ np.linalg.solve(Kuu, Kuf)
    S = Q + NOISE * np.eye(T.size)
    bound = -0.5 * (Y @ np.linalg.solve(S, Y) + np.linalg.slogdet(2 * np.pi * S)[1])
    bound -= 0.5 / NOISE * (T.size * 1.3 - np.trace(Q))
    np.testing.assert_allclose(fit.objective, bound, rtol=1e-7)


def test_predictions_are_those_of_the_textbook(fit):
    Kuu, Kuf, Kun = gram(Z, Z), gram(Z, T), gram(Z, NEW)
    A = Kuu + Kuf @ Kuf.T / NOISE
    mean = Kun.T @ np.linalg.solve(A, Kuf @ Y) / NOISE
    var = 1.3 - np.einsum("in,in->n", Kun, np.linalg.solve(Kuu, Kun) - np.linalg.solve(A, Kun))
    p = fit.predict(NEW)
    np.testing.assert_allclose(p.mean, mean, atol=1e-7)
    np.testing.assert_allclose(p.var, var, atol=1e-7)


def test_joint_draws_have_the_moments_of_the_posterior(fit):
    p, draws = fit.predict(NEW), fit.sample(NEW, 20_000, key=1)
    sd = np.sqrt(p.var)
    np.testing.assert_allclose(draws.mean(0), p.mean, atol=0.03 * sd.max())
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.03)


def test_states_tell_more_than_values_at_the_same_times(fit):
    states = th.GP(KERNEL, th.Gaussian(NOISE), inducing=Z, mean=0.0).condition(T, Y)
    assert states.objective > fit.objective + 1.0


def test_components_need_states(fit):
    with pytest.raises(ValueError, match="components need inducing states"):
        fit.components(NEW)


@pytest.mark.parametrize(("sites", "columns", "share"), [(1, 6, 1.0), (1, 200, 0.2), (7, 200, 1.0)])
def test_a_root_that_all_data_share_moves_by_its_norm(sites, columns, share):
    with jax.enable_x64(True):
        start = begin_ascent(VGP(step=0.1), Site(jnp.zeros((sites, columns)), jnp.zeros((sites, columns, columns))))
        slope = jax.tree.map(jnp.ones_like, start.factors)
        moved = ascend(VGP(step=0.1), start, slope)
        change = jax.tree.map(jnp.subtract, moved.factors, start.factors)
    np.testing.assert_allclose(change.shift, 0.1, rtol=1e-6)
    np.testing.assert_allclose(change.root, 0.1 * share, rtol=1e-6)
