"""The comparison with BayesNewton, as far as it can be tested without its environment."""

import json
from itertools import cycle

import numpy as np
import pytest

from benchmarks import reference
from benchmarks.settings import settings_of, write_data
from benchmarks.training import MOST_STEPS, Ran, Training
from experiments.tasks import TASKS, split
from tests.experiments.available import AVAILABLE


def result(theirs=0.9, ours=0.9, **changes):
    reference_found = {"seconds": 0.02, "compile": 6.0, "peak": 400.0, "nlpd": theirs, "total": 10.0}
    thiele_found = {"seconds": 0.01, "compile": 3.0, "peak": 200.0, "nlpd": ours, "total": 0.5, "steps": 4}
    thiele_found["compile best"] = 7.0
    plain = {"task": "coal", "kind": "sparse", "rule": "CVI", "iterations": 500}
    return {**plain, "reference": reference_found, "thiele": thiele_found, **changes}


def test_large_tasks_run_only_when_asked_for_by_name():
    options = reference.parser().parse_args([])
    assert not set(options.tasks) & set(reference.LARGE)
    assert options.kinds == ["sparse", "full"]
    assert options.rules == ["CVI", "PEP"]
    assert options.iterations is None


@pytest.mark.parametrize(
    ("iterations", "expected"), [(1, [1]), (2, [1]), (4, [1, 1, 1]), (11, [4, 4]), (500, [50] * 3)]
)
def test_turns_take_no_more_iterations_than_the_schedule_has(iterations, expected):
    assert reference.rounds(iterations) == expected
    assert sum(expected) <= max(iterations - 1, 1)


def test_a_row_has_both_and_the_ratios():
    row = reference.iteration_row(result())
    assert row == (
        *("coal", "sparse", "CVI", "0.02", "0.01", "2.0"),
        *("6.0", "3.0", "2.0", "400", "200", "2.0"),
    )
    assert len(row) == len(reference.ITERATION)


@pytest.mark.parametrize(("ours", "words"), [(0.8, "20.0"), (0.9009, "20.0"), (0.9123, "short by 0.0123")])
def test_speed_counts_only_at_an_nlpd_at_least_as_good(ours, words):
    row = reference.final_row(result(ours=ours))
    assert row[-1] == words
    assert len(row) == len(reference.FINAL)


class Pretended:
    """A training whose NLPD after k steps is 1/k, and whose fits take the seconds that are given, in turn."""

    def __init__(self, seconds=(2.0,)):
        self.asked, self.seconds = [], cycle(seconds)

    def best(self, most):
        self.asked.append(most)
        return Ran(most, next(self.seconds), 0.0, np.zeros(0))

    def nlpd(self, fit):
        return 1.0 / fit


@pytest.mark.parametrize(("target", "asked"), [(0.3, [1, 2, 4]), (1.0, [1]), (0.0, [1, 2, 4, 8, 16, 32, 64, 128, 200])])
def test_the_shortest_search_that_is_good_enough_is_looked_for(target, asked):
    pretended = Pretended()
    _, steps, nlpd = Training.reach(pretended, target)
    assert pretended.asked == asked
    assert (steps, nlpd) == (asked[-1], 1.0 / asked[-1])


def test_short_fits_are_timed_several_times():
    pretended = Pretended([0.03, 0.01, 0.05])
    ran, _, _ = Training.reach(pretended, 1.0)
    assert pretended.asked == [1] * 9
    assert ran.seconds == 0.03


def test_without_a_target_the_search_goes_to_its_end():
    pretended = Pretended()
    Training.reach(pretended, None)
    assert pretended.asked == [MOST_STEPS]


def test_what_the_reference_cannot_do_is_said_in_words():
    found = result(reference={"trouble": "its energy is nan at iteration 1"})
    assert reference.final_row(found)[-1] == "-"
    assert "-" in reference.iteration_row(found)
    assert "coal, sparse, CVI: BayesNewton: its energy is nan at iteration 1" in reference.show([found])


@pytest.mark.parametrize("name", AVAILABLE)
def test_the_worker_gets_the_settings_and_the_data_of_the_task(name, tmp_path):
    task = TASKS[name]
    data, rows = task.load(), split(task, 0)
    settings = settings_of(task, data, "sparse", "CVI")
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings
    assert (settings["newton"], settings["adam"]) == (task.newton, task.adam)
    write_data(task, data, rows, tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as written:
        assert np.array_equal(written["time"], data.time[rows.train])
        assert np.array_equal(written["test_value"], data.value[rows.test])
        assert written["inducing"].shape == (task.inducing,)


def test_hyperparameters_that_are_held_are_named():
    task = TASKS["audio"]
    parts = settings_of(task, TASKS["coal"].load(), "full", "PEP")["kernel"]["parts"]
    assert [part["name"] for part in parts] == ["Subband"] * 3 + ["Matern52"] * 3
    assert all(part["held"] == ["variance"] for part in parts)
    assert parts[0]["order"] == 0.5


def test_space_is_described_by_its_kernel_and_its_points():
    kernel = settings_of(TASKS["banana"], TASKS["coal"].load(), "sparse", "CVI")["kernel"]
    assert [part["name"] for part in kernel["parts"]] == ["Matern52", "Matern52"]
    assert kernel["parts"][1]["held"] == ["variance"]
    assert kernel["points"] == pytest.approx(np.linspace(-3.0, 3.0, 15))


def test_counts_bring_their_exposure():
    task = TASKS["coal"]
    likelihood = settings_of(task, task.load(), "sparse", "CVI")["likelihood"]
    assert likelihood["name"] == "Poisson"
    assert likelihood["exposure"] == pytest.approx(0.33338, abs=1e-5)
