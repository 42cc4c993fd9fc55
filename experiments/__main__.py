"""The paper's experiments.

    python -m experiments table [--tasks coal binary] [--methods full-CVI] [--folds 0 1] [--schedule best|paper|map]

runs what has not been run yet, one line of JSON for each run under experiments/results, and prints the table. The rest
runs nothing:

    python -m experiments table --stored      prints the table of what is there
    python -m experiments summary             prints it in the layout of the paper's, and the best of each task
    python -m experiments figures [--fit]     draws it; with --fit also the figures that fit models first
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import store
from experiments.methods import METHODS, runs_as
from experiments.run import SCHEDULES, run
from experiments.summary import summary
from experiments.table import table
from experiments.tasks import FOLDS, TASKS


def possible(tasks: Sequence[str], methods: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs that can be run; a line is printed for each of the others."""
    pairs = []
    for task in tasks:
        for method in methods:
            obstacle = METHODS[method].obstacle(TASKS[task].inducing)
            if obstacle is None:
                pairs.append((task, method))
            else:
                print(f"{task} {method} is left out: {obstacle}", flush=True)
    return pairs


def run_missing(keys: Sequence[store.Key], folder: Path) -> None:
    """Run what is not there yet, and store each as soon as it is done."""
    done = store.read(folder)
    wanted = {(task, runs_as(task, method), fold, schedule): None for task, method, fold, schedule in keys}
    for task, method, fold, schedule in wanted:
        if (task, method, fold, schedule) in done:
            continue
        record = run(TASKS[task], METHODS[method], fold, schedule)
        store.append(record, folder)
        print(f"{task} {method} fold {fold}: NLPD {record['nlpd']:.4f} in {record['seconds']:.1f} s", flush=True)


def print_table(options: argparse.Namespace) -> None:
    """Run what is missing, unless only what is stored was asked for, and print."""
    if not options.stored:
        pairs = possible(options.tasks, options.methods)
        run_missing(
            [(*pair, fold, options.schedule or "best") for pair in pairs for fold in options.folds], options.results
        )
    schedules = [options.schedule] if options.schedule else SCHEDULES if options.stored else ["best"]
    found = store.read(options.results).values()
    asked = {"task": options.tasks, "fold": options.folds, "schedule": schedules}
    records = (record for record in found if all(record[name] in some for name, some in asked.items()))
    print(table(records, options.methods))


def print_summary(options: argparse.Namespace) -> None:
    """Print what is stored in the layout of the paper's table."""
    print(summary(store.read(options.results).values()))


def draw_figures(options: argparse.Namespace) -> None:
    """Draw what is stored, and what must be fitted if that was asked for."""
    from experiments import figures  # the other commands need no matplotlib

    for path in figures.draw(options.out, options.results, fit=options.fit):
        print(f"drew {path}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments", description="The paper's experiments.")
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--results", type=Path, default=store.RESULTS, help="the folder of the records")

    asked = commands.add_parser("table", parents=[common], help="NLPD of every task and method, beside the paper's")
    asked.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    asked.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    asked.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=list(range(FOLDS)))
    asked.add_argument("--schedule", choices=SCHEDULES, help="best, or with --stored all that are there")
    asked.add_argument("--stored", action="store_true", help="run nothing: print what is there")
    asked.set_defaults(do=print_table)

    brief = commands.add_parser("summary", parents=[common], help="what is stored, in the layout of the paper's table")
    brief.set_defaults(do=print_summary)

    drawn = commands.add_parser("figures", parents=[common], help="draw what is stored")
    drawn.add_argument("--out", type=Path, default=Path("figures"), help="the folder of the pictures")
    drawn.add_argument("--fit", action="store_true", help="also figures 1 and 3, which fit models first")
    drawn.set_defaults(do=draw_figures)

    options = parser.parse_args(arguments)
    options.do(options)


if __name__ == "__main__":
    main()
