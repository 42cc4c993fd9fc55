"""Tied sites on inducing states, to convergence, for every arrangement of data and inducing times."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import jit
from tests.tied import KERNEL, ROUGH, assert_close, at_data, chain_of, some_sites, tied
from thiele import dense_sparse as dense
from thiele import inducing
from thiele import likelihoods as th
from thiele.energies import Data, observed
from thiele.inference import infer
from thiele.rules import CVI, PowerEP, Site


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


SIZE = 14


def arrangements():
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 6.0, SIZE))
    t[6] = t[5]
    return {
        "data in every segment": (t, [0.9, 2.2, 3.6, 5.1]),
        "empty segments": (t, [-2.0, -1.0, 7.0, 8.0]),
        "all data in one segment": (t, [-3.0, -1.0, 7.0, 9.0]),
        "all data before the first": (t, [7.0, 7.5, 8.5, 10.0]),
        "all data after the last": (t, [-4.0, -3.0, -1.5, -0.2]),
        "inducing times on data": (t, t[[0, 4, 9, 13]]),
        "all data at one time": (np.full(SIZE, 2.0), [0.9, 1.8, 3.6, 5.1]),
    }


def counts(t, missing=()):
    rng = np.random.default_rng(4)
    y = rng.poisson(np.exp(0.5 + np.sin(t))).astype(float)
    y[list(missing)] = np.nan
    return observed(y, exposure=rng.uniform(0.5, 2.0, t.size))


@functools.cache
def runner(rule):
    def run(z, times, data, sites, sweeps):
        chain = chain_of(KERNEL, z)
        found = infer(rule, th.Poisson(), chain, data, sites, tolerance=1e-10, max_sweeps=sweeps)
        return found, at_data(chain, found.marginals, times)

    return jit(run)


@functools.cache
def dense_runner(rule, in_segments=True):
    """Marginals and energy at the sites of `infer`, and where dense sweeps lead from nothing."""

    def run(z, times, data, sites):
        at = dense.features(KERNEL, z, times, data, in_segments)
        again = dense.infer(rule, th.Poisson(), at, at.empty(), sweeps=300, step=0.5)
        here = again if sites is None else dense.on_states(KERNEL.sde(), z, sites)
        found = [(dense.marginals(at, s), dense.energy(rule, th.Poisson(), at, s)) for s in (here, again)]
        return found, jnp.sum(again.precision, axis=0)

    return jit(run)


def run(rule, t, z, data, sites=None, sweeps=300):
    if sites is None:
        sites = Site(jnp.zeros((len(z) + 1, 4)), jnp.zeros((len(z) + 1, 4, 4)))
    return runner(rule)(jnp.asarray(z, float), jnp.asarray(t), tied(t, data, z), sites, sweeps)


def check_arrangement(rule, name):
    t, z = arrangements()[name]
    data = counts(t, missing=[2])
    found, marginals = run(rule, t, z, data)
    assert found.converged
    (here, fixed), _ = dense_runner(rule)(jnp.asarray(z, float), jnp.asarray(t), data, found.sites)
    assert_close((marginals, found.energy), here)
    assert_close((marginals, found.energy), fixed)


@pytest.mark.parametrize("name", arrangements())
def test_cvi_agrees_with_dense_algebra_wherever_the_inducing_times_are(name):
    check_arrangement(CVI(), name)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [PowerEP(), PowerEP(0.5)], ids=["ep", "power ep 0.5"])
@pytest.mark.parametrize("name", arrangements())
def test_power_ep_agrees_with_dense_algebra_wherever_the_inducing_times_are(name, rule):
    check_arrangement(rule, name)


def test_tied_sites_lose_nothing_under_cvi():
    t, z = arrangements()["data in every segment"]
    data = counts(t, missing=[2])
    found, marginals = run(CVI(), t, z, data)
    (_, untied), _ = dense_runner(CVI(), in_segments=False)(jnp.asarray(z), jnp.asarray(t), data, None)
    assert_close((marginals, found.energy), untied)


def test_missing_data_contribute_nothing():
    t, z = arrangements()["data in every segment"]
    gone = [2, 7, 13]
    data = counts(t, missing=gone)
    one, _ = run(CVI(), t, z, data)
    # Elsewhere, with another stand-in and other covariates.
    moved, exposure = t.copy(), np.array(data.covariates["exposure"])
    moved[gone] += 1e-3
    exposure[gone] = 9.0
    assert np.all(np.diff(moved) >= 0.0)
    other = Data(jnp.where(data.mask, data.y, 77.0), data.mask, {"exposure": jnp.asarray(exposure)})
    two, _ = run(CVI(), moved, z, other)
    assert_close(one.sites, two.sites, rtol=1e-12, atol=1e-12)
    assert_close(one.energy, two.energy, rtol=1e-12)


def test_covariates_reach_every_datum():
    t, z = arrangements()["data in every segment"]
    data = counts(t, missing=[2])
    of_segments = tied(t, data, z)

    @jit
    def found(exposure):
        chain = chain_of(ROUGH, z)
        sites = some_sites(chain, jnp.asarray(t), data.mask)
        q, _ = of_segments.smooth(chain, sites)
        moved = lambda e: eqx.tree_at(lambda d: d.covariates["exposure"], of_segments, e)  # noqa: E731
        slope = jax.grad(lambda e: moved(e).terms(CVI(), th.Poisson(), chain, q, sites)[0])(exposure)
        return slope, at_data(chain, q, jnp.asarray(t))

    exposure = data.covariates["exposure"]
    slope, (mean, var) = found(exposure)
    # d/dx of E[y f − x eᶠ + y log x].
    expected = data.y / exposure - jnp.exp(mean[:, 0] + 0.5 * var[:, 0, 0])
    np.testing.assert_allclose(slope, jnp.where(data.mask, expected, 0.0), rtol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_elbo_never_falls_under_cvi(scale):
    # From sites that are far too sharp and in the wrong place.
    t, z = arrangements()["data in every segment"]
    data = counts(t)
    sites = jit(lambda: some_sites(chain_of(KERNEL, z), jnp.asarray(t), data.mask))()
    start = Site(-scale * jnp.abs(sites.shift), scale * sites.precision)
    values = np.array([run(CVI(), t, z, data, start, sweeps=k)[0].energy for k in range(1, 15)])
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[1:]))
    assert values[-1] > values[0] + 1.0


@pytest.mark.slow
def test_a_small_power_tends_to_cvi():
    t, z = arrangements()["data in every segment"]
    data = counts(t)
    cvi, q = run(CVI(), t, z, data)
    near, q_near = run(PowerEP(0.01), t, z, data)
    assert_close((near.energy, q_near), (cvi.energy, q), rtol=1e-2, atol=1e-2)
    nearer, q_nearer = run(PowerEP(0.001), t, z, data)
    assert_close((nearer.energy, q_nearer), (cvi.energy, q), rtol=1e-3, atol=1e-3)


def test_many_groups_of_tiles_are_one_group(monkeypatch):
    t, z = arrangements()["data in every segment"]
    data = counts(t, missing=[2])

    def value_and_more():
        of_segments = tied(t, data, z)

        def value(kernel):
            chain = chain_of(kernel, z)
            sites = some_sites(chain, jnp.asarray(t), data.mask)
            q, _ = of_segments.smooth(chain, sites)
            found = of_segments.visit(CVI(), th.Poisson(), chain, q, sites)
            return found.terms, found

        whole = jit(jax.value_and_grad(value, has_aux=True))(ROUGH)
        return of_segments.segment.shape[0], whole

    groups, one = value_and_more()
    assert groups == 1
    monkeypatch.setattr(inducing, "DATA_AT_ONCE", 3)
    groups, many = value_and_more()
    assert groups > 3
    assert_close(one, many, rtol=1e-12, atol=1e-12)
