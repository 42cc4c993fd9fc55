"""Inference to convergence: dense algebra, standing identities and hard data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS, jit
from tests.rules.registry import NO_FIXED_POINT, RULES, problem
from tests.test_energies import as_given, exact_log_likelihood
from thiele import dense_sites as dense
from thiele import inference
from thiele import kernels as kn
from thiele import likelihoods as th
from thiele.energies import energy, observed
from thiele.inference import infer, sweep
from thiele.rules import CVI, EKS, PL, VGP, Laplace, PowerEP, Site
from thiele.steps import prior_chain


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


QUICK = [
    ("cvi", "poisson exp"),
    ("ep", "bernoulli logit"),
    ("power ep 0.5", "negative binomial exp"),
    ("pl", "categorical"),
    ("eks", "gamma"),
    ("laplace", "student-t"),
]
ALL = [(rule, name) for name in LIKELIHOODS for rule in RULES if (rule, name) not in NO_FIXED_POINT]


def check_against_dense(rule_name, name):
    rule, p = RULES[rule_name], problem(name)
    sites, marginals, value, _, converged, *_ = jit(
        lambda kernel: infer(rule, p.likelihood, p.chain(kernel), p.data, tolerance=1e-10, max_sweeps=1000)
    )(p.kernel)
    assert converged
    K = dense.gram(p.kernel, jnp.asarray(p.times))
    again = jit(lambda K: dense.infer(rule, p.likelihood, K, p.data, sites))(K)
    seen = np.asarray(p.data.mask)
    for a, b in zip(sites, again, strict=True):
        np.testing.assert_allclose(a[seen], b[seen], rtol=1e-7, atol=1e-7)
    for a, b in zip(marginals, dense.marginals(K, p.data, sites), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    return rule, p, sites, value


@pytest.mark.parametrize(("rule_name", "name"), QUICK, ids=lambda x: x)
def test_sites_and_marginals_are_those_of_dense_algebra(rule_name, name):
    check_against_dense(rule_name, name)


@pytest.mark.slow
@pytest.mark.parametrize(("rule_name", "name"), ALL, ids=lambda x: x)
def test_every_rule_and_likelihood_agrees_with_dense_algebra(rule_name, name):
    rule, p, sites, value = check_against_dense(rule_name, name)

    def by_gram(kernel):
        return dense.energy(rule, p.likelihood, dense.gram(kernel, jnp.asarray(p.times)), p.data, sites)

    def by_chain(kernel):
        return energy(rule, p.likelihood, p.chain(kernel), p.data, sites)

    (ours, slope), (theirs, dense_slope) = jit(lambda k: [jax.value_and_grad(f)(k) for f in (by_chain, by_gram)])(
        p.kernel
    )
    np.testing.assert_allclose(ours, value, rtol=1e-10)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(dense_slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("rule_name", "name"), NO_FIXED_POINT, ids=lambda x: x)
def test_where_there_is_no_fixed_point_inference_says_so_and_stays_finite(rule_name, name):
    p = problem(name)
    found = jit(lambda: infer(RULES[rule_name], p.likelihood, p.chain(), p.data, max_sweeps=1000))()
    assert not found.converged
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))


def test_every_rule_is_exact_for_a_gaussian_likelihood_after_one_sweep():
    p = problem("gaussian")
    found = jit(lambda: {name: infer(rule, p.likelihood, p.chain(), p.data) for name, rule in RULES.items()})()
    K = dense.gram(p.kernel, jnp.asarray(p.times))
    truth = exact_log_likelihood(K, 0.4, as_given(p.data))
    for result in found.values():
        assert result.sweeps == 1
        assert result.converged
        np.testing.assert_allclose(result.energy, truth, rtol=1e-11)


def test_a_small_power_tends_to_cvi():
    p = problem("poisson exp")
    rules = (CVI(), PowerEP(1e-3), PowerEP(1e-4))
    cvi, near, nearer = jit(
        lambda: [infer(rule, p.likelihood, p.chain(), p.data, tolerance=1e-9)[:3] for rule in rules]
    )()
    for result, close in ((near, 1e-3), (nearer, 1e-4)):
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(cvi), strict=True):
            np.testing.assert_allclose(a, b, rtol=close, atol=close)


@pytest.mark.parametrize("variance", [1.0, 100.0])
def test_the_elbo_never_falls_under_cvi(variance):
    # From sites that are far too sharp and in the wrong place.
    p = problem("poisson exp")
    chain = prior_chain(kn.Matern32(variance, 2.0).sde(), jnp.asarray(p.times))
    n = p.times.size
    start = Site(jnp.full((n, 1), -300.0), jnp.full((n, 1, 1), 100.0))

    run = jit(lambda k: infer(CVI(), p.likelihood, chain, p.data, start, max_sweeps=k).energy)
    values = np.array([run(k) for k in range(1, 15)])
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[1:]))
    assert values[-1] > values[0] + 1.0


def test_plain_gradients_reach_what_natural_gradients_reach():
    p = problem("poisson exp")
    both = (CVI(), VGP(step=0.1))
    cvi, vgp = jit(lambda: [infer(r, p.likelihood, p.chain(), p.data, tolerance=1e-8, max_sweeps=3000) for r in both])()
    np.testing.assert_allclose(vgp.energy, cvi.energy, atol=1e-4)
    assert vgp.energy <= cvi.energy + 1e-9
    assert vgp.sweeps > 10 * cvi.sweeps


def test_slow_changes_are_gone_through_several_at_a_time(monkeypatch):
    p = problem("student-t")
    run = lambda rule: jit(lambda: infer(rule, p.likelihood, p.chain(), p.data, tolerance=1e-9))()  # noqa: E731
    far, calm = run(CVI()), run(CVI(step=0.9))
    monkeypatch.setattr(inference, "FARTHEST", 1.0)
    near, as_calm = run(CVI()), run(CVI(step=0.9))
    assert far.sweeps < near.sweeps
    np.testing.assert_allclose(far.energy, near.energy, rtol=1e-12)
    for a, b in zip(far.sites, near.sites, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)
    # A step below 1 is asked for to be calm, and never exceeded.
    assert calm.sweeps == as_calm.sweeps


def test_laplace_finds_the_mode():
    p = problem("bernoulli logit")
    found = jit(lambda: infer(Laplace(), p.likelihood, p.chain(), p.data, tolerance=1e-10))()
    f = found.marginals.mean[:, 0]
    slope = jax.vmap(jax.grad(p.likelihood.log_prob, argnums=1))(p.data.y, f)
    K = dense.gram(p.kernel, jnp.asarray(p.times))
    np.testing.assert_allclose(K @ jnp.where(p.data.mask, slope, 0.0), f, atol=1e-9)


def test_who_is_not_patient_ends_where_the_sweeps_left_would_not_do():
    p = problem("poisson exp")
    crawling, brisk = CVI(step=0.01), CVI()

    @jit
    def both():
        of = lambda rule, patient: infer(rule, p.likelihood, p.chain(), p.data, patient=patient)  # noqa: E731
        return of(crawling, True), of(crawling, False), of(brisk, True), of(brisk, False)

    patient, impatient, first, second = both()
    assert not patient.converged
    assert int(patient.sweeps) == 200
    assert not impatient.converged
    assert int(impatient.sweeps) == 2 * inference.PACE
    assert np.isfinite(impatient.energy)
    # Who gets there, gets there the same way, but for the order of a sum.
    assert int(first.sweeps) == int(second.sweeps)
    for a, b in zip(first.sites, second.sites, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_sweep_of_half_the_size_goes_half_the_way():
    p = problem("student-t")
    rule = Laplace()

    @jit
    def two():
        first = infer(rule, p.likelihood, p.chain(), p.data, max_sweeps=1)
        whole = sweep(rule, p.likelihood, p.chain(), p.data, first.sites)
        half = sweep(rule, p.likelihood, p.chain(), p.data, first.sites, step=0.5)
        return first.sites, whole, half

    start, whole, half = two()
    middle = jax.tree.map(lambda a, b: 0.5 * (a + b), start, whole.sites)
    for a, b in zip(middle, half.sites, strict=True):
        # A site near zero is what is left of larger numbers.
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
    assert whole.repaired == 0


def hard_problems():
    n = 20
    t = np.linspace(0.0, 10.0, n)
    wave = np.sin(np.arange(n) / 3.0)
    outliers = wave.copy()
    outliers[[4, 12]] = 30.0, -8.0
    lonely = np.full(n, np.nan)
    lonely[7] = 3.0
    two = kn.Stack(kn.Matern32(1.0, 2.0), kn.Matern32(1.0, 3.0))
    four = kn.Stack(kn.Matern12(1.0, 2.0), kn.Matern12(1.0, 1.0), kn.Matern32(1.0, 3.0), kn.Matern32(1.0, 3.0))
    return {
        "one datum among many states": (th.Poisson(), kn.Matern32(1.0, 2.0), t, lonely),
        "a single state": (th.Poisson(), kn.Matern32(1.0, 2.0), t[:1], np.array([4.0])),
        "extreme counts": (th.Poisson(), kn.Matern32(100.0, 2.0), t, np.where(np.arange(n) % 2, 1e5, 0.0)),
        "separable": (th.Bernoulli(), kn.Matern32(100.0, 5.0), t, (np.arange(n) > 9).astype(float)),
        "outliers": (th.StudentT(4.0, 0.1), kn.Matern32(1.0, 2.0), t, outliers),
        "changing noise": (th.HeteroscedasticGaussian(), two, t, wave),
        "product": (th.SubbandProduct(2, 0.1), four, t, wave),
    }


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("one datum among many states", (CVI(),)),
        ("extreme counts", (CVI(), PowerEP(), Laplace())),
        ("separable", (PowerEP(),)),
        ("outliers", (CVI(),)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_hard_data_converge(name, rules):
    check_hard(name, rules)


@pytest.mark.slow
@pytest.mark.parametrize("name", hard_problems())
def test_hard_data_stay_finite_under_every_rule(name):
    check_hard(name, (EKS(), PL(), PowerEP(), CVI(), Laplace()), must_converge=False)


def check_hard(name, rules, must_converge=True):
    likelihood, kernel, t, y = hard_problems()[name]
    chain = prior_chain(kernel.sde(), jnp.asarray(t))
    for rule in rules:
        found = jit(lambda rule=rule: infer(rule, likelihood, chain, observed(y)))()
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found)), (name, rule)
        assert found.converged or not must_converge, (name, rule)
