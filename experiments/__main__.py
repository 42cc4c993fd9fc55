"""The paper's experiments.

    python -m experiments table [--tasks coal binary] [--methods full-CVI] [--folds 0 1] [--schedule best|paper|map]

runs what has not been run yet, one line of JSON for each run under experiments/results, and prints the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import paper, store
from experiments.methods import METHODS
from experiments.run import SCHEDULES, run
from experiments.table import table
from experiments.tasks import FOLDS, TASKS


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments", description="The paper's experiments.")
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("table", help="NLPD of every task and method, beside the paper's")
    asked.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    asked.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    asked.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=list(range(FOLDS)))
    asked.add_argument("--schedule", choices=SCHEDULES, default="best")
    asked.add_argument("--results", type=Path, default=store.RESULTS, help="the folder of the records")
    options = parser.parse_args(arguments)
    keys = [
        (task, method, fold, options.schedule)
        for task in options.tasks
        for method in options.methods
        for fold in options.folds
        if (task, method) in paper.NLPD  # what the paper could not run is not asked for here either
    ]
    done = store.read(options.results)
    for task, method, fold, schedule in keys:
        if (task, method, fold, schedule) in done:
            continue
        record = run(TASKS[task], METHODS[method], fold, schedule)
        store.append(record, options.results)
        print(f"{task} {method} fold {fold}: NLPD {record['nlpd']:.4f} in {record['seconds']:.1f} s", flush=True)
    done = store.read(options.results)
    print(table(done[key] for key in keys))


if __name__ == "__main__":
    main()
