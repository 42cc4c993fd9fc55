"""Runs are stored, resumed and printed beside the paper's numbers."""

import json

import pytest

from experiments import __main__ as program
from experiments import paper, store
from experiments.cells import cells
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
        *("coal", "full-CVI", "best", "2 of 10", "0.9500", "0.0500"),
        *(f"{paper.NLPD['coal', 'full-CVI']:.3f}", "+0.0260", "within s.e.", "1.0"),
    ]


def test_what_is_not_in_print_and_the_error_of_one_fold_are_dashes():
    text = table([record(task="airline", method="S2VGP")])
    assert [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")] == [
        *("airline", "S2VGP", "best", "1 of 10", "0.9000", "-", "-", "-", "-", "1.0"),
    ]


@pytest.mark.parametrize(
    ("nlpd", "verdict"),
    [
        ((0.931, 0.935), "within 0.01"),
        ((0.875, 0.995), "within s.e."),
        ((0.900, 0.901), "better"),
        ((0.950, 0.951), "worse"),
        ((0.950,), "worse"),
    ],
)
def test_a_cell_is_near_the_number_in_print_or_better_or_worse(nlpd, verdict):
    (cell,) = cells([record(fold, nlpd=value) for fold, value in enumerate(nlpd)])
    assert cell.printed == 0.924
    assert cell.verdict == verdict


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


def refuse(*_):
    raise AssertionError("nothing was to be run")


def test_what_is_stored_is_printed_without_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "run", refuse)
    store.append(record(0), tmp_path)
    store.append(record(0, schedule="map"), tmp_path)
    store.append(record(0, task="binary"), tmp_path)
    program.main(["table", "--stored", "--tasks", "coal", "--results", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["best", "map"]
    program.main(["table", "--stored", "--schedule", "map", "--results", str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_method_without_a_number_in_print_is_run_and_one_that_is_too_large_is_left_out(tmp_path, monkeypatch, capsys):
    ran = []

    def pretend(task, method, fold, schedule):
        ran.append((task.name, method.name))
        return record(fold, task=task.name, method=method.name, schedule=schedule)

    monkeypatch.setattr(program, "run", pretend)
    program.main(["table", "--methods", "S2VGP", "SVGP", "--folds", "0", "--results", str(tmp_path)])
    assert [task for task, method in ran if method == "S2VGP"] == list(TASKS)
    assert [task for task, method in ran if method == "SVGP"] == ["motorcycle", "coal", "banana", "binary"]
    left_out = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert [line.split()[:2] for line in left_out] == [[task, "SVGP"] for task in ("audio", "airline", "electricity")]
    assert "50000 inducing times" in left_out[-1]


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
