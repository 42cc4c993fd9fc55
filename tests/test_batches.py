"""Stochastic updates: right on average, and on the way to what all data give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.likelihoods.registry import jit
from tests.tied import chain_of, tied
from thiele import inducing, search, training
from thiele.energies import observed
from thiele.inference import infer, sweep
from thiele.own_sites import Grouped
from thiele.parameters import unconstrain

T = np.linspace(0.0, 10.0, 60)
Y = np.random.default_rng(3).poisson(np.exp(0.5 + np.sin(T))).astype(float)
Z = np.linspace(0.0, 10.0, 5)
KERNEL = th.Matern32(1.0, 3.0)


def test_the_mean_over_all_batches_is_the_whole():
    with jax.enable_x64(True):
        data, chain = tied(T, observed(Y), Z), chain_of(KERNEL, Z)
        q = jit(lambda: infer(th.CVI(), th.Poisson(), chain, data).marginals)()
        sites = data.empty(chain, 1)
        visit = jit(lambda data: data.visit(th.CVI(), th.Poisson(), chain, q, sites))
        whole = visit(data)
        full = np.flatnonzero(np.asarray(data.length).ravel())

        class Each:
            """Stands in for a generator: every tile once, one at a time."""

            def __init__(self, place):
                self.place = place

            def choice(self, among, count, replace):
                return among[self.place : self.place + 1]

        found = [visit(jax.tree.map(jnp.asarray, data.batch(Each(i), 1))) for i in range(len(full))]
        for name in ("terms", "target"):
            mean = jax.tree.map(lambda *x: sum(x) / len(x), *(getattr(f, name) for f in found))
            for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(getattr(whole, name)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_small_steps_on_batches_end_near_the_optimum_of_all_data():
    with jax.enable_x64(True):
        data, chain = tied(T, observed(Y), Z), chain_of(KERNEL, Z)
        best = jit(lambda: infer(th.CVI(), th.Poisson(), chain, data))()
        step = jit(lambda data, sites, size: sweep(th.CVI(), th.Poisson(), chain, data, sites, size).sites)
        rng, sites = np.random.default_rng(0), data.empty(chain, 1)
        for k in range(1, 1001):
            sites = step(jax.tree.map(jnp.asarray, data.batch(rng, 20)), sites, 1.0 / k)
        mean = data.smooth(chain, sites)[0].mean
        np.testing.assert_allclose(mean, best.marginals.mean, atol=0.1)


def test_a_fit_on_batches_learns():
    model = th.GP(th.Matern32(1.0, 1.0), th.Poisson(), inducing=Z, rule=th.CVI(step=0.2))
    fit = model.fit(T, Y, schedule="paper", batch_size=20, max_steps=150, learning_rate=0.05)
    assert fit.objective > model.condition(T, Y).objective + 0.5


@pytest.mark.parametrize("settle", [True, False])
def test_batches_have_tied_sites_also_where_each_datum_would_have_its_own(settle):
    kernel = th.Matern72(1.0, 3.0) + th.Matern72(1.0, 9.0) + th.Matern12(0.3, 1.0)
    model = th.GP(kernel, th.Poisson(), inducing=np.linspace(0.0, 10.0, 12), rule=th.CVI(step=0.3))
    whole = model.condition(T, Y)
    with jax.enable_x64(True):
        assert isinstance(search.tied(whole.model, whole.data), Grouped)
    fit = model.fit(T, Y, schedule="paper", batch_size=20, max_steps=3, settle=settle)
    assert fit.sites.shift.shape == whole.sites.shift.shape
    assert np.all(np.isfinite(fit.predict(T).mean))
    assert np.isfinite(fit.objective)
    assert fit.converged == settle


def test_the_paper_s_schedule_settles_at_its_end_unless_told_not_to():
    model = th.GP(th.Matern32(1.0, 1.0), th.Poisson(), inducing=Z, rule=th.CVI(step=0.2))
    settled, left = (model.fit(T, Y, schedule="paper", max_steps=3, settle=settle) for settle in (True, False))
    assert settled.converged
    assert not left.converged
    # The same hyperparameters, and sites that are still on their way: less of the bound.
    np.testing.assert_allclose(left.kernel.lengthscale, settled.kernel.lengthscale, rtol=1e-12)
    assert left.objective < settled.objective - 1e-3


@pytest.mark.parametrize("inducing", [None, Z], ids=["full", "sparse"])
def test_the_paper_s_schedule_has_the_gradient_of_the_optimum_where_the_sites_have_converged(inducing):
    with jax.enable_x64(True):
        model, series, _, _ = th.GP(th.Matern12(1.0, 3.0), th.Poisson(), inducing=inducing)._prepared(T, Y, {})
        data, vector = search.tied(model, series), unconstrain(model)
        start = training.first_sites(model, data)
        (value, found), gradient = training.objective_and_gradient(model, vector, data, start)
        again, slope, _, _ = training.alternate(model, vector, data, found.sites)
    np.testing.assert_allclose(again, value, rtol=1e-9)
    # Each of the sites is within 1e-6 of where it converges to.
    np.testing.assert_allclose(slope, gradient, rtol=0.0, atol=1e-6 * len(T))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0, "schedule": "paper"}, "positive integer or None, got 0"),
        ({"batch_size": 2.5, "schedule": "paper"}, "positive integer or None, got 2.5"),
        ({"batch_size": 10}, "needs inducing times"),
    ],
)
def test_bad_batches_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=f"`batch_size`.*{words}"):
        th.GP(KERNEL, th.Poisson(), inducing=Z).fit(T, Y, **options)


def test_series_too_long_for_one_group_are_sampled_too(monkeypatch):
    monkeypatch.setattr(inducing, "DATA_AT_ONCE", 8)
    data = tied(T, observed(Y), Z)
    assert data.segment.shape[0] > 1
    some = data.batch(np.random.default_rng(0), 20)
    assert some.segment.shape[0] == 1
    assert np.sum(some.length) > 10


@pytest.mark.parametrize("inducing", [None, Z], ids=["full", "sparse"])
def test_many_rounds_in_one_program_are_rounds_one_by_one(inducing, monkeypatch):
    model = th.GP(th.Matern12(1.0, 3.0), th.Poisson(), inducing=inducing, rule=th.CVI(step=0.5))
    options = {"schedule": "paper", "max_steps": 7, "progress": False}
    together = model.fit(T, Y, **options)
    monkeypatch.setattr(search, "DATA_IN_A_PROGRAM", 0)
    alone = model.fit(T, Y, **options)
    assert len(together.trace.objective) == 7
    np.testing.assert_allclose(together.trace.objective, alone.trace.objective, rtol=1e-10)
    np.testing.assert_allclose(together.trace.gradient, alone.trace.gradient, rtol=1e-7)
    np.testing.assert_allclose(together.kernel.lengthscale, alone.kernel.lengthscale, rtol=1e-9)
    assert np.all(np.diff(together.trace.seconds) > 0.0)


@pytest.mark.parametrize("together", [2**12, 0], ids=["in one program", "one by one"])
def test_rounds_end_where_the_objective_is_no_longer_finite(together, monkeypatch):
    monkeypatch.setattr(search, "DATA_IN_A_PROGRAM", together)
    model = th.GP(th.Matern12(1.0, 3.0), th.Poisson(), rule=th.CVI(step=0.5))
    with np.errstate(all="ignore"):
        fit = model.fit(T, Y, schedule="paper", max_steps=30, learning_rate=400.0, progress=False)
    assert "no longer finite" in fit.learnt.message
    assert len(fit.trace.objective) < 30
    assert np.isfinite(fit.objective)
    assert np.all(np.isfinite(fit.predict(T).mean))
