"""One command draws every figure; only those that were asked for fit models."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from experiments import __main__ as program
from experiments import dots, figures, paper, store

mpl.use("Agg")


def record(fold, **changes):
    plain = {"task": "coal", "method": "full-CVI", "fold": fold, "schedule": "best", "nlpd": 0.9, "seconds": 1.0}
    return {**plain, **changes}


@pytest.fixture
def results(tmp_path):
    for fold in range(3):
        store.append(record(fold, nlpd=0.9 + 0.01 * fold), tmp_path)
    settings = {"settings": {"inducing": 4}, "energy": -1000.0, "error": 0.1}
    store.append(record(0, task="banana-4", method="sparse-CVI", **settings), tmp_path / "figure4")
    return tmp_path


def test_the_stored_runs_are_drawn_and_nothing_is_fitted(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FITTED", {})
    program.main(["figures", "--results", str(results), "--out", str(tmp_path / "out")])
    drawn = [tmp_path / "out" / f"{name}.png" for name in ("table", "figure4")]
    assert capsys.readouterr().out.splitlines() == [f"drew {path}" for path in drawn]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_figures_that_fit_models_are_drawn_on_request(results, tmp_path, monkeypatch):
    fitted = []

    def pretend():
        fitted.append(True)
        return plt.figure()

    monkeypatch.setattr(figures, "FITTED", {"figure1": pretend})
    assert [path.stem for path in figures.draw(tmp_path, results)] == ["table", "figure4"]
    assert not fitted
    assert [path.stem for path in figures.draw(tmp_path, results, fit=True)] == ["table", "figure4", "figure1"]
    assert fitted


def test_figures_that_fit_are_figure_1_and_the_boundaries():
    assert list(figures.FITTED) == ["figure1", "moons-boundary", "banana-boundary"]


def test_the_table_has_a_panel_for_each_task_and_a_legend_of_what_is_drawn(results):
    figure = dots.draw(store.read(results).values())
    assert tuple(ax.get_title() for ax in figure.axes[: len(paper.TASKS)]) == paper.TASKS
    legend = figure.axes[-1].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["in print", "thiele, best"]
    plt.close(figure)


def test_a_mean_over_some_folds_is_hollow():
    figure, ax = plt.subplots()
    dots.dot(ax, dots.OURS["best"], "full-CVI", 0.9, None, whole=False)
    dots.dot(ax, dots.OURS["best"], "full-CVI", 0.9, 0.1)
    assert [line.get_markerfacecolor() for line in ax.lines] == ["white", dots.OURS["best"].colour]
    plt.close(figure)
