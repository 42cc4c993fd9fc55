"""Tied sites where the answer is known: the full model, and bounds for Gaussian noise in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import jit
from tests.rules.registry import RULES, problem
from tests.tied import ROUGH, assert_close, at_data, chain_of, tied
from thiele import dense_sparse as dense
from thiele import likelihoods as th
from thiele.energies import converged_energy, observed
from thiele.inference import infer
from thiele.rules import CVI, Marginal, PowerEP, Site


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


# A state at every datum is the full model.


def on_the_data(distinct):
    p = problem("poisson exp")
    times = np.where(np.arange(p.times.size) == 5, p.times + 0.1, p.times) if distinct else p.times
    assert np.all(np.diff(times) >= 0.0)
    return p._replace(times=times)


@pytest.mark.parametrize(
    "names",
    [("ep",), pytest.param(("cvi", "laplace", "pl", "eks", "power ep 0.5"), marks=pytest.mark.slow)],
    ids=", ".join,
)
def test_a_state_at_every_datum_is_the_full_model(names):
    # At any sites: so sweeps and gradients agree all the way.
    p = on_the_data(distinct=True)
    p = p._replace(kernel=ROUGH) if names == ("ep",) else p
    n, of_segments, f = p.times.size, tied(p.times, p.data, p.times), int(np.argmax(p.kernel.sde().H))
    rng = np.random.default_rng(6)
    sites = Site(jnp.asarray(rng.normal(size=(n, 1))), jnp.asarray(rng.uniform(0.2, 2.0, (n, 1, 1))))

    def embedded(sites):
        # Datum n begins segment n + 1, and f is one component of the state there.
        h, J = (jnp.where(p.data.mask, x.reshape(n), 0.0) for x in sites)
        empty = of_segments.empty(chain_of(p.kernel, p.times), 1)
        return Site(empty.shift.at[1:, f].set(h), empty.precision.at[1:, f, f].set(J))

    @jit
    def both(kernel):
        full, sparse, held = p.chain(kernel), chain_of(kernel, p.times), embedded(sites)
        (q, log_z), (q_sparse, log_z_sparse) = p.data.smooth(full, sites), of_segments.smooth(sparse, held)
        ours, theirs = [], []
        for rule in (RULES[name] for name in names):
            a = of_segments.visit(rule, p.likelihood, sparse, q_sparse, held)
            b = p.data.visit(rule, p.likelihood, full, q, sites)
            ours.append((at_data(sparse, q_sparse, jnp.asarray(p.times)), log_z_sparse + a.terms, a.target))
            theirs.append((q, log_z + b.terms, embedded(b.target)))
        return ours, theirs

    assert_close(*both(p.kernel), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "distinct"),
    [("cvi", False), *(pytest.param(name, True, marks=pytest.mark.slow) for name in RULES)],
)
def test_inference_and_its_gradient_are_those_of_the_full_model(name, distinct):
    # Two data at one time share a site of one dimension, which for CVI is as good as two.
    rule, p = RULES[name], on_the_data(distinct)._replace(kernel=ROUGH)
    places = np.unique(p.times)

    def found(chain, data):
        result = infer(rule, p.likelihood, chain(p.kernel), data, tolerance=1e-11)
        held, marginals = (result.sites, result.marginals), result.marginals
        slope = jax.value_and_grad(lambda k: converged_energy(rule, p.likelihood, chain(k), data, *held))
        if data is not p.data:
            marginals = at_data(chain(p.kernel), marginals, jnp.asarray(p.times))
        return result, marginals, slope(p.kernel)

    ours = jit(lambda: found(lambda k: chain_of(k, places), tied(p.times, p.data, places)))()
    full = jit(lambda: found(p.chain, p.data))()
    assert ours[0].converged
    assert full[0].converged
    assert_close((ours[0].energy, *ours[1:]), (full[0].energy, *full[1:]), 1e-8, 1e-8)


# Gaussian noise: bounds and approximations of the literature in closed form.


def gaussian_problem():
    rng = np.random.default_rng(8)
    t = np.sort(rng.uniform(0.0, 6.0, 10))
    return t, np.sin(t) + 0.3 * rng.normal(size=t.size), 0.2


def normal_log_density(y, S):
    return -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2.0 * np.pi * S)[1])


def gaussian_energy(rule, t, y, noise, z):
    """The energy and q(f) after one visit: a Gaussian site depends on nothing else."""
    of_segments = tied(t, observed(y), z)

    @jit
    def found():
        chain = chain_of(ROUGH, z)
        none = of_segments.empty(chain, 1)
        prior = jax.tree.map(jnp.zeros_like, none)
        sites = of_segments.visit(rule, th.Gaussian(noise), chain, Marginal(*prior), none).target
        q, log_z = of_segments.smooth(chain, sites)
        terms, _ = of_segments.terms(rule, th.Gaussian(noise), chain, q, sites)
        return log_z + terms, at_data(chain, q, jnp.asarray(t))

    return found()


def nystrom(t, z):
    Kuu, W, nu = (np.asarray(x) for x in jit(lambda *at: dense.conditional(ROUGH.sde(), *at))(z, t))
    return W[:, 0] @ Kuu @ W[:, 0].T, nu[:, 0, 0]


def test_cvi_gives_the_collapsed_bound_which_rises_with_nested_inducing_times():
    t, y, noise = gaussian_problem()
    grid = np.linspace(-0.1, 6.1, 5)
    exact = normal_log_density(y, jit(lambda a, b: ROUGH(a, b))(t[:, None], t[None, :]) + noise * np.eye(t.size))
    values = []
    for every in (4, 2, 1):
        z = grid[::every]
        Q, nu = nystrom(t, z)
        value, _ = gaussian_energy(CVI(), t, y, noise, z)
        titsias = normal_log_density(y, Q + noise * np.eye(t.size)) - 0.5 * np.sum(nu) / noise
        np.testing.assert_allclose(value, titsias, rtol=1e-9)
        values.append(value)
    assert np.all(np.diff(values) > 0.0)
    assert values[-1] < exact


def test_ep_with_one_datum_in_each_segment_gives_the_likelihood_of_fitc():
    t, y, noise = gaussian_problem()
    z = 0.5 * (t[1:] + t[:-1])
    Q, nu = nystrom(t, z)
    value, _ = gaussian_energy(PowerEP(), t, y, noise, z)
    np.testing.assert_allclose(value, normal_log_density(y, Q + np.diag(nu + noise)), rtol=1e-9)


def test_ep_gives_the_posterior_of_fitc():
    t, y, noise = gaussian_problem()
    z = np.array([1.0, 3.0, 5.0])
    Q, nu = nystrom(t, z)
    _, q = gaussian_energy(PowerEP(), t, y, noise, z)
    gain = np.linalg.solve(Q + np.diag(nu + noise), Q).T
    np.testing.assert_allclose(q.mean[:, 0], gain @ y, rtol=1e-9)
    np.testing.assert_allclose(q.var[:, 0, 0], np.diag(Q - gain @ Q) + nu, rtol=1e-9)
