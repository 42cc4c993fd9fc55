"""The tasks are the published ones: sizes, folds and settings."""

import numpy as np
import pytest

import thiele as th
from experiments import paper
from experiments.methods import METHODS
from experiments.run import SCHEDULES, settings
from experiments.tasks import FOLDS, TASKS, split
from tests.experiments.available import AVAILABLE

# rows in all, rows that train, rows that test, inducing times, Newton step, Adam step, iterations
PUBLISHED = {
    "motorcycle": (133, 117, 13, 30, 0.05, 0.025, 500),
    "coal": (333, 297, 33, 15, 0.5, 0.2, 500),
    "binary": (10_000, 9000, 1000, 1000, 0.5, 0.1, 500),
}


@pytest.mark.parametrize("name", AVAILABLE)
def test_a_task_has_the_published_sizes_and_settings(name):
    task = TASKS[name]
    data, rows = task.load(), split(task, 0)
    sizes = len(data.time), len(rows.train), len(rows.test)
    assert (*sizes, *task[3:]) == PUBLISHED[name]
    assert data.time.shape == data.value.shape


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


@pytest.mark.parametrize("name", TASKS)
def test_the_mean_of_the_latent_functions_is_held_at_zero(name):
    model = TASKS[name].model(float)
    assert np.all(np.asarray(model.mean.value) == 0.0)
    assert not any(p.name.startswith("mean") and not p.fixed for p in th.parameters.parameters(model))


def test_every_method_and_task_has_a_number_in_print():
    assert set(TASKS) <= set(paper.TASKS)
    assert {(task, method) for task in TASKS for method in METHODS} <= set(paper.NLPD)


def test_a_full_method_asks_for_no_inducing_times():
    assert all("inducing" not in method.settings(30, 0.5) for method in METHODS.values() if not method.sparse)


@pytest.mark.parametrize("name", TASKS)
def test_only_the_map_schedule_has_priors(name):
    for schedule in SCHEDULES:
        model = TASKS[name].model(settings(TASKS[name], schedule).start)
        priors = {p.prior is not None for p in th.parameters.parameters(model) if not p.fixed}
        assert priors == {schedule == "map"}
