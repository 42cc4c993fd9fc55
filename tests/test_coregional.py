"""Several outputs that share functions of time: against a dense GP with the same covariance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from thiele import dense_sites
from thiele.energies import observed
from thiele.likelihoods import Shifted

RNG = np.random.default_rng(8)
LOADINGS = np.array([[1.0, 0.2], [0.7, -0.8], [-0.5, 1.1]])
KERNEL = th.Coregional((th.Matern32(1.0, 1.5), th.Matern52(1.0, 0.7)), LOADINGS)
# Outputs at different times; the first two share some.
INPUTS = np.concatenate(
    [np.column_stack([np.round(RNG.uniform(0, 6, n), 1), np.full(n, p)]) for p, n in enumerate((14, 11, 8))]
)
F = np.sin(INPUTS[:, 0] + INPUTS[:, 1])
NEW = np.array([[0.5, 0], [0.5, 1], [0.5, 2], [7.0, 1], [-0.3, 2]])
LIKELIHOOD = th.EachOutput(th.Gaussian(0.1), th.Poisson(), th.Beta(5.0))
MEAN = np.array([0.5, -0.2, 0.1])
RANDOM = (F + 0.3 * RNG.standard_normal(len(F)), RNG.poisson(np.exp(F)), RNG.beta(3, 2, len(F)))
Y = np.choose(INPUTS[:, 1].astype(int), RANDOM)
ENDS = np.unique(INPUTS[:, 0])


@pytest.fixture(scope="module")
def truth():
    order = np.argsort(INPUTS[:, 0], kind="stable")
    with jax.enable_x64(True):

        @jax.jit
        def found(X, new):
            data, K = observed(Y[order], output=X[:, 1]), dense_sites.gram(KERNEL, X)
            shifted = Shifted(LIKELIHOOD, jnp.asarray(MEAN), outputs=3)
            none = th.rules.Site(jnp.zeros((len(X), 1)), jnp.zeros((len(X), 1, 1)))
            sites = dense_sites.infer(th.CVI(), shifted, K, data, none, sweeps=200, step=0.5)
            mean, _, h, Lam = dense_sites.joint(K, data, sites)
            cross = KERNEL(new[:, None], X[None])
            return dense_sites.energy(th.CVI(), shifted, K, data, sites), cross @ (h - Lam @ mean)

        return [np.asarray(x) for x in found(jnp.asarray(INPUTS[order]), jnp.asarray(NEW))]


@pytest.mark.parametrize("inducing", [None, ENDS], ids=["a state at each time", "inducing times on them"])
def test_outputs_of_three_kinds_at_different_times_are_those_of_dense_algebra(inducing, truth):
    energy, mean = truth
    fit = th.GP(KERNEL, LIKELIHOOD, mean=MEAN, inducing=inducing).condition(INPUTS, Y)
    np.testing.assert_allclose(fit.objective, energy, rtol=1e-8)
    p = fit.predict(NEW)
    np.testing.assert_allclose(p.mean, mean + MEAN[NEW[:, 1].astype(int)], atol=1e-6)
    assert np.all((p.y_mean[[2, 4]] > 0) & (p.y_mean[[2, 4]] < 1))
    assert np.all(np.isfinite(fit.log_density(NEW, [0.3, 2.0, 0.4, 1.0, 0.9])))


def test_mixtures_of_processes_in_space_are_those_of_dense_algebra():
    points = np.array([[-1.0], [0.0], [1.0]])
    space = th.SpaceTime(th.Matern32(1.0, 1.5), th.spatial.Matern32(lengthscale=1.2), inducing=points)
    kernel = th.Coregional((space, th.Matern52(1.0, 0.7)), LOADINGS[:2])
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.uniform(0, 4, 24), points[rng.integers(0, 3, 24), 0], rng.integers(0, 2, 24)])
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(24)
    fit = th.GP(kernel, th.Gaussian(0.3)).condition(X, y)
    with jax.enable_x64(True):
        C = np.asarray(kernel(X[:, None], X[None])) + 0.3 * np.eye(24)
    exact = -0.5 * y @ np.linalg.solve(C, y) - 0.5 * np.linalg.slogdet(2 * np.pi * C)[1]
    np.testing.assert_allclose(fit.objective, exact, rtol=1e-9)


def test_a_fit_finds_how_outputs_hang_together_and_fills_in_what_is_missing():
    rng = np.random.default_rng(1)
    t = np.linspace(0, 10, 60)
    common = np.sin(t)
    first = np.column_stack([t, np.zeros(60)])
    second = np.column_stack([t, np.ones(60)])
    X, y = np.concatenate([first, second]), np.concatenate([common, 5.0 - 2.0 * common])
    y = y + 0.05 * rng.standard_normal(120)
    hidden = (X[:, 1] == 1) & (X[:, 0] > 4) & (X[:, 0] < 7)
    kernel = th.Coregional(th.Matern52(th.fixed(1.0), 1.5), [[1.0], [0.5]])
    fit = th.GP(kernel, th.EachOutput(th.Gaussian(0.1), th.Gaussian(0.1))).fit(X, np.where(hidden, np.nan, y))
    a = fit.kernel.loadings[:, 0]
    np.testing.assert_allclose(a[1] / a[0], -2.0, atol=0.1)
    assert fit.mean.shape == (2,)
    assert np.sqrt(np.mean((fit.predict(X[hidden]).mean - y[hidden]) ** 2)) < 0.15


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: th.Coregional((th.Matern32(),), np.ones((3, 2))), "`loadings` of Coregional must have shape"),
        (lambda: th.GP(KERNEL, th.Gaussian(), mean=[1.0, 2.0]), "`mean` must be one number, or 3"),
        (lambda: th.GP(KERNEL, th.EachOutput(th.Gaussian())), "a likelihood for each of the 3 output"),
        (lambda: th.GP(KERNEL, LIKELIHOOD).condition(INPUTS + [0.0, 3.0], Y), "an integer from 0 to 2"),
        (lambda: th.GP(KERNEL, LIKELIHOOD).condition(INPUTS, -Y), "output 1: `y` of Poisson"),
        (lambda: th.GP(KERNEL, LIKELIHOOD).condition(INPUTS[:, 0], Y), "must have shape"),
        (lambda: th.EachOutput(th.HeteroscedasticGaussian()), "of one latent function"),
    ],
)
def test_bad_input_is_refused_by_name(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
