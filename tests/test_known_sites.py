"""Where log p(y | f) is a parabola, sites are known without sweeps, and the energy is the collapsed bound."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from thiele import dense_sparse, search, training
from thiele.approximate import knows_sites, setting
from thiele.inference import infer
from thiele.own_sites import Grouped
from thiele.parameters import unconstrain
from thiele.rules.base import Cavity, Marginal
from thiele.tied import Tied


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


Z = np.linspace(0.7, 9.5, 25)


def seasonal():
    return th.Matern32(variance=0.8, lengthscale=2.0) + th.QuasiPeriodic(0.5, 1.2, 1.7, 6.0, harmonics=3)


def two_outputs():
    return th.Coregional(th.Matern52(th.fixed(1.0), 2.0), loadings=[[1.0], [0.6]])


def in_space():
    points = np.linspace(-2.0, 2.0, 4)[:, None]
    return th.SpaceTime(th.Matern32(lengthscale=1.5), th.spatial.Matern32(lengthscale=1.2), inducing=points)


MODELS = {
    "sites of segments": lambda: th.GP(th.Matern52(lengthscale=1.5), th.Gaussian(0.09), inducing=Z),
    "sites of data": lambda: th.GP(seasonal(), th.Gaussian(0.09), inducing=Z),
    "logarithms": lambda: th.GP(seasonal(), th.LogNormal(0.09), inducing=Z),
    "logarithms, full": lambda: th.GP(seasonal(), th.LogNormal(0.09)),
    "outputs": lambda: th.GP(two_outputs(), th.EachOutput(th.Gaussian(0.09), th.LogNormal(0.2))),
    "outputs, inducing": lambda: th.GP(two_outputs(), th.EachOutput(th.Gaussian(0.09), th.Gaussian(0.3)), inducing=Z),
    "space": lambda: th.GP(in_space(), th.Gaussian(0.09)),
    "space, inducing": lambda: th.GP(in_space(), th.Gaussian(0.09), inducing=Z),
}
OF_TIME = "sites of segments", "sites of data", "logarithms"


def prepared(name):
    """Some times before the first inducing time and after the last, and some values missing."""
    rng = np.random.default_rng(5)
    n = 80
    t = np.sort(rng.uniform(0.0, 10.0, n))
    y = np.exp(np.sin(3.7 * t) + 0.3 * rng.normal(size=n))
    y[[4, 40, 41]] = np.nan
    if "outputs" in name:
        t = np.stack([t, rng.integers(0, 2, n)], axis=1)
    if "space" in name:
        t = np.stack([t, rng.uniform(-2.0, 2.0, n)], axis=1)
    model, series, _, _ = MODELS[name]()._prepared(t, y, {})
    return model, series, search.tied(model, series)


@pytest.mark.parametrize("name", MODELS)
def test_energy_and_sites_are_where_sweeps_converge(name):
    model, _, data = prepared(name)
    at = setting(model, data)
    assert knows_sites(model.rule, at.likelihood)
    swept = jax.jit(lambda at: infer(model.rule, *at, tolerance=1e-12))(at)
    (value, found), _ = training.objective_and_gradient(model, unconstrain(model), data, None)
    assert float(value) == pytest.approx(float(swept.energy), rel=1e-12)
    for mine, theirs in zip(found.sites, swept.sites, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10 * np.max(np.abs(theirs)))
    for mine, theirs in zip(jax.tree.leaves(found.marginals), jax.tree.leaves(swept.marginals), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    assert (int(found.report.sweeps), int(found.report.unconverged)) == (1, 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_a_difference_quotient_with_sites_that_follow(name):
    model, _, data = prepared(name)
    vector = unconstrain(model)
    of_vector = jax.jit(lambda v: training.objective_and_gradient(model, v, data, None))
    (_, gradient), step = of_vector(vector), 1e-5
    for k, slope in enumerate(gradient):
        nudge = step * jnp.eye(len(vector))[k]
        quotient = (of_vector(vector + nudge)[0][0] - of_vector(vector - nudge)[0][0]) / (2.0 * step)
        assert float(slope) == pytest.approx(float(quotient), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", OF_TIME)
def test_the_energy_is_the_collapsed_bound_of_dense_algebra(name):
    """log N(y | 0, W Kuu W' + σ²) − ½ Σ ν / σ², and the densities of logarithms have a factor 1/y."""
    model, series, data = prepared(name)
    assert isinstance(data, Tied if name == "sites of segments" else Grouped)
    seen = np.asarray(series.observed)
    Kuu, W, nu = dense_sparse.conditional(model.kernel.sde(), jnp.asarray(Z), jnp.asarray(series.time[seen]))
    y, noise = np.asarray(series.y)[seen], float(model.likelihood.variance)
    if name == "logarithms":
        y, jacobian = np.log(y), -np.sum(np.log(y))
    else:
        jacobian = 0.0
    cov = W[:, 0] @ Kuu @ W[:, 0].T + noise * np.eye(len(y))
    off = y - float(model.mean.value)
    density = -0.5 * (off @ np.linalg.solve(cov, off) + np.linalg.slogdet(2.0 * np.pi * cov)[1])
    truth = density - 0.5 * np.sum(nu) / noise + jacobian
    assert float(training.log_likelihood(model, data)) == pytest.approx(float(truth), rel=1e-10)


@pytest.mark.parametrize("likelihood", [th.Gaussian(0.4), th.LogNormal(0.4), th.EachOutput(th.Gaussian(0.4))])
def test_a_known_site_is_the_likelihood(likelihood):
    """log p(y | f) less log t(f) is one number for all f, and no q is asked for."""
    y, unknown = jnp.array(0.7), Marginal(jnp.full(1, jnp.nan), jnp.full((1, 1), jnp.nan))
    site, repaired, usable, _ = th.CVI().propose(likelihood, y, unknown, Cavity(unknown, jnp.array(False)))
    f = jnp.linspace(-3.0, 3.0, 7)
    log_site = site.shift[0] * f - 0.5 * site.precision[0, 0] * f**2
    left = jax.vmap(lambda f: likelihood.log_prob(y, f))(f) - log_site
    assert float(jnp.ptp(left)) < 1e-12
    assert (bool(repaired), bool(usable)) == (False, True)


def test_a_fit_sweeps_once_for_each_look_at_the_energy():
    model, series, data = prepared("sites of data")
    looks = search.Search(model, series, np.ones(len(unconstrain(model))))
    found = looks.evaluate(looks.start)
    assert found.sweeps == 1
    assert looks.sites is not None
    sites = training.find_sites(model, data)[1].sites
    np.testing.assert_allclose(looks.sites.shift, sites.shift, rtol=1e-14)


def test_other_rules_and_likelihoods_sweep():
    assert not knows_sites(th.PowerEP(), th.Gaussian())
    assert not knows_sites(th.CVI(), th.Poisson())
    assert not knows_sites(th.CVI(), th.EachOutput(th.Gaussian(), th.Poisson()))


def test_part_of_a_step_leads_part_of_the_way():
    """The paper's schedule with a step of its own: sites move towards the known ones by that share."""
    model, _, data = prepared("sites of data")
    model = dataclasses.replace(model, rule=th.CVI(step=0.25))
    known = training.find_sites(model, data)[1].sites
    nothing = jax.tree.map(jnp.zeros_like, known)
    *_, new, repaired = training.alternate(model, unconstrain(model), data, nothing)
    for mine, aim in zip(new, known, strict=True):
        np.testing.assert_allclose(mine, 0.25 * aim, rtol=1e-12)
    assert int(repaired) == 0
