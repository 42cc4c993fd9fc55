"""How fast is exact Gaussian inference beside celerite2, tinygp and smolgp, and do the four agree?

    python -m benchmarks.gaussian [--sizes 1e3 1e4 1e5 1e6] [--repeats 5] [--limit 60] [--json FILE]

Measures the log-likelihood, its gradient in all hyperparameters, and conditioning (posterior mean and variance at the
data), for a Matern-3/2 and for a sum of four kernels, on the same irregular times, in one run. Every library runs in a
process of its own and is asked in turn, so that a drift of the machine meets all of them alike. Times are medians of
repeats after a warm-up; compile time is the first call less a later one; nothing runs beside the call that is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from statistics import median, median_low
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.environment import PEERS, python_of
from benchmarks.process import Slow, Worker
from benchmarks.workers.protocol import OPERATIONS, PROBLEMS, irregular_series

LIBRARIES = ("thiele", "celerite2", "tinygp", "smolgp")
TOLERANCE = 1e-6
# A first call compiles as well as runs; compilation alone must not count as running past the limit.
COMPILE_ALLOWANCE = 120.0


def write_data(n: int, path: Path) -> None:
    t, y = irregular_series(n)
    np.savez(path, t=t, y=y)


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest number; infinite where a number is not finite."""
    difference = float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))
    return difference if np.isfinite(difference) else float("inf")


def central(answers: list[np.ndarray]) -> np.ndarray:
    """The answer whose median difference from the others is smallest, so that one wrong library accuses only itself."""
    if len(answers) < 3:
        return answers[0]
    return min(answers, key=lambda a: median_low([error(a, b) for b in answers if b is not a]))


