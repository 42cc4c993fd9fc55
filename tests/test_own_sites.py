"""A site for each datum of a segment adds up to the segment's site: the two ways of keeping them agree."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from thiele import own_sites, search, training
from thiele.approximate import one_round, setting
from thiele.inference import infer, initial_sites, sweep
from thiele.mixtures import MixedMarginal
from thiele.own_sites import Grouped
from thiele.parameters import constrain, unconstrain
from thiele.tied import Tied


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def seasonal():
    season = th.QuasiPeriodic(0.5, 1.2, 1.7, 6.0, harmonics=3)
    return th.Matern32(variance=0.8, lengthscale=2.0) + season


def two_functions():
    return th.Stack(th.Matern52(lengthscale=1.5) * th.Cosine(frequency=2.0), seasonal())


MODELS = {
    "counts": lambda: th.GP(seasonal(), th.Poisson(), inducing=np.linspace(0.7, 9.5, 30)),
    "heavy tails": lambda: th.GP(seasonal(), th.StudentT(df=4.0, scale=0.3), inducing=np.linspace(0.7, 9.5, 30)),
    "two functions": lambda: th.GP(two_functions(), th.HeteroscedasticGaussian(), inducing=np.linspace(0.7, 9.5, 40)),
}


def data(name):
    """Irregular times, some before the first inducing time and after the last, and some values missing."""
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 10.0, 90))
    f = np.sin(3.7 * t) + 0.3 * t
    y = rng.poisson(np.exp(0.5 * f)).astype(float) if name == "counts" else f + 0.3 * rng.standard_t(4.0, len(t))
    y[[4, 40, 41]] = np.nan
    return t, y


def both_ways(name):
    t, y = data(name)
    model, series, _, _ = MODELS[name]()._prepared(t, y, {})
    ways = model.inducing.group(series, model.kernel), model.inducing.tie(series)
    assert isinstance(ways[0], Grouped)
    assert isinstance(ways[1], Tied)
    return model, ways


def of_segments(at, sites):
    return at.chain.tied(sites, at.data.mask)


@pytest.mark.parametrize("name", MODELS)
def test_sweeps_are_those_of_tied_sites(name):
    model, ways = both_ways(name)
    own, tied = (setting(model, way) for way in ways)
    start = initial_sites(*own)
    _, theirs = of_segments(own, start)
    for _ in range(4):
        q, log_z = own.data.smooth(own.chain, start)
        their_q, their_log_z = tied.data.smooth(tied.chain, theirs)
        np.testing.assert_allclose(log_z, their_log_z, rtol=1e-9)
        whole, added = of_segments(own, start)
        np.testing.assert_allclose(added.precision, theirs.precision, atol=1e-8)
        np.testing.assert_allclose(whole.mean, their_q.mean, atol=1e-8)
        np.testing.assert_allclose(whole.var, their_q.var, atol=1e-8)
        energies = [
            at.data.terms(model.rule, at.likelihood, at.chain, m, s)[0]
            for at, m, s in ((own, q, start), (tied, their_q, theirs))
        ]
        np.testing.assert_allclose(*energies, rtol=1e-9)
        start = sweep(model.rule, *own, start, 0.5).sites
        theirs = sweep(model.rule, *tied, theirs, 0.5).sites


@pytest.mark.parametrize("name", MODELS)
def test_the_prior_is_what_empty_sites_leave(name):
    model, (grouped, _) = both_ways(name)
    at = setting(model, grouped)
    prior, smoothed = at.data.prior(at.chain), at.data.smooth(at.chain, at.data.empty(at.chain, model.kernel.latents))
    for a, b in zip(prior, smoothed[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_energy_and_gradient_at_convergence(name):
    model, ways = both_ways(name)
    free = unconstrain(model)
    found = [training.objective_and_gradient(model, free, way, training.first_sites(model, way)) for way in ways]
    (values, slopes) = zip(*((f[0][0], f[1]) for f in found), strict=True)
    # Sites have converged to 1e-6, each in its own order of sums.
    np.testing.assert_allclose(*values, rtol=1e-8)
    np.testing.assert_allclose(*slopes, atol=1e-5 * np.max(np.abs(slopes[0])))


@pytest.mark.parametrize("name", ["counts", "two functions"])
def test_the_gradient_with_sites_held_is_a_difference_quotient(name):
    """Of the paper's schedule: q(w) is held in the sum over data, and the sites go where their weights go."""
    model, (grouped, _) = both_ways(name)
    at = setting(model, grouped)
    sites = sweep(model.rule, *at, initial_sites(*at), 0.5).sites
    (mean, var), _ = of_segments(at, sites)
    mean, var = mean[grouped.step], var[grouped.step]
    free = unconstrain(model)

    def of(vector):
        moved = setting(constrain(model, vector), grouped)
        cross = jnp.einsum("nij,nlj->nil", var, moved.chain.w)
        f = jnp.einsum("nli,ni->nl", moved.chain.w, mean)
        held = MixedMarginal(f, jnp.einsum("nli,nim->nlm", moved.chain.w, cross), mean, cross)
        terms = moved.data.terms(model.rule, moved.likelihood, moved.chain, held, sites)[0]
        return moved.data.log_normaliser(moved.chain, sites) + terms

    slope = jax.grad(lambda v: one_round(model.rule, setting(constrain(model, v), grouped), sites)[0])
    step, direction = 1e-5, np.random.default_rng(0).normal(size=free.shape)
    quotient = (of(free + step * direction) - of(free - step * direction)) / (2 * step)
    np.testing.assert_allclose(slope(free) @ direction, quotient, rtol=1e-6)


