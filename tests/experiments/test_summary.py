"""The summary has the layout of the paper's table, counts what agrees, and picks the best of each task."""

import pytest

from experiments import __main__ as program
from experiments import paper, store
from experiments.cells import cells
from experiments.methods import runs_as
from experiments.summary import agreement, as_good, best_cells, best_table, in_all, layout, summary


def records(task, method, nlpd, schedule="best", folds=10):
    # Spread a little, so that there is a standard error: 0.001 √(10/9) / √10 for ten folds.
    spread = [0.001 if fold % 2 else -0.001 for fold in range(folds)] if folds % 2 == 0 else [0.0] * folds
    return [
        {
            "task": task,
            "method": method,
            "fold": fold,
            "schedule": schedule,
            "nlpd": nlpd + spread[fold],
            "seconds": 2.0,
        }
        for fold in range(folds)
    ]


def grid(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_methods_are_down_and_tasks_across_with_ours_before_the_papers():
    found = cells([*records("coal", "full-CVI", 0.93), *records("binary", "S2VGP", 0.2, folds=3)])
    head, _, *lines = grid(layout("best", found))
    assert head == ["best", *paper.TASKS]
    assert [line[0] for line in lines] == list(paper.METHODS)
    by_method = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert by_method["full-CVI"]["coal"] == "0.930 / 0.924"
    assert by_method["full-CVI"]["binary"] == "- / 0.188"
    assert by_method["S2VGP"]["binary"] == "0.200 (3 folds) / 0.236"
    assert by_method["S2VGP"]["airline"] == "-"


def test_cells_are_counted_by_verdict_and_those_that_do_not_agree_are_named():
    found = cells(
        [
            *records("coal", "full-CVI", 0.93),
            *records("coal", "S2VGP", 1.0),
            *records("audio", "sparse-PEP(1)", -1.5, folds=1),
            *records("airline", "S2VGP", 0.1),
        ]
    )
    assert agreement("best", found).splitlines() == [
        "best: 3 of the paper's 92 cells were run: 1 within 0.01, 0 within s.e., 1 better, 1 worse.",
        "better: audio sparse-PEP(1) -0.174 (1 of 10 folds).",
        "worse: coal S2VGP +0.063.",
    ]


def test_each_cell_is_compared_under_its_nearest_schedule_and_what_was_not_run_is_named():
    found = cells(
        [
            *records("coal", "full-CVI", 0.95),
            *records("coal", "full-CVI", 0.925, schedule="paper"),
            *records("coal", "S2VGP", 1.0),
            *records("coal", "S2VGP", 1.1, schedule="paper"),
            *records("airline", "S2VGP", 0.1),
        ]
    )
    first, worse, missing = in_all(found).splitlines()
    assert first.startswith(
        "nearest schedule: 2 of the paper's 92 cells were run: 1 within 0.01, 0 within s.e., 0 better"
    )
    assert worse == "worse: coal S2VGP +0.063."
    assert missing.startswith("without a run: ")
    assert missing.count(",") == 89
    assert "coal full-CVI" not in missing


def test_the_best_of_a_task_is_over_the_most_folds_and_never_of_the_papers_schedule():
    found = cells(
        [
            *records("coal", "full-CVI", 0.93),
            *records("coal", "sparse-CVI", 0.92, schedule="map"),
            *records("coal", "sparse-PL", 0.5, folds=2),
            *records("coal", "sparse-EKS", 0.6, schedule="paper"),
        ]
    )
    assert [(task, cell.method) for task, cell in best_cells(found).items()] == [("coal", "sparse-CVI")]


def test_the_best_rows_have_the_best_in_print_and_say_what_was_not_run():
    lines = {line[0]: line for line in grid(best_table(cells(records("motorcycle", "sparse-CVI", 0.4174))))}
    assert lines["motorcycle"] == [
        *("motorcycle", "sparse-CVI", "best", "10 of 10", "0.4174", "0.0003", "2.0"),
        *("0.420", "yes", "0.415", "within 0.01"),
    ]
    assert lines["electricity"][-4:] == ["-0.153", "not run", "-0.420", "not run"]


@pytest.mark.parametrize(("nlpd", "word"), [(0.9244, "yes"), (0.9246, "within 0.01"), (0.94, "no")])
def test_as_good_is_to_the_decimals_in_print(nlpd, word):
    (cell,) = cells(records("coal", "full-CVI", nlpd))
    assert as_good(cell, 0.924) == word


def test_nothing_stored_is_a_summary_too():
    assert summary([]).count("not run") == 2 * len(paper.TASKS)


def test_the_command_prints_what_is_stored(tmp_path, capsys):
    for record in records("coal", "full-CVI", 0.93, schedule="map"):
        store.append(record, tmp_path)
    program.main(["summary", "--results", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "| map " in printed
    assert "map: 1 of the paper's 92 cells were run" in printed


@pytest.mark.parametrize("task", paper.TASKS)
def test_the_numbers_in_print_have_standard_errors(task):
    printed = {method for t, method in paper.NLPD if t == task}
    assert printed == {method for t, method in paper.STANDARD_ERROR if t == task}
    assert len(printed) == (14 if paper.TASKS.index(task) < 4 else 12)


def test_the_best_in_print_are_the_papers():
    assert paper.best("electricity", full=False) == -0.153
    assert paper.best("electricity", full=True) == -0.420


def test_full_models_of_gaussian_data_are_one_method_that_is_run_once():
    assert {runs_as("electricity", f"full-{rule}") for rule in ("EKS", "PL", "PEP(1)", "CVI")} == {"full-CVI"}
    assert runs_as("electricity", "sparse-PL") == "sparse-EKS"
    assert runs_as("electricity", "sparse-CVI") == "sparse-CVI"
    assert runs_as("audio", "full-PL") == "full-PL"
    found = cells([*records("electricity", "full-CVI", -0.43), *records("audio", "full-CVI", 0.4)])
    exact = [cell for cell in found if cell.task == "electricity"]
    assert {cell.method for cell in exact} == {method for method in paper.METHODS if method.startswith("full-")}
    assert {(cell.nlpd, cell.folds) for cell in exact} == {(exact[0].nlpd, 10)}
    assert [cell.method for cell in found if cell.task == "audio"] == ["full-CVI"]


def test_a_method_that_another_stands_for_is_not_run_again(tmp_path, monkeypatch, capsys):
    for record in records("electricity", "full-CVI", -0.43, folds=2):
        store.append(record, tmp_path)
    monkeypatch.setattr(program, "run", lambda *_: pytest.fail("it is there"))
    program.main(
        ["table", "--tasks", "electricity", "--methods", "full-PL", "--folds", "0", "1", "--results", str(tmp_path)]
    )
    _, _, *lines = grid(capsys.readouterr().out.strip())
    assert [line[:4] for line in lines] == [["electricity", "full-PL", "best", "2 of 10"]]
