"""Weights by way of polynomials are those of `thiele.weights`, and a search that they do not do for goes on without."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thiele as th
from thiele import even, search, training
from thiele.bridges import bridges
from thiele.even import polynomials
from thiele.own_sites import Grouped
from thiele.parameters import constrain, unconstrain
from thiele.tied import Tied


@pytest.fixture(autouse=True)
def double_precision_and_few_data(monkeypatch):
    monkeypatch.setattr(even, "LEAST_DATA", 1)
    with jax.enable_x64(True):
        yield


KERNELS = {
    "Matern12": lambda: th.Matern12(lengthscale=1.0),
    "Matern72": lambda: th.Matern72(variance=1.3, lengthscale=1.5),
    "RBF": lambda: th.RBF(lengthscale=2.0),
    "undriven": lambda: th.Constant(variance=1e6) + th.Periodic(period=9.0) + th.Cosine(frequency=0.5),
    "season": lambda: th.Matern52(lengthscale=2.0) + th.QuasiPeriodic(0.5, 1.2, 3.0, 20.0, harmonics=6),
    "two": lambda: th.Stack(th.Matern32(lengthscale=1.5), th.Matern52() * th.Cosine(frequency=1.0)),
    "space": lambda: th.SpaceTime(th.Matern32(), th.spatial.Matern32(), inducing=np.linspace(-1.0, 1.0, 3)[:, None]),
}
# From a thousandth of a length scale to one, and inducing times without rounding, which would be that of ν too.
STEPS = 2.0**-10, 0.125, 1.0


def both(kernel, z, x, space=None, terms=24):
    """W and ν by way of polynomials and without, at times between even ones."""
    given = None if space is None else jnp.asarray(space)[:, None]
    plain, alike = bridges(kernel, jnp.asarray(z)), bridges(kernel, jnp.asarray(z), alike=terms)
    segment, times = plain.segment_of(jnp.asarray(x)), jnp.asarray(x)[:, None]
    return alike.project(segment, times, given, polynomials(x[:, None], z, terms)), plain.project(segment, times, given)


def places(step):
    rng = np.random.default_rng(0)
    z = 3.0 + step * np.arange(5)
    # On inducing times, the last among them, just beside one, and anywhere.
    return z, np.sort(np.concatenate([z, z[1:2] + 1e-7 * step, rng.uniform(z[0], z[-1], 20)]))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KERNELS)
def test_weights_are_those_of_the_kernel_to_rounding(name, step):
    are_those_of_the_kernel(KERNELS[name](), step, 24)


@pytest.mark.parametrize(("terms", "reach"), even.REACH.items())
def test_so_many_terms_reach_so_far_and_a_little_farther(terms, reach):
    kernel, (z, x) = th.Matern32(lengthscale=2.0 / reach) + th.Cosine(frequency=0.99 * reach), places(1.0)
    assert even.terms_for(kernel, x, z) == terms
    are_those_of_the_kernel(kernel, 1.0, terms)
    # With room for what is learnt.
    are_those_of_the_kernel(kernel + th.Cosine(frequency=(1.25 if terms == 64 else 1.8) * reach), 1.0, terms)


def are_those_of_the_kernel(kernel, step, terms):
    z, x = places(step)
    space = np.linspace(-1.0, 1.0, len(x))[:, None] if kernel.in_space else None
    ours, truth = jax.jit(lambda kernel: both(kernel, z, x, space, terms))(kernel)
    # In units of what each entry of (u, e) adds to f: its own deviation is one, or that of a state.
    scale = np.sqrt(np.concatenate([np.diagonal(kernel.sde().Pinf), np.ones(kernel.sde().dim)]))
    np.testing.assert_allclose(ours.W * scale, truth.W * scale, rtol=0.0, atol=1e-13 * np.max(scale))
    # ν is a difference, in both ways, of what is at most the variance of a segment's noise: a tiny part of the prior's.
    sde = kernel.sde()
    Q = sde.dense([noise for _, noise in sde.transition(jnp.array(0.0), jnp.array(step))])
    np.testing.assert_allclose(ours.nu, truth.nu, rtol=0.0, atol=1e-14 * np.max(sde.H @ Q @ sde.H.T))


@pytest.mark.parametrize("name", ["Matern72", pytest.param("season", marks=pytest.mark.slow)])
def test_derivatives_are_those_of_the_weights(name):
    kernel, (z, x) = KERNELS[name](), places(0.5)
    vector, rng = unconstrain(kernel), np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: both(kernel, z, x))[0]
    along = [jnp.asarray(rng.normal(size=s.shape)) for s in jax.tree.leaves(shapes)]

    def total(v, way):
        found = both(constrain(kernel, v), z, x)[way]
        return sum(jnp.sum(a * b) for a, b in zip(along, jax.tree.leaves(found), strict=True))

    ours, truth = (jax.jit(jax.grad(total), static_argnums=1)(vector, way) for way in (0, 1))
    np.testing.assert_allclose(ours, truth, rtol=1e-10)
    twice = lambda v, way: jax.jvp(lambda v: jax.grad(total)(v, way), (v,), (jnp.ones_like(v),))[1]  # noqa: E731
    second, true_second = (jax.jit(twice, static_argnums=1)(vector, way) for way in (0, 1))
    np.testing.assert_allclose(second, true_second, rtol=1e-8, atol=1e-8 * np.max(np.abs(true_second)))


@pytest.mark.parametrize("kernel", [th.Matern32(lengthscale=0.1), th.Cosine(frequency=30.0)], ids=["forgets", "fast"])
def test_where_polynomials_do_not_do_every_weight_says_so(kernel):
    z, x = places(1.0)
    ours, truth = both(kernel, z, x)
    assert np.all(np.isnan(ours.W))
    assert np.all(np.isfinite(truth.W))
    assert even.terms_for(kernel, x, z) == 64


def test_they_are_for_even_times_that_hold_all_data_between_them_and_a_process_that_stays_the_same(monkeypatch):
    z = np.linspace(1.0, 7.0, 40)
    x, kernel = np.linspace(1.0, 7.0, 90), th.Matern52(lengthscale=2.0)
    assert even.terms_for(kernel, x, z) == 12
    assert even.terms_for(kernel, x - 0.1, z) is None
    assert even.terms_for(kernel, x + 0.1, z) is None
    assert even.terms_for(kernel, x, np.append(z[:-2], z[-1])) is None
    assert even.terms_for(kernel, x, np.where(z == z[3], z + 1e-9, z)) is None
    assert even.terms_for(th.Matern52(lengthscale=2.0) + th.Wiener(), x, z) is None
    assert even.terms_for(kernel, x[:0], z) is None
    assert even.terms_for(kernel, x[:1], z[:1]) is None
    with jax.enable_x64(False):
        assert even.terms_for(kernel, x, z) is None
    assert even.terms_for(kernel, np.repeat(x, 6000), z) is None
    monkeypatch.undo()
    assert even.terms_for(kernel, x, z) is None
    assert even.terms_for(kernel, np.repeat(x, 50), z) == 12


def counts(n=120):
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 10.0, n))
    return t, rng.poisson(np.exp(0.5 * np.sin(3.7 * t) + 0.15 * t)).astype(float)


def seasonal():
    return th.Matern32(variance=0.8, lengthscale=2.0) + th.QuasiPeriodic(0.5, 1.2, 1.7, 6.0, harmonics=3)


MODELS = {
    "tied": (lambda: th.GP(th.Matern52(lengthscale=2.0), th.Poisson(), inducing=25), Tied),
    "of the data": (lambda: th.GP(seasonal(), th.Poisson(), inducing=60), Grouped),
    "power EP": (lambda: th.GP(th.Matern52(lengthscale=2.0), th.Poisson(), inducing=25, rule=th.PowerEP(0.5)), Tied),
    "known": (lambda: th.GP(th.Matern52(lengthscale=2.0), th.Gaussian(), inducing=25), Tied),
}


def a_search(name, **change):
    t, y = counts()
    model, series, _, _ = MODELS[name][0]()._prepared(t, y, {})
    found = search.Search(model, series, np.ones(unconstrain(model).size), **change)
    assert isinstance(found.data, MODELS[name][1])
    assert found.data.even is not None
    assert found.plain.even is None
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_search_sees_the_objective_and_gradient_that_it_would_without(name):
    ours, plain = a_search(name), a_search(name)
    plain.data = plain.plain
    one, other = (s.evaluate(s.start) for s in (ours, plain))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-12)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-8, atol=1e-9 * np.max(np.abs(other.gradient)))


def test_data_in_several_groups_and_samples_of_them_keep_their_polynomials(monkeypatch):
    monkeypatch.setattr("thiele.inducing.MOST_AT_ONCE", 40)
    ours = a_search("tied")
    assert ours.data.segment.shape[0] > 1
    plain = ours.evaluate(ours.start)
    ours.data = ours.plain
    again = ours.evaluate(ours.start)
    np.testing.assert_allclose(plain.value, again.value, rtol=1e-10)
    sample = a_search("tied", batch_size=30)
    few, bare = (x.batch(np.random.default_rng(0), 30) for x in (sample.data, sample.plain))
    model = sample.model
    sites = training.begin(model, sample.plain)
    round_of = eqx.filter_jit(training.alternate)
    value, other = (round_of(model, unconstrain(model), data, sites)[0] for data in (few, bare))
    np.testing.assert_allclose(value, other, rtol=1e-12)


def test_an_objective_beyond_the_reach_is_asked_for_without_them():
    ours = a_search("tied")
    plain = a_search("tied")
    plain.data = plain.plain
    short = ours.start - np.log(np.array([1.0, 200.0]))[: ours.start.size]
    by_polynomials = training.objective_and_gradient(ours.model, jnp.asarray(short), ours.data, ours._first(short))
    assert np.isnan(by_polynomials[0][0])
    one, other = (s.evaluate(short) for s in (ours, plain))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-12)
    assert ours.data.even is not None  # the next point may be within


def test_the_paper_s_schedule_goes_on_without_them():
    ours, plain = a_search("tied"), a_search("tied")
    plain.data = plain.plain
    short = ours.start - np.log(np.array([1.0, 200.0]))[: ours.start.size]
    found = [s.several(short, optax.adam(0.1).init(short), 0.1, 3) for s in (ours, plain)]
    assert np.all(np.isfinite(found[0].values))
    np.testing.assert_allclose(found[0].values, found[1].values, rtol=1e-12)
    assert ours.data.even is None


def test_inducing_times_that_are_learnt_have_none():
    t, y = counts()
    gp = th.GP(th.Matern52(lengthscale=2.0), th.Poisson(), inducing=th.Inducing(12, learn=True))
    model, series, _, _ = gp._prepared(t, y, {})
    found = search.Search(model, series, np.ones(unconstrain(model).size))
    found.evaluate(found.start)
    assert found.data is found.plain
    assert found.data.even is None