def test_groups_of_segments_do_not_matter(monkeypatch):
    model, (grouped, _) = both_ways("counts")
    free = unconstrain(model)
    found = []
    for at_once in (2**21, 300):
        monkeypatch.setattr(own_sites, "NUMBERS_AT_ONCE", at_once)
        at = setting(model, grouped)
        sites = initial_sites(*at)

        def of(vector, sites=sites):
            moved = setting(constrain(model, vector), grouped)
            return moved.data.log_normaliser(moved.chain, sites)

        found.append((*jax.value_and_grad(of)(free), *of_segments(at, sites)[0]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_fit_keeps_sites_of_segments_and_does_all_that_fits_do(tmp_path):
    t, y = data("counts")
    model = MODELS["counts"]()
    fit = model.condition(t, y)
    assert isinstance(search.tied(fit.model, fit.data), Grouped)
    assert fit.sites.shift.shape == (31, 2 * model.kernel.sde().dim)
    tied = jax.tree.map(jnp.asarray, fit.model.inducing.tie(fit.data))
    plain = infer(fit.model.rule, *setting(fit.model, tied))
    np.testing.assert_allclose(fit.objective, plain.energy, rtol=1e-9)
    np.testing.assert_allclose(fit.posterior.segments.var, plain.marginals.var, atol=1e-6)
    new = np.linspace(-1.0, 12.0, 50)
    loaded = th.load(fit.save(tmp_path / "fit"))
    np.testing.assert_allclose(fit.predict(new).mean, loaded.predict(new).mean, atol=1e-12)
    np.testing.assert_array_equal(np.isfinite(fit.loo()), ~np.isnan(y))
    assert np.all(np.isfinite(fit.sample(new, 3, jax.random.key(0))))
    more = fit.update(np.array([10.5]), np.array([3.0]))
    assert np.isfinite(more.objective)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": th.PowerEP()},
        {"rule": th.VGP()},
        {"kernel": th.Matern32()},
        {"inducing": th.Inducing(times=np.linspace(0.7, 9.5, 3))},
        {"inducing": th.Inducing(times=np.linspace(0.7, 9.5, 30), learn=True)},
        {"inducing": th.Inducing(times=np.linspace(0.7, 9.5, 30), of="values")},
    ],
)
def test_other_models_tie_their_sites(change):
    t, y = data("counts")
    model, series, _, _ = dataclasses.replace(MODELS["counts"](), **change)._prepared(t, y, {})
    assert isinstance(search.tied(model, series), Tied)


def test_a_sample_of_the_data_ties_its_sites():
    t, y = data("counts")
    model, series, _, _ = MODELS["counts"]()._prepared(t, y, {})
    assert isinstance(search.tied(model, series, batched=True), Tied)
