"""Tied sites on inducing states: against dense algebra, the full model, and bounds that are known in closed form."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS, jit
from tests.rules.registry import NO_FIXED_POINT, RULES, problem
from thiele import dense_sparse as dense
from thiele import inducing
from thiele import kernels as kn
from thiele import likelihoods as th
from thiele.bridges import bridges
from thiele.energies import Data, converged_energy, energy, observed
from thiele.inducing import tie
from thiele.inference import infer
from thiele.rules import CVI, Marginal, PowerEP, Site
from thiele.series import Series


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


KERNEL = kn.Matern32(1.2, 2.0)
ROUGH = kn.Matern12(1.2, 2.0)  # its programs are smaller


def tied(times, data, z):
    """`Data` at sorted times, tied by the segments that z makes."""
    covariates = {name: np.asarray(x) for name, x in data.covariates.items()}
    series = Series(np.asarray(times), np.asarray(data.y), np.asarray(data.mask), covariates)
    return jax.tree.map(jnp.asarray, tie(series, np.asarray(z)))


def chain_of(kernel, z):
    return bridges(kernel, jnp.asarray(z))


def at_data(chain, q, times):
    """q(f_n) of every datum from q(w) of every segment."""
    segment = chain.segment_of(times)
    found = chain.project(segment, times[:, None]).marginals(jax.tree.map(lambda x: x[segment], q))
    return jax.tree.map(lambda x: x[:, 0], found)


def some_sites(chain, times, mask):
    """Sites that have not converged, made of one of arbitrary strength for each datum."""
    segment = chain.segment_of(times)
    W = chain.project(segment, times[:, None]).W[..., 0]
    strength = jnp.where(mask, 0.3 + jnp.cos(jnp.arange(times.size)) ** 2, 0.0)
    pull = jnp.where(mask, jnp.sin(1.0 + jnp.arange(times.size)), 0.0)
    S = chain.segments
    shift = jnp.zeros((S, W.shape[-1])).at[segment].add(jnp.einsum("n,nld->nd", pull, W))
    precision = jnp.zeros((S, *2 * W.shape[-1:])).at[segment].add(jnp.einsum("n,nld,nle->nde", strength, W, W))
    return Site(shift, precision)


def assert_close(ours, theirs, rtol=1e-7, atol=1e-8):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


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


# The same, to convergence, for every arrangement of data and inducing times; one compilation serves them all.

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


@pytest.mark.parametrize(("n", "z"), [(1, [0.5, 2.0]), (5, [1.2])], ids=["one datum", "one time"])
def test_one_datum_and_one_inducing_time_are_enough(n, z):
    t = np.linspace(1.0, 3.0, n)
    data = observed(np.arange(n) % 3 + 1.0)
    ours, theirs, _ = jit(lambda k: visited([CVI()], th.Poisson(), k, t, data, np.array(z)))(ROUGH)
    assert_close(ours, theirs)


@pytest.mark.slow
def test_thousands_of_data_share_a_site():
    t = np.sort(np.random.default_rng(5).uniform(1.0, 2.0, 5000))
    data, z = counts(t), np.array([0.0, 3.0, 4.0])
    ours, theirs, _ = jit(lambda k: visited([CVI(), PowerEP()], th.Poisson(), k, t, data, z))(KERNEL)
    assert_close(ours, theirs)


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
