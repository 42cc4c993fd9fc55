"""thiele beside BayesNewton, the published successor of the paper's programs, on the tasks of the experiments.

    python -m benchmarks.reference [--tasks coal binary] [--kinds sparse full] [--rules CVI PEP] [--iterations N]

Both train on the first fold of the same task in one run on one machine, in turn, each in a process and an environment
of its own. Measured are one iteration of the published schedule (an update of the sites, the gradient of the energy, a
step of Adam), compile time, peak memory of the process, and the time to the reference's final NLPD: the reference runs
its schedule to the end; thiele's time is that of the shortest `fit(schedule="best", max_steps=…)`, of 1, 2, 4, … steps,
whose NLPD is at least as good, in a warm process. With `--projected` the reference stops after `--iterations`, its time
is that of the published number of them, and its NLPD the one in print, a mean over ten folds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.environment import REFERENCE, python_of
from benchmarks.process import Slow, Worker
from benchmarks.settings import settings_of, write_data
from benchmarks.training import KINDS, RULES
from experiments import paper
from experiments.tasks import TASKS, split

# The reference takes minutes an iteration, and up to 18 GB: only when asked for by name.
LARGE = ("airline", "electricity")
NAMES = {"reference": "BayesNewton", "thiele": "thiele"}
ROUNDS = 3
MOST_IN_A_ROUND = 50
# NLPDs that differ by less are equal: the third decimal is the last that the paper prints.
EQUAL = 1e-3

Found = dict[str, Any]


class Unanswered(Exception):
    """The reference could not do what was asked; the message says why."""


def rounds(iterations: int) -> list[int]:
    """How many iterations each turn takes; the first of the schedule compiles, and is not among them."""
    left = max(iterations - 1, 1)
    size = min(MOST_IN_A_ROUND, -(-left // ROUNDS))
    return [size] * min(ROUNDS, left // size)


def asked(worker: Worker, limit: float, **request: Any) -> Found:
    try:
        answer = worker.ask(limit, **request)
    except Slow:
        raise Unanswered(f"no answer within {limit:g} s") from None
    for trouble in ("unable", "failed"):
        if trouble in answer:
            raise Unanswered(answer[trouble])
    return answer


class Case:
    """One task with one kind of sites and one rule, and the two workers that are asked about it."""

    def __init__(self, task: str, kind: str, rule: str, iterations: int | None, limit: float, python: Path | str):
        self.task, self.limit = TASKS[task], limit
        self.iterations = iterations or self.task.iterations
        self.found: Found = {"task": task, "kind": kind, "rule": rule, "iterations": self.iterations}
        self.workers = {
            "reference": Worker("bayesnewton", python),
            "thiele": Worker("training", sys.executable),
        }

    def run(self, folder: Path, iteration_only: bool = False, projected: bool = False) -> Found:
        data = self.task.load()
        path = folder / "data.npz"
        write_data(self.task, data, split(self.task, 0), path)
        settings = settings_of(self.task, data, self.found["kind"], self.found["rule"])
        try:
            self.prepare(settings, path)
            self.alternate()
            if not iteration_only:
                self.project() if projected else self.complete()
                self.reach()
        finally:
            for worker in self.workers.values():
                worker.close(kill=True)
        return self.found

    def ask(self, name: str, **request: Any) -> Found:
        """An answer, or the trouble noted and an empty one; who was in trouble is not asked again."""
        mine = self.found.setdefault(name, {})
        if "trouble" in mine:
            return {}
        try:
            return asked(self.workers[name], self.limit, **request)
        except Unanswered as reason:
            mine["trouble"] = str(reason)
            return {}

    def prepare(self, settings: Found, path: Path) -> None:
        for name in self.workers:
            self.found.setdefault(name, {}).update(self.ask(name, do="versions").get("versions", {}))
            answer = self.ask(name, do="prepare", settings=settings, data=str(path))
            if answer:
                self.found[name] |= {"first": answer["first"], "later": answer.get("again")}

    def alternate(self) -> None:
        taken: dict[str, list[float]] = {name: [] for name in self.workers}
        for count in rounds(self.iterations):
            for name in self.workers:
                taken[name] += self.ask(name, do="iterate", count=count).get("seconds", [])
        for name, seconds in taken.items():
            mine = self.found[name]
            if seconds:
                mine["seconds"], mine["taken"] = median(seconds), seconds
                # A fit of one step does more than an iteration of the reference; each is compared with its like.
                later = mine.pop("later", None)
                mine["compile"] = mine["first"] - (mine["seconds"] if later is None else later)
            peak = self.ask(name, do="memory").get("peak")
            if peak:
                mine["peak"] = peak / 2**20

    def project(self) -> None:
        """What the reference's schedule would take, and the NLPD in print."""
        theirs = self.found["reference"]
        self.found["iterations"] = self.task.iterations
        if "seconds" in theirs:
            name = f"{self.found['kind']}-{RULES[self.found['rule']]}"
            theirs |= {"nlpd": paper.NLPD[self.task.name, name], "total": theirs["seconds"] * self.task.iterations}

    def complete(self) -> None:
        """The reference to the end of its schedule."""
        theirs = self.found["reference"]
        for _ in range(self.iterations - 1 - len(theirs.get("taken", []))):
            # One at a time, so that the limit is that of one iteration.
            theirs["taken"] = theirs.get("taken", []) + self.ask("reference", do="iterate", count=1).get("seconds", [])
            if "trouble" in theirs:
                break
        nlpd = self.ask("reference", do="score").get("nlpd")
        if nlpd is not None:
            # The first iteration counts as one that had nothing to compile.
            theirs |= {"nlpd": nlpd, "total": sum(theirs["taken"]) + theirs["seconds"]}

    def reach(self) -> None:
        """thiele to an NLPD as good as the reference's, or to the maximum of the energy where there is none."""
        target = self.found["reference"].get("nlpd")
        found = self.ask("thiele", do="reach", target=None if target is None else target + EQUAL)
        if found:
            self.found["thiele"] |= {
                "nlpd": found["nlpd"],
                "total": found["seconds"],
                "steps": found["steps"],
                "compile best": found["compile"],
            }


