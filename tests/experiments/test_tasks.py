"""The tasks are the published ones: sizes, folds and settings."""

import numpy as np
import pytest

import thiele as th
from experiments import paper
from experiments.methods import METHODS
from experiments.run import SCHEDULES, settings
from experiments.tasks import FOLDS, TASKS, split
from tests.experiments.available import AVAILABLE, available

# rows in all, rows that train, rows that test, inducing times, Newton step, Adam step, iterations
PUBLISHED = {
    "motorcycle": (133, 117, 13, 30, 0.05, 0.025, 500),
    "coal": (333, 297, 33, 15, 0.5, 0.2, 500),
    "banana": (5300, 4770, 530, 15, 0.1, 0.1, 500),
    "binary": (10_000, 9000, 1000, 1000, 0.5, 0.1, 500),
    "audio": (22_050, 19_845, 2205, 3000, 0.5, 0.05, 500),
    "airline": (36_020, 32_418, 3602, 4000, 0.1, 0.1, 200),
    "electricity": (262_080, 235_872, 26_208, 50_000, 0.1, 0.1, 200),
}


@pytest.mark.parametrize("name", AVAILABLE)
def test_a_task_has_the_published_sizes_and_settings(name):
    task = TASKS[name]
    data, rows = task.load(), split(task, 0)
    sizes = len(data.time), len(rows.train), len(rows.test)
    assert (*sizes, task.inducing, task.newton, task.adam, task.iterations) == PUBLISHED[name]
    assert data.value.shape == data.time.shape[:1]


@pytest.mark.parametrize("name", AVAILABLE)
def test_the_folds_test_every_row_once_and_never_train_on_it(name):
    splits = [split(TASKS[name], fold) for fold in range(FOLDS)]
    tested = np.concatenate([s.test for s in splits])
    assert len(np.unique(tested)) == len(tested)
    for s in splits:
        assert not np.intersect1d(s.train, s.test).size
        assert np.array_equal(np.union1d(s.train, s.test), np.sort(tested))


def test_motorcycle_is_standardised_before_it_is_split():
    data = TASKS["motorcycle"].load()
    for x in (data.time, data.value):
        assert np.mean(x) == pytest.approx(0.0, abs=1e-12)
        assert np.std(x) == pytest.approx(1.0)


def test_coal_is_counted_in_bins_of_a_third_of_a_year():
    data = TASKS["coal"].load()
    assert data.covariates["exposure"] == pytest.approx(0.33338, abs=1e-5)
    assert np.sum(data.value) == 191


@pytest.mark.parametrize("name", [available("airline")])
def test_days_of_airline_are_padded_and_counted(name):
    data = TASKS[name].load()
    assert np.sum(data.value) == 1210
    assert not np.any(data.value[:61])


@pytest.mark.parametrize("name", [available("electricity")])
def test_electricity_is_the_logarithm_of_what_was_measured(name):
    data = TASKS[name].load()
    assert np.mean(data.value) == pytest.approx(-0.256, abs=5e-4)
    assert np.std(data.value) == pytest.approx(1.016, abs=5e-4)
    # What was not measured is left out: a gap of 3723 minutes in April.
    assert np.max(np.diff(data.time)) * 1440 == pytest.approx(3724, abs=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_the_mean_of_the_latent_functions_is_held_at_zero(name):
    model = TASKS[name].model(float)
    assert np.all(np.asarray(model.mean.value) == 0.0)
    assert not any(p.name.startswith("mean") and not p.fixed for p in th.parameters.parameters(model))


def test_every_method_by_sites_has_a_number_in_print_for_every_task():
    assert set(TASKS) <= set(paper.TASKS)
    by_sites = [method for method in METHODS if "VGP" not in method]
    assert {(task, method) for task in TASKS for method in by_sites} <= set(paper.NLPD)


def test_the_subbands_of_audio_are_harmonics_of_220_hertz_and_their_variances_are_held():
    learnt = {p.name: p for p in th.parameters.parameters(TASKS["audio"].model(float))}
    free = sorted(name for name, p in learnt.items() if not p.fixed)
    assert sum("frequency" in name for name in free) == 3
    assert not any("kernel" in name and "variance" in name for name in free)
    frequencies = [float(p.value) for name, p in learnt.items() if "frequency" in name]
    # In radians per millisecond.
    assert frequencies == pytest.approx([2.0 * np.pi * 0.22 * d for d in (1, 2, 3)])


def test_a_full_method_asks_for_no_inducing_times():
    assert all("inducing" not in method.settings(30, 0.5) for method in METHODS.values() if not method.sparse)


@pytest.mark.slow
@pytest.mark.parametrize("name", AVAILABLE)
def test_inducing_states_are_learnt_by_gradients_on_every_task(name):
    task = TASKS[name]._replace(iterations=2)
    data, (step, options, _) = task.load(), settings(task, "paper")
    model = task.model(float, **METHODS["S2VGP"].settings(10, step, task.between))
    fit = model.fit(data.time[:200], data.value[:200], progress=False, **options, **data.covariates)
    assert np.isfinite(fit.objective)
    assert np.all(np.isfinite(fit.log_density(data.time[:20], data.value[:20], **data.covariates)))


@pytest.mark.parametrize("name", TASKS)
def test_only_the_map_schedule_has_priors(name):
    for schedule in SCHEDULES:
        model = TASKS[name].model(settings(TASKS[name], schedule).start)
        priors = {p.prior is not None for p in th.parameters.parameters(model) if not p.fixed}
        assert priors == {schedule == "map"}
