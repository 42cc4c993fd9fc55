"""How a search takes turns with the sites, and where it ends if these do not converge."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thiele as th
from thiele import schedules, search, training
from thiele.energies import energy
from thiele.inference import sweep
from thiele.learn import climb, in_turn, maximise
from thiele.parameters import constrain, unconstrain

RNG = np.random.default_rng(11)
T = np.sort(RNG.uniform(0.0, 10.0, 40))
Y = RNG.poisson(np.exp(1.0 + np.sin(T))).astype(float)
Z = np.linspace(0.0, 10.0, 6)
OPTIONS = schedules.Options(tolerance=1e-3, max_steps=40, learning_rate=0.1, settle=True, progress=False)


def model(rule, inducing=None):
    return th.GP(th.Matern32(1.0, 1.0), th.Poisson(), rule=rule, inducing=inducing)


@pytest.mark.parametrize("inducing", [None, Z], ids=["full", "sparse"])
def test_a_round_of_plain_gradients_moves_sites_and_hyperparameters_along_one_gradient(inducing):
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.VGP(step=0.1), inducing)._prepared(T, Y, {})
        data, vector = search.tied(gp, series), unconstrain(gp)
        begun = training.begin(gp, data)
        value, gradient, ahead, _ = training.alternate(gp, vector, data, begun)

        def elbo(v, factors):
            return energy(gp.rule, *training.setting(constrain(gp, v), data), factors.sites())

        expected, (by_vector, by_factors) = jax.value_and_grad(elbo, argnums=(0, 1))(vector, begun.factors)
        change, _ = optax.adam(0.1).update(jax.tree.map(jnp.negative, by_factors), begun.memory)
        moved = optax.apply_updates(begun.factors, change)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(gradient, by_vector, rtol=1e-8)
    for new, wanted in zip(ahead.factors, moved, strict=True):
        np.testing.assert_allclose(new, wanted, rtol=1e-8)


@pytest.mark.parametrize(
    ("rule", "inducing"),
    [(th.CVI(step=0.3), Z), (th.PowerEP(0.5, step=0.3), None), (th.PL(step=0.3), None)],
    ids=["CVI", "PEP", "PL"],
)
def test_a_round_is_the_energy_of_the_sites_and_a_sweep_from_them(rule, inducing):
    with jax.enable_x64(True):
        gp, series, _, _ = model(rule, inducing)._prepared(T, Y, {})
        data, vector = search.tied(gp, series), unconstrain(gp)
        sites = training.begin(gp, data)

        def at(v):
            return training.setting(constrain(gp, v), data)

        value, gradient, ahead, _ = training.alternate(gp, vector, data, sites)
        np.testing.assert_allclose(value, energy(rule, *at(vector), sites), rtol=1e-10)
        for new, wanted in zip(ahead, sweep(rule, *at(vector), sites).sites, strict=True):
            np.testing.assert_allclose(new, wanted, rtol=1e-8, atol=1e-10 * np.max(np.abs(wanted)))
        # q is held in the sum over data where the rule's energy is stationary in it once sites have converged.
        q, _ = at(vector).data.smooth(at(vector).chain, sites)

        def held(v):
            there = at(v)
            terms = there.data.terms(rule, there.likelihood, there.chain, q, sites)[0]
            return there.data.log_normaliser(there.chain, sites) + terms

        expected = jax.grad(held if rule.stationary else lambda v: energy(rule, *at(v), sites))(vector)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7)


@pytest.mark.parametrize("inducing", [None, Z], ids=["full", "sparse"])
def test_plain_gradients_end_near_the_optimum_of_cvi(inducing):
    fast = model(th.CVI(), inducing).fit(T, Y, progress=False)
    plain = model(th.VGP(), inducing).fit(T, Y, progress=False)
    assert fast.objective - 0.05 < plain.objective < fast.objective + 1e-3
    assert len(plain.trace.objective) > 1
    for times in (plain.trace.seconds, plain.trace.sweeps):
        assert np.all(np.diff(times) >= 0.0)
    np.testing.assert_allclose(plain.predict(T).mean, fast.predict(T).mean, atol=0.1)


def test_plain_gradients_stay_where_the_paper_s_schedule_took_them():
    fit = model(th.VGP()).fit(T, Y, schedule="paper", max_steps=5, progress=False)
    with jax.enable_x64(True):
        at = training.setting(fit.model, fit.data)
        np.testing.assert_allclose(fit.objective, energy(fit.model.rule, *at, fit.sites), rtol=1e-9)
    assert not fit.converged


class Restless(search.Search):
    """Sites that are never said to converge."""

    def evaluate(self, scaled):
        found = super().evaluate(scaled)
        self.settled = False
        return found


def test_sites_that_never_converge_are_learnt_with_in_rounds():
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.CVI())._prepared(T, Y, {})
        ended = schedules.best(Restless(gp, series, np.ones(2)), OPTIONS)
    best = model(th.CVI()).fit(T, Y, progress=False)
    assert "without a gain" in ended.learnt.message
    assert bool(ended.found.report.unconverged)
    assert best.objective - 1e-2 < ended.objective < best.objective + 1e-6


class Blind(Restless):
    """Sites that do not converge at the start, and no number ever after."""

    asked = 0

    def evaluate(self, scaled):
        found = super().evaluate(scaled)
        self.asked += 1
        return found if self.asked == 1 else found._replace(value=np.nan)


def test_what_the_rounds_found_is_kept_where_the_search_cannot_go_on():
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.CVI())._prepared(T, Y, {})
        ended = schedules.best(Blind(gp, series, np.ones(2)), OPTIONS)
    assert np.isfinite(ended.objective)
    assert "without a gain" in ended.learnt.message
    assert len(ended.learnt.trace.objective) > 50


def test_rounds_go_half_of_what_the_rule_asks_for_at_most(monkeypatch):
    steps, plain = [], training.rounds

    def noting(gp, *rest):
        steps.append(gp.rule.step)
        return plain(gp, *rest)

    monkeypatch.setattr(training, "rounds", noting)
    for step, expected in ((1.0, 0.5), (0.2, 0.2)):
        steps.clear()
        with jax.enable_x64(True):
            gp, series, _, _ = model(th.CVI(step=step))._prepared(T, Y, {})
            schedules.best(Restless(gp, series, np.ones(2)), OPTIONS._replace(max_steps=1))
        assert set(steps) == {expected}


@pytest.mark.parametrize("inducing", [None, Z], ids=["full", "sparse"])
def test_where_sweeps_climb_the_energy_rounds_begin_where_these_have_led(monkeypatch, inducing):
    begun, plain = [], training.rounds

    def noting(gp, data, climber, *rest):
        begun.append(climber.state)
        return plain(gp, data, climber, *rest)

    monkeypatch.setattr(training, "rounds", noting)
    with jax.enable_x64(True):
        for rule, carries_on in ((th.CVI(), True), (th.PowerEP(), False), (th.VGP(), False)):
            begun.clear()
            gp, series, _, _ = model(rule, inducing)._prepared(T, Y, {})
            found = Restless(gp, series, np.ones(2))
            ended = schedules.best(found, OPTIONS._replace(max_steps=1))
            same = jax.tree.structure(begun[0]) == jax.tree.structure(found.left_off) and all(
                np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (begun[0], found.left_off)), strict=True)
            )
            assert same == carries_on
            if carries_on:
                np.testing.assert_allclose(ended.learnt.trace.objective[0], found.most, rtol=1e-9)


def test_rounds_that_are_cut_short_are_the_end_of_the_search():
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.CVI())._prepared(T, Y, {})
        found = Restless(gp, series, np.ones(2))
        ended = schedules.best(found, OPTIONS._replace(max_steps=2))
    assert ended.learnt.message == "10 steps were taken"
    assert len(ended.learnt.trace.objective) == 10


def test_rounds_end_when_they_gain_nothing():
    values = iter([0.0, 1.0, *[1.0 + 1e-9] * 200])

    def several(vector, memory, learning_rate, most):
        one = np.ones((1, 2))
        return search.Rounds(one, np.array([next(values)]), one, np.zeros(1), vector, memory)

    found = climb(several, np.zeros(2), 0.1, steps=150, progress=False, gain=1e-6)
    assert found.converged
    assert len(found.trace.objective) == 52
    assert "52 steps were taken, the last 50 without a gain" in found.message
    assert len(climb(several, np.zeros(2), 0.1, steps=100, progress=False).trace.objective) == 100


def test_a_search_that_may_not_begin_says_so_and_another_goes_on_from_there():
    def hill(x):
        return search.Evaluation(-float(x @ x), -2.0 * x, sweeps=3)

    start = np.array([1.0, -2.0])
    rest = {"tolerance": 1e-6, "max_steps": 20, "progress": False}
    first = maximise(hill, start, **rest, begins=lambda: False)
    np.testing.assert_array_equal(first.vector, start)
    assert not first.converged
    assert "not begun" in first.message
    second = maximise(hill, start, **rest)
    both = in_turn(first, second)
    assert both.converged
    np.testing.assert_array_equal(both.vector, second.vector)
    assert len(both.trace.objective) == 1 + len(second.trace.objective)
    assert both.trace.sweeps[-1] == 3 + second.trace.sweeps[-1]
    assert np.all(np.diff(both.trace.seconds) >= 0.0)


def test_rounds_end_at_the_best_state_that_they_began_with():
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.VGP(step=3.0))._prepared(T, Y, {})
        ended = schedules.best(Restless(gp, series, np.ones(2)), OPTIONS._replace(max_steps=5, learning_rate=2.0))
        at = training.setting(constrain(gp, jnp.asarray(ended.learnt.vector)), series)
        np.testing.assert_allclose(ended.objective, energy(gp.rule, *at, ended.found.sites), rtol=1e-9)
    values = ended.learnt.trace.objective
    began = values[:: schedules.BETWEEN_STATES]
    assert ended.objective > np.max(began) - 1e-9
    assert np.max(began) > values[-1] + 0.1


def test_a_search_that_ends_where_it_looked_last_does_not_look_again(monkeypatch):
    looks, look = [], training.objective_and_gradient
    monkeypatch.setattr(training, "objective_and_gradient", lambda *args: looks.append(0) or look(*args))
    with jax.enable_x64(True):
        gp, series, _, _ = model(th.CVI())._prepared(T, Y, {})
        found = search.Search(gp, series, np.ones(len(unconstrain(gp))))
        value = found.evaluate(found.start).value
        assert found.at(found.start)[0] == pytest.approx(value, rel=1e-12)
        assert len(looks) == 1
        assert found.at(found.start + 0.5)[0] != pytest.approx(value, rel=1e-3)
        assert len(looks) == 2