def ratio(found: Found, key: str) -> str:
    """How many times as much the reference needs."""
    theirs, ours = found["reference"].get(key), found["thiele"].get(key)
    return f"{theirs / ours:.1f}" if theirs is not None and ours else "-"


def verdict(found: Found) -> str:
    """How many times as fast thiele is at an NLPD at least as good, or by how much it falls short of it."""
    theirs, ours = found["reference"].get("nlpd"), found["thiele"].get("nlpd")
    if theirs is None or ours is None:
        return "-"
    return ratio(found, "total") if ours <= theirs + EQUAL else f"short by {ours - theirs:.4f}"


def number(found: Found, name: str, key: str, form: str) -> str:
    value = found[name].get(key)
    return "-" if value is None else format(value, form)


def head(found: Found) -> tuple[str, ...]:
    return found["task"], found["kind"], found["rule"]


ITERATION = (
    *("task", "sites", "rule", "BayesNewton s", "thiele s", "times as fast", "BayesNewton compile s"),
    *("thiele compile s", "compile ratio", "BayesNewton MB", "thiele MB", "MB ratio"),
)
FINAL = (
    *("task", "sites", "rule", "iterations", "BayesNewton NLPD", "thiele NLPD", "BayesNewton s", "thiele s"),
    *("thiele steps", "thiele compile s", "times as fast"),
)


def iteration_row(found: Found) -> tuple[str, ...]:
    """Seconds, compile seconds and peak memory of the two, and the ratios."""
    cells: list[str] = []
    for key, form in (("seconds", ".3g"), ("compile", ".1f"), ("peak", ".0f")):
        cells += [number(found, name, key, form) for name in NAMES] + [ratio(found, key)]
    return *head(found), *cells


def final_row(found: Found) -> tuple[str, ...]:
    """Both scores, both times, and the verdict."""
    scores = [number(found, name, key, form) for key, form in (("nlpd", ".4f"), ("total", ".3g")) for name in NAMES]
    return (
        *head(found),
        str(found["iterations"]),
        *scores,
        number(found, "thiele", "steps", "d"),
        number(found, "thiele", "compile best", ".1f"),
        verdict(found),
    )


def troubles(found: Found) -> list[str]:
    """What could not be done, in words."""
    where = ", ".join(head(found))
    return [
        f"{where}: {called}: {found[name]['trouble']}" for name, called in NAMES.items() if "trouble" in found[name]
    ]


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(results: list[Found]) -> str:
    """Everything that was found."""
    parts = [
        "One iteration, and what it takes to get there:",
        table(ITERATION, [iteration_row(found) for found in results]),
        *(line for found in results for line in troubles(found)),
    ]
    if any("nlpd" in found[name] for found in results for name in NAMES):
        words = "To the end of the reference's schedule, and to an NLPD at least as good:"
        parts += [words, table(FINAL, [final_row(found) for found in results])]
    return "\n\n".join(parts)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    small = [name for name in TASKS if name not in LARGE]
    made.add_argument("--tasks", nargs="+", choices=list(TASKS), default=small)
    made.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    made.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    made.add_argument(
        "--iterations", type=int, help="of the reference's schedule; the task's published number if left out"
    )
    made.add_argument("--limit", type=float, default=3600.0, help="seconds that one answer may take")
    made.add_argument("--python", help="an interpreter that has BayesNewton already; else one is installed, once")
    made.add_argument("--iteration-only", action="store_true", help="leave out the time to the final NLPD")
    made.add_argument("--projected", action="store_true", help="the reference's end as its iterations and print tell")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return made


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    python = options.python or python_of(REFERENCE)
    cases = [(task, kind, rule) for task in options.tasks for kind in options.kinds for rule in options.rules]
    results: list[Found] = []
    for case in cases:
        print(", ".join(case), file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            measured = Case(*case, options.iterations, options.limit, python)
            results.append(measured.run(Path(folder), options.iteration_only, options.projected))
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(show(results))


if __name__ == "__main__":
    main()
