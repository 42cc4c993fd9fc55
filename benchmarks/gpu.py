"""CPU and GPU in one table: `python -m benchmarks.gpu [--sizes 1e5 1e6 1e7] [--precisions float64 float32]`.

The exact Gaussian chain (Matern-3/2, d = 2, irregular times): log likelihood, its gradient, and conditioning, beside a
Kalman filter and smoother by `jax.lax.associative_scan` on the same transitions; and one training iteration of the
largest tasks of the experiments, where their data are found. Runs from the source tree: nothing needs to be installed
beside JAX, numpy, scipy, equinox, optax and jaxtyping. Without a GPU its columns say "none".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.process import Slow, Worker

NEEDED = ("jax", "numpy", "scipy", "equinox", "optax", "jaxtyping")
OPERATIONS = ("value", "gradient", "condition")
PRECISIONS = ("float64", "float32")
PLATFORMS = ("cpu", "gpu")
TASKS = ("electricity", "airline")
# On a CPU a scan of more would take tens of gigabytes for its gradient.
MOST_SCANNED_ON_CPU = 10**6
# The aims at N = 1e6 in double precision: so many times as fast as the scan; conditioning in at most so many
# times the time of the likelihood.
TIMES_AS_FAST, TIMES_THE_VALUE = 5.0, 2.0
# Of the log likelihoods of the two ways in double precision, relative.
TOLERANCE = 1e-8

Found = dict[str, Any]


def missing() -> list[str]:
    """The packages that are needed and not there."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


