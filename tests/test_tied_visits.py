"""Tied sites on inducing states, one visit of the data: against dense algebra."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS, jit
from tests.rules.registry import NO_FIXED_POINT, RULES, problem
from tests.tied import KERNEL, ROUGH, assert_close, at_data, chain_of, some_sites, tied
from thiele import dense_sparse as dense
from thiele import likelihoods as th
from thiele.energies import energy, observed
from thiele.inducing import tie
from thiele.inference import infer
from thiele.rules import CVI, PowerEP
from thiele.series import Series


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("z", [[1.0, 2.0, 4.0], [-1.0, 2.5, 9.0], [-2.0, -1.0, 7.0], [7.0, 8.0, 9.0], [5.0]], ids=str)
def test_every_observed_datum_is_counted_in_its_segment(z):
    times, mask = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]), np.array([True, True, False, True, True, True, True])
    found = tie(Series(times, np.ones(7), mask, {}), np.array(z)).tied
    segment = np.searchsorted(z, times, side="right")
    np.testing.assert_array_equal(found, np.bincount(segment[mask], minlength=len(z) + 1))


# One visit of the data, at any sites: marginals, the energy, and what each rule puts in the place of every site.

# Data before the first, an empty segment, data on one of the inducing times, and none after the last.
PLACES = np.array([0.9, 2.0, 2.9, 4.3, 6.0])

QUICK = {
    "poisson exp": ("cvi", "laplace"),
    "bernoulli logit": ("power ep 0.5",),
    "student-t": ("cvi",),
    "heteroscedastic": ("cvi",),
}


def sparse_problem(name, n=12):
    """Data of which no pull is so strong that a site has to be repaired."""
    p = problem(name, n)
    times = np.sort(np.append(p.times[:-1], PLACES[3]))
    y = np.where(p.data.mask, np.clip(p.data.y, -1.0, 3.0 if name.startswith("p") else 1.0), np.nan)
    return p._replace(times=times, data=observed(y))


def visited(rules, likelihood, kernel, times, data, z, sites=None):
    """By segments and by dense algebra: (marginals, energy, new sites) of each rule."""
    chain, of_segments = chain_of(kernel, z), tied(times, data, z)
    sites = some_sites(chain, jnp.asarray(times), data.mask) if sites is None else sites
    on_states = functools.partial(dense.on_states, kernel.sde(), jnp.asarray(z))
    q, log_z = of_segments.smooth(chain, sites)
    at = dense.features(kernel, jnp.asarray(z), jnp.asarray(times), data)
    held = on_states(sites)
    ours, theirs, repaired = [], [], []
    for rule in rules:
        found = of_segments.visit(rule, likelihood, chain, q, sites)
        ours.append((at_data(chain, q, jnp.asarray(times)), log_z + found.terms, on_states(found.target)))
        theirs.append(
            (
                dense.marginals(at, held),
                dense.energy(rule, likelihood, at, held),
                dense.update(rule, likelihood, at, held),
            )
        )
        repaired.append(found.repaired)
    return ours, theirs, repaired


@pytest.mark.parametrize("name", QUICK)
def test_one_visit_of_the_data_is_that_of_dense_algebra(name):
    p = sparse_problem(name)
    rules = [RULES[rule] for rule in QUICK[name]]
    kernel = ROUGH if name in ("bernoulli logit", "student-t") else p.kernel
    ours, theirs, repaired = jit(lambda k: visited(rules, p.likelihood, k, p.times, p.data, PLACES))(kernel)
    assert p.likelihood.latents > 1 or not np.any(repaired)
    assert_close(ours, theirs)


def gradients(rule, p, z):
    """Of the energy in kernel and likelihood at sites that have not converged, so that every derivative counts."""
    of_segments = tied(p.times, p.data, z)

    def by_segments(kernel, likelihood, sites):
        return energy(rule, likelihood, chain_of(kernel, z), of_segments, sites)

    def by_dense_algebra(kernel, likelihood, sites):
        # The sites are held as what they say about (u, e), and what that is depends on the kernel.
        held = dense.on_states(kernel.sde(), jnp.asarray(z), sites)
        at = dense.features(kernel, jnp.asarray(z), jnp.asarray(p.times), p.data)
        return dense.energy(rule, likelihood, at, held)

    @jit
    def both(kernel, likelihood):
        sites = jax.lax.stop_gradient(some_sites(chain_of(kernel, z), jnp.asarray(p.times), p.data.mask))
        each = [jax.value_and_grad(f, argnums=(0, 1), allow_int=True) for f in (by_segments, by_dense_algebra)]
        return [f(kernel, likelihood, sites) for f in each]

    return both(p.kernel, p.likelihood)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("cvi", "poisson exp"),
        *(
            pytest.param(rule, name, marks=pytest.mark.slow)
            for name in QUICK
            for rule in ("cvi", "ep", "power ep 0.5", "laplace")
            if (rule, name) != ("cvi", "poisson exp")
        ),
    ],
)
def test_gradients_are_those_of_dense_algebra_at_any_sites(rule, name):
    p = sparse_problem(name)
    p = p._replace(kernel=ROUGH) if (rule, name) == ("cvi", "poisson exp") else p
    assert_close(*gradients(RULES[rule], p, PLACES), rtol=1e-6)


ALL = [(rule, name) for name in LIKELIHOODS for rule in RULES if (rule, name) not in NO_FIXED_POINT]


@pytest.mark.slow
@pytest.mark.parametrize(("rule_name", "name"), ALL, ids=lambda x: x)
def test_every_rule_and_likelihood_converges_to_the_fixed_point_of_dense_algebra(rule_name, name):
    rule, p = RULES[rule_name], sparse_problem(name)
    of_segments = tied(p.times, p.data, PLACES)
    found = jit(
        lambda k: infer(rule, p.likelihood, chain_of(k, PLACES), of_segments, tolerance=1e-10, max_sweeps=1000)
    )(p.kernel)
    assert found.converged
    ours, theirs, _ = jit(lambda k, sites: visited([rule], p.likelihood, k, p.times, p.data, PLACES, sites))(
        p.kernel, found.sites
    )
    if found.repaired and p.likelihood.latents == 1:
        # The bound on a negative precision is the library's own: marginals and energy agree, the sites need not.
        ours, theirs = ours[0][:2], theirs[0][:2]
    assert_close(ours, theirs)


@pytest.mark.parametrize(("n", "z"), [(1, [0.5, 2.0]), (5, [1.2])], ids=["one datum", "one time"])
def test_one_datum_and_one_inducing_time_are_enough(n, z):
    t = np.linspace(1.0, 3.0, n)
    data = observed(np.arange(n) % 3 + 1.0)
    ours, theirs, _ = jit(lambda k: visited([CVI()], th.Poisson(), k, t, data, np.array(z)))(ROUGH)
    assert_close(ours, theirs)


@pytest.mark.slow
def test_thousands_of_data_share_a_site():
    t = np.sort(np.random.default_rng(5).uniform(1.0, 2.0, 5000))
    data = observed(np.random.default_rng(6).poisson(2.0, t.size).astype(float))
    z = np.array([0.0, 3.0, 4.0])
    ours, theirs, _ = jit(lambda k: visited([CVI(), PowerEP()], th.Poisson(), k, t, data, z))(KERNEL)
    assert_close(ours, theirs)
