"""Runs are stored, resumed and printed beside the paper's numbers."""

import json

import pytest

from experiments import __main__ as program
from experiments import paper, store
from experiments.methods import METHODS
from experiments.run import run
from experiments.table import table
from experiments.tasks import TASKS
from tests.experiments.available import available


def record(fold=0, **changes):
    plain = {"task": "coal", "method": "full-CVI", "fold": fold, "schedule": "best", "nlpd": 0.9, "seconds": 1.0}
    return {**plain, **changes}


def test_what_is_stored_is_read_back(tmp_path):
    for fold in range(3):
        store.append(record(fold), tmp_path)
    store.append(record(1, task="binary"), tmp_path)
    assert list(store.read(tmp_path).values()) == [record(1, task="binary"), *(record(fold) for fold in range(3))]


def test_a_line_cut_short_is_run_again_and_spoils_no_other(tmp_path):
    store.append(record(0), tmp_path)
    with (tmp_path / "coal.jsonl").open("a") as file:
        file.write(json.dumps(record(1))[:20])
    assert list(store.read(tmp_path).values()) == [record(0)]
    store.append(record(1), tmp_path)
    assert list(store.read(tmp_path).values()) == [record(0), record(1)]


def test_a_number_that_is_none_is_not_stored(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        store.append(record(nlpd=float("nan")), tmp_path)
    assert store.read(tmp_path) == {}


def test_the_table_shows_the_mean_the_paper_and_the_difference():
    text = table([record(0, nlpd=0.9), record(1, nlpd=1.0)])
    assert [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")] == [
        *("coal", "full-CVI", "best", "2"),
        *("0.9500", f"{paper.NLPD['coal', 'full-CVI']:.3f}", "+0.0260", "1.0"),
    ]


def test_the_command_runs_only_what_is_missing(tmp_path, monkeypatch, capsys):
    ran = []

    def pretend(task, method, fold, schedule):
        ran.append(fold)
        return record(fold, task=task.name, method=method.name, schedule=schedule)

    monkeypatch.setattr(program, "run", pretend)
    command = ["table", "--tasks", "coal", "--methods", "full-CVI", "--results", str(tmp_path), "--folds"]
    program.main([*command, "0", "2"])
    program.main([*command, "0", "1", "2"])
    assert ran == [0, 2, 1]
    assert "| coal" in capsys.readouterr().out


@pytest.mark.parametrize("name", [available("coal")])
def test_one_run_fits_and_scores(name):
    task = TASKS[name]._replace(iterations=2)
    found = run(task, METHODS["full-CVI"], 0, "paper")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["sweeps"] == 2
    assert 0.5 < found["nlpd"] < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [available("motorcycle")])
@pytest.mark.parametrize("fold", [1, 9])
def test_sites_of_other_hyperparameters_do_not_spoil_a_fit_with_changing_noise(fold, name):
    found = run(TASKS[name], METHODS["full-CVI"], fold, "best")
    assert found["converged"]
    assert found["nlpd"] < 0.2