class Device:
    """A process that computes on one kind of device, if that is asked for."""

    def __init__(self, platform: str, limit: float, asked: bool = True):
        self.platform, self.limit = platform, limit
        self.worker, self.about, self.there, self.product = None, {"platform": "not asked for"}, False, "calls"
        if not asked:
            return
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        # Left alone, JAX takes the GPU if there is one.
        chosen = {"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}
        self.worker = Worker("chain", sys.executable, {**os.environ, "PYTHONPATH": path, **chosen})
        self.about = self.ask(do="device")
        self.there = self.about.get("platform") == platform

    def ask(self, **request: Any) -> Found:
        assert self.worker is not None
        try:
            return self.worker.ask(self.limit, **request)
        except Slow:
            return {"failed": f"no answer within {self.limit:g} s"}

    def chain(self, way: str, **question: Any) -> Found:
        if not self.there:
            return {"none": True}
        if way == "scan" and self.platform == "cpu" and question["n"] > MOST_SCANNED_ON_CPU:
            return {"unable": "not tried: it would need too much memory"}
        return self.ask(do="chain", way="lanes" if way == "lanes" else self.product, **question)

    def choose_product(self, n: int) -> None:
        """The faster way to write the products of the scan; on a CPU one compiles for minutes and is not tried."""
        if self.there and self.platform != "cpu":
            question = {"do": "chain", "n": n, "precision": "float64", "operation": "value"}
            tried = {way: self.ask(way=way, **question).get("seconds", float("inf")) for way in ("calls", "sums")}
            self.product = min(tried, key=lambda way: tried[way])

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close(kill=True)


def duration(found: Found) -> str:
    if "none" in found:
        return "none"
    if "seconds" not in found:
        return "-"
    seconds = found["seconds"]
    return (
        f"{seconds * 1e6:.0f} us"
        if seconds < 1e-3
        else f"{seconds * 1e3:.3g} ms"
        if seconds < 1
        else f"{seconds:.3g} s"
    )


def ratio(lanes: Found, scan: Found) -> str:
    return f"{scan['seconds'] / lanes['seconds']:.1f}" if "seconds" in lanes and "seconds" in scan else "-"


def difference(ours: Found, theirs: Found) -> float | None:
    """The largest difference of two answers, relative to the largest number."""
    if "answer" not in ours or "answer" not in theirs:
        return None
    pairs = zip(ours["answer"], theirs["answer"], strict=True)
    return max(abs(a - b) for a, b in pairs) / max(abs(b) for b in theirs["answer"])


def row(question: Found, found: dict[str, dict[str, Found]]) -> tuple[str, ...]:
    """One line: both ways on both devices, ratios, and the largest difference between the two ways on one device."""
    cells: list[str] = []
    for platform in PLATFORMS:
        lanes, scan = found[platform]["lanes"], found[platform]["scan"]
        cells += ["none"] * 3 if "none" in lanes else [duration(lanes), duration(scan), ratio(lanes, scan)]
    apart = [difference(found[platform]["lanes"], found[platform]["scan"]) for platform in PLATFORMS]
    largest = max((x for x in apart if x is not None), default=None)
    size = f"{question['n']:.0e}".replace("e+0", "e")
    return size, question["precision"], question["operation"], *cells, "-" if largest is None else f"{largest:.0e}"


COLUMNS = (
    *("N", "precision", "operation", "CPU", "CPU scan", "times as fast"),
    *("GPU", "GPU scan", "times as fast", "difference"),
)


def aims(results: list[Found]) -> list[str]:
    """Whether the aims at N = 1e6 in double precision were reached, on each device that was measured."""
    at = {r["operation"]: r["found"] for r in results if (r.get("n"), r.get("precision")) == (10**6, "float64")}
    said = []
    for platform in PLATFORMS:
        value, condition = (at.get(name, {}).get(platform, {}) for name in ("value", "condition"))
        lanes, scan = value.get("lanes", {}), value.get("scan", {})
        if "seconds" in lanes and "seconds" in scan:
            times = scan["seconds"] / lanes["seconds"]
            seen = "as aimed" if times >= TIMES_AS_FAST else f"aim: {TIMES_AS_FAST:g}"
            said.append(f"{platform}: the likelihood is {times:.1f} times as fast as the scan ({seen})")
        if "seconds" in lanes and "seconds" in condition.get("lanes", {}):
            times = condition["lanes"]["seconds"] / lanes["seconds"]
            seen = "as aimed" if times <= TIMES_THE_VALUE else f"aim: {TIMES_THE_VALUE:g}"
            said.append(f"{platform}: conditioning takes {times:.1f} times the likelihood ({seen})")
    return said


def wrong(results: list[Found]) -> list[str]:
    """Log likelihoods in double precision that differ between the two ways."""
    said = []
    for r in results:
        if (r.get("operation"), r.get("precision")) == ("value", "float64"):
            for platform, ways in r["found"].items():
                apart = difference(ways["lanes"], ways["scan"])
                if apart is not None and not apart <= TOLERANCE:
                    said.append(f"WRONG: {platform}, N = {r['n']}: the log likelihoods differ by {apart:.1e} relative")
    return said


def troubles(results: list[Found]) -> list[str]:
    """What could not be done, in words."""
    said = []
    for r in results:
        for platform, ways in r["found"].items():
            for way, found in ways.items():
                words = found.get("failed") or found.get("unable")
                if words:
                    what = ", ".join(str(r[key]) for key in ("n", "precision", "operation", "task") if key in r)
                    said.append(f"{platform}, {way}, {what}: {words}")
    return said


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=lambda s: int(float(s)), default=[10**5, 10**6, 10**7])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--platforms", nargs="+", choices=PLATFORMS, default=list(PLATFORMS))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="of the experiments, for one iteration")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="seconds that one answer may take, compiling included"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    options = parser.parse_args(arguments)
    if missing():
        print(f"this benchmark needs {', '.join(missing())}, which cannot be imported here", file=sys.stderr)
        return 1
    devices = {platform: Device(platform, options.limit, platform in options.platforms) for platform in PLATFORMS}
    try:
        results = measure(devices, options)
    finally:
        for device in devices.values():
            device.close()
    print("\n".join([*wrong(results), *aims(results), *troubles(results)]))
    if options.json:
        about = {platform: device.about for platform, device in devices.items()}
        options.json.write_text(json.dumps({"devices": about, "results": results}, indent=1) + "\n")
    return int(bool(wrong(results)))


def line(cells: tuple[str, ...]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def measure(devices: dict[str, Device], options: argparse.Namespace) -> list[Found]:
    """Everything that was asked for, printed as it comes."""
    for platform, device in devices.items():
        told = device.about if device.there else f"none ({device.about.get('failed') or device.about.get('platform')})"
        print(f"{platform}: {told}")
        device.choose_product(min(options.sizes))
    results: list[Found] = []
    print()
    line(COLUMNS)
    line(("---",) * len(COLUMNS))
    for n in sorted(options.sizes):
        for precision in options.precisions:
            for operation in options.operations:
                question = {"n": n, "precision": precision, "operation": operation}
                found = {p: {way: d.chain(way, **question) for way in ("lanes", "scan")} for p, d in devices.items()}
                results.append({**question, "found": found})
                line(row(question, found))
    print()
    line(("task, one iteration", "CPU", "GPU", "times as fast"))
    line(("---",) * 4)
    for task in options.tasks:
        asked = {p: d.ask(do="iteration", task=task) if d.there else {"none": True} for p, d in devices.items()}
        results.append({"task": task, "found": {platform: {"lanes": answer} for platform, answer in asked.items()}})
        line((task, duration(asked["cpu"]), duration(asked["gpu"]), ratio(asked["gpu"], asked["cpu"])))
    print()
    return results


if __name__ == "__main__":
    sys.exit(main())