class Bench:
    """The state of one run: the workers, what was measured, and what was found to be too slow."""

    def __init__(self, libraries: list[str], limit: float, repeats: int, folder: Path):
        peers = python_of(PEERS) if set(libraries) - {"thiele"} else None
        self.pythons = {name: sys.executable if name == "thiele" else str(peers) for name in libraries}
        self.workers = {name: Worker(name, python) for name, python in self.pythons.items()}
        self.limit, self.repeats, self.folder = limit, repeats, folder
        self.rows: list[dict[str, Any]] = []

    def measure(self, n: int, kernel: str, operation: str) -> list[dict[str, Any]]:
        """One question to every library: first calls, then the repeats in turn, then how well the answers agree."""
        data = self.folder / f"{n}.npz"
        if not data.exists():
            write_data(n, data)
        rows = {}
        for name in self.workers:
            row = {"library": name, "n": n, "kernel": kernel, "operation": operation, "seconds": []}
            row |= self.prepare(row, data)
            rows[name] = row
        for _ in range(self.repeats):
            for name, row in rows.items():
                if "note" not in row:
                    self.repeat(name, row)
        for row in rows.values():
            times = row.pop("seconds")
            if times and "note" not in row:
                row["median"], row["fastest"], row["repeats"] = median(times), min(times), len(times)
                row["compile"] = max(row["first"] - row["median"], 0.0)
        self.compare(list(rows.values()))
        self.rows += rows.values()
        return list(rows.values())

    def prepare(self, row: dict[str, Any], data: Path) -> dict[str, Any]:
        n, question = row["n"], (row["library"], row["kernel"], row["operation"])
        earlier = [r for r in self.rows if (r["library"], r["kernel"], r["operation"]) == question]
        if earlier and earlier[-1].get("over"):
            return {"note": f"not tried: past {self.limit:g} s at N = {earlier[-1]['n']}", "over": True}
        if earlier and earlier[-1].get("median", 0.0) * n / earlier[-1]["n"] > self.limit:
            return {"note": f"not tried: would pass {self.limit:g} s", "over": True}
        out = self.folder / f"{row['library']}.npz"
        out.unlink(missing_ok=True)
        worker = self.workers[row["library"]]
        request = {"kernel": row["kernel"], "operation": row["operation"], "data": str(data), "out": str(out)}
        try:
            answer = worker.ask(self.limit + COMPILE_ALLOWANCE, do="prepare", **request)
        except Slow:
            return {"note": f"first call past {self.limit + COMPILE_ALLOWANCE:g} s", "over": True}
        return {"first": answer["first"]} if "first" in answer else {"note": answer.get("unable") or answer["failed"]}

    def repeat(self, name: str, row: dict[str, Any]) -> None:
        # Long calls need fewer repeats: at most a limit's worth of seconds for one library and question.
        if row["seconds"] and sum(row["seconds"]) + row["seconds"][-1] > self.limit:
            return
        try:
            answer = self.workers[name].ask(self.limit, do="time")
        except Slow:
            row |= {"note": f"past {self.limit:g} s", "over": True}
            return
        if "seconds" in answer:
            row["seconds"].append(answer["seconds"])
        else:
            row["note"] = answer["failed"]

    def compare(self, rows: list[dict[str, Any]]) -> None:
        """Relative differences from the answer that is nearest to the others, whosever that is."""
        answers = {}
        for row in rows:
            path = self.folder / f"{row['library']}.npz"
            if "median" in row and path.exists():
                answers[row["library"]] = dict(np.load(path))
        for row in rows:
            mine = answers.get(row["library"])
            if mine is None:
                continue
            row["returned"] = sorted(mine)
            row["errors"] = {}
            for quantity, ours in mine.items():
                row["errors"][quantity] = error(ours, central([a[quantity] for a in answers.values() if quantity in a]))
            if "value" in mine:
                row["value"] = float(mine["value"])

    def memory(self, n: int, kernel: str) -> list[dict[str, Any]]:
        """Peak memory of one log-likelihood over what the imports left, each in a fresh process, the data included."""
        data = self.folder / f"{n}.npz"
        if not data.exists():
            write_data(n, data)
        found = []
        for name, python in self.pythons.items():
            fresh = Worker(name, python)
            row: dict[str, Any] = {"library": name, "n": n, "kernel": kernel}
            try:
                limit = self.limit + COMPILE_ALLOWANCE
                answer = fresh.ask(limit, do="prepare", kernel=kernel, operation="value", data=str(data))
                if "first" in answer:
                    answer = fresh.ask(limit, do="memory")
                    row |= {"megabytes": (answer["peak"] - answer["before"]) / 1e6}
                else:
                    row["note"] = answer.get("unable") or answer["failed"]
            except Slow:
                row["note"] = f"past {limit:g} s"
            fresh.close()
            found.append(row)
        return found

    def versions(self) -> dict[str, dict[str, str]]:
        return {name: worker.ask(COMPILE_ALLOWANCE, do="versions") for name, worker in self.workers.items()}

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def exponents(rows: list[dict[str, Any]], start: int = 10_000) -> list[dict[str, Any]]:
    """The slope of log time in log N from `start` on, where fixed costs no longer show."""
    found = []
    for library in LIBRARIES:
        for kernel in PROBLEMS:
            for operation in OPERATIONS:
                points = [
                    (r["n"], r["median"])
                    for r in rows
                    if (r["library"], r["kernel"], r["operation"]) == (library, kernel, operation)
                    and r["n"] >= start
                    and "median" in r
                ]
                if len(points) > 1:
                    slope = float(np.polyfit(*np.log(np.array(points)).T, 1)[0])
                    found.append({"library": library, "kernel": kernel, "operation": operation, "exponent": slope})
    return found


def _seconds(value: float) -> str:
    return f"{value * 1e6:.0f} us" if value < 1e-3 else f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _cell(row: dict[str, Any], best_peer: float | None) -> str:
    if "median" not in row:
        return "-"
    text = _seconds(row["median"])
    if row["library"] == "thiele" and best_peer:
        text += f" ({best_peer / row['median']:.2g}x)"
    if row["operation"] == "condition" and "var" not in row.get("returned", ()):
        text += " mean only"
    if any(e > TOLERANCE for e in row.get("errors", {}).values()):
        text += " WRONG"
    return text


