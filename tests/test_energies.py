"""Energies and their gradients, against dense algebra, finite differences and exact values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import jit
from tests.rules.registry import RULES, problem
from thiele import dense_sites as dense
from thiele import likelihoods as th
from thiele.energies import Data, converged_energy, energy, observed
from thiele.filtered import filter_energy
from thiele.inference import infer, initial_sites
from thiele.rules import CVI, EKS, Laplace, PowerEP
from thiele.steps import prior_chain


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def exact_log_likelihood(K, noise, y):
    """log N(y; 0, K + noise I) over what was observed."""
    seen = ~np.isnan(y)
    S = np.asarray(K)[np.ix_(seen, seen)] + noise * np.eye(seen.sum())
    return -0.5 * (y[seen] @ np.linalg.solve(S, y[seen]) + np.linalg.slogdet(2 * np.pi * S)[1])


def as_given(data):
    return np.where(data.mask, data.y, np.nan)


@pytest.mark.parametrize("name", ["poisson exp", pytest.param("heteroscedastic", marks=pytest.mark.slow)])
def test_energies_and_gradients_equal_the_dense_ones_at_any_sites(name):
    # Sites that have not converged: nothing is stationary, so every term and every derivative counts.
    p = problem(name)
    chosen = {r: RULES[r] for r in ("power ep 0.5", "cvi")}

    @jit
    def both(kernel, likelihood):
        sites = jax.lax.stop_gradient(initial_sites(likelihood, p.chain(), p.data))

        def by_chain(kernel, likelihood, rule):
            return energy(rule, likelihood, p.chain(kernel), p.data, sites)

        def by_gram(kernel, likelihood, rule):
            return dense.energy(rule, likelihood, dense.gram(kernel, jnp.asarray(p.times)), p.data, sites)

        at = (kernel, likelihood)
        return [
            [jax.value_and_grad(f, argnums=(0, 1), allow_int=True)(*at, r) for r in chosen.values()]
            for f in (by_chain, by_gram)
        ]

    ours, theirs = both(p.kernel, p.likelihood)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


def test_the_filter_energy_is_exact_for_a_gaussian_likelihood():
    p = problem("gaussian")

    @jit
    def found():
        sites = initial_sites(p.likelihood, p.chain(), p.data)
        return filter_energy(CVI(), p.likelihood, p.chain(), p.data, sites)

    K = dense.gram(p.kernel, jnp.asarray(p.times))
    np.testing.assert_allclose(found(), exact_log_likelihood(K, 0.4, as_given(p.data)), rtol=1e-10)


@pytest.mark.parametrize(
    "rule",
    [PowerEP(), *(pytest.param(rule, marks=pytest.mark.slow) for rule in (Laplace(), EKS()))],
    ids=lambda r: type(r).__name__,
)
def test_the_gradient_at_convergence_is_that_of_the_value_as_the_sites_follow(rule):
    p = problem("poisson exp")
    start = jnp.log(jnp.array([1.2, 2.0]))

    def chain_of(logs):
        kernel = type(p.kernel)(*jnp.exp(logs))
        return prior_chain(kernel.sde(), jnp.asarray(p.times))

    @jit
    def value(logs):
        found = infer(rule, p.likelihood, chain_of(logs), p.data, tolerance=1e-11)
        return found.energy, (found.sites, found.marginals)

    @jit
    def slope(logs, held):
        return jax.value_and_grad(lambda x: converged_energy(rule, p.likelihood, chain_of(x), p.data, *held))(logs)

    at_start, held = value(start)
    again, gradient = slope(start, held)
    step = 1e-4
    numerical = [(value(start + d)[0] - value(start - d)[0]) / (2 * step) for d in step * np.eye(2)]
    np.testing.assert_allclose(again, at_start, rtol=1e-10)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-7)


def test_missing_data_contribute_nothing():
    p = problem("poisson exp")
    kept = np.flatnonzero(p.data.mask)
    rule = CVI()

    def found(times, data):
        chain = prior_chain(p.kernel.sde(), jnp.asarray(times))
        return jit(lambda: energy(rule, p.likelihood, chain, data, initial_sites(p.likelihood, chain, data)))()

    without = found(p.times[kept], observed(np.asarray(p.data.y)[kept]))
    np.testing.assert_allclose(found(p.times, p.data), without, rtol=1e-11)


def test_an_observed_value_stands_in_for_a_missing_one():
    data = observed([np.nan, 0.3, 0.9], exposure=[1.0, 2.0, 3.0])
    assert isinstance(data, Data)
    np.testing.assert_array_equal(data.y, [0.3, 0.3, 0.9])
    np.testing.assert_array_equal(data.mask, [False, True, True])
    assert list(data.covariates) == ["exposure"]


def test_covariates_reach_every_datum():
    p = problem("poisson exp")
    exposure = np.linspace(0.5, 2.0, p.times.size)
    counts = observed(as_given(p.data), exposure=exposure)

    @jit
    def both():
        sites = initial_sites(th.Poisson(), p.chain(), counts)
        ours = energy(CVI(), th.Poisson(), p.chain(), counts, sites)
        # ∂/∂log(exposure) of E[y f − exposure e^f + y log exposure] summed over data is Σ y − E rate.
        by_exposure = jax.grad(lambda e: energy(CVI(), th.Poisson(), p.chain(), observed_at(e), sites))(exposure)
        return ours, by_exposure

    def observed_at(e):
        return counts._replace(covariates={"exposure": e})

    value, slope = both()
    assert np.isfinite(value)
    assert slope[2] == 0.0  # missing
    assert np.all(np.asarray(slope)[np.asarray(p.data.mask)] != 0.0)