def show(console: Console, bench: Bench, memory: list[dict[str, Any]]) -> None:
    """Print everything that was found."""
    names = list(bench.workers)
    times = Table(title="seconds a call: median; in brackets, how many times faster than the fastest peer that agrees")
    compiling = Table(title="compile time: first call less the median")
    agreement = Table(title=f"largest relative difference from the central answer (tolerance {TOLERANCE:g})")
    for table in (times, compiling, agreement):
        for column in ("kernel", "operation", "N", *names):
            table.add_column(column, justify="left" if column in ("kernel", "operation") else "right")
    for kernel in PROBLEMS:
        for operation in OPERATIONS:
            for n in sorted({r["n"] for r in bench.rows}):
                rows = {
                    r["library"]: r
                    for r in bench.rows
                    if (r["kernel"], r["operation"], r["n"]) == (kernel, operation, n)
                }
                if not rows:
                    continue
                # A peer that returns less, or something else, is no yardstick.
                whole = {"value": {"value"}, "gradient": {"value", "gradient"}, "condition": {"mean", "var"}}[operation]
                peers = [
                    r["median"]
                    for name, r in rows.items()
                    if name != "thiele"
                    and "median" in r
                    and whole <= set(r["returned"])
                    and max(r["errors"].values()) <= TOLERANCE
                ]
                head = (kernel, operation, f"{n:.0e}".replace("e+0", "e"))
                times.add_row(*head, *(_cell(rows[name], min(peers, default=None)) for name in names))
                compiling.add_row(*head, *(f"{rows[x]['compile']:.2f}" if "compile" in rows[x] else "-" for x in names))
                agreement.add_row(
                    *head,
                    *(
                        " ".join(f"{e:.0e}" for e in rows[x]["errors"].values()) if "errors" in rows[x] else "-"
                        for x in names
                    ),
                )
    growth = Table("kernel", "operation", *names, title="exponent of growth in N, from N = 1e4 on")
    slopes = exponents(bench.rows)
    for kernel in PROBLEMS:
        for operation in OPERATIONS:
            found = {
                s["library"]: f"{s['exponent']:.2f}"
                for s in slopes
                if (s["kernel"], s["operation"]) == (kernel, operation)
            }
            if found:
                growth.add_row(kernel, operation, *(found.get(name, "-") for name in names))
    for table in (times, compiling, agreement, growth):
        console.print(table)
    if memory:
        usage = Table("kernel", "N", *names, title="peak memory of one log-likelihood over the imports, MB")
        for kernel in PROBLEMS:
            rows = {r["library"]: r for r in memory if r["kernel"] == kernel}
            if rows:
                n = next(iter(rows.values()))["n"]
                cells = (f"{rows[x]['megabytes']:.0f}" if "megabytes" in rows[x] else "-" for x in names)
                usage.add_row(kernel, f"{n:.0e}".replace("e+0", "e"), *cells)
        console.print(usage)
    for row in bench.rows:
        if "note" in row:
            console.print(f"{row['library']}, {row['kernel']}, {row['operation']}, N = {row['n']}: {row['note']}")
        for quantity, size in row.get("errors", {}).items():
            if size > TOLERANCE:
                console.print(
                    f"{row['library']}, {row['kernel']}, N = {row['n']}: {quantity} differs by {size:.1e} relative"
                )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaussian", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=lambda s: int(float(s)), default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--kernels", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one call may take")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    options = parser.parse_args(arguments)

    console = Console(width=150 if not sys.stdout.isatty() else None)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.libraries, options.limit, options.repeats, Path(folder))
        try:
            versions = bench.versions()
            console.print({name: answer.get("versions", answer) for name, answer in versions.items()})
            for n in sorted(options.sizes):
                for kernel in options.kernels:
                    for operation in options.operations:
                        rows = bench.measure(n, kernel, operation)
                        told = "  ".join(f"{r['library']} {_cell(r, None)}" for r in rows)
                        console.print(f"N = {n:<8} {kernel:<9} {operation:<10} {told}", highlight=False)
            # The workers are closed first: the memory of the machine is then free for the one that is measured.
            bench.close()
            memory = []
            if not options.no_memory:
                memory = [row for kernel in options.kernels for row in bench.memory(max(options.sizes), kernel)]
        finally:
            bench.close()
        show(console, bench, memory)
    if options.json:
        report = {
            "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
            "versions": {name: answer.get("versions", answer) for name, answer in versions.items()},
            "problems": {name: dict(zip(p.names, p.values, strict=True)) for name, p in PROBLEMS.items()},
            "rows": bench.rows,
            "exponents": exponents(bench.rows),
            "memory": memory,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(
        any(max(r["errors"].values()) > TOLERANCE for r in bench.rows if r["library"] == "thiele" and "errors" in r)
    )


if __name__ == "__main__":
    sys.exit(main())
