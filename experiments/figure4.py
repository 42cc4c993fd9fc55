"""The paper's Figure 4: Banana with more and more inducing inputs, ours beside the printed curves.

    python -m experiments.figure4 [--counts 2 4 ...] [--methods CVI ...] [--folds 0 1 ...] [--draw figures/figure4.png]

runs what has not been run yet, one line of JSON for each run under experiments/results/figure4, and draws all that is
there. The printed curves are in paper_figure4.jsonl, taken from the coordinates in the paper's source.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments import store
from experiments.methods import METHODS
from experiments.run import run
from experiments.tasks import FOLDS, banana

COUNTS = tuple(range(2, 21, 2))
RULES = ("EKS", "PL", "PEP(1)", "PEP(0.5)", "PEP(0.01)", "CVI")
RESULTS = store.RESULTS / "figure4"
PRINTED = Path(__file__).parent / "paper_figure4.jsonl"
QUANTITIES = {"nlml": "−energy (nats)", "nlpd": "NLPD", "error": "error"}
# Okabe and Ito's colours, which the colour-blind tell apart.
COLOURS = dict(zip(RULES, ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"), strict=True))

Curve = dict[int, tuple[float, float]]


def printed() -> dict[tuple[str, str], Curve]:
    """Mean and standard deviation by number of inducing inputs, for each quantity and rule of the paper."""
    rows = [json.loads(line) for line in PRINTED.read_text().splitlines()]
    return {
        (row["quantity"], row["method"]): {
            count: (mean, sd) for count, mean, sd in zip(row["M"], row["mean"], row["sd"], strict=True)
        }
        for row in rows
    }


def ours(folder: Path = RESULTS) -> dict[tuple[str, str], Curve]:
    """The same from the records: mean and standard deviation over the folds that were run."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in store.read(folder).values():
        count, rule = record["settings"]["inducing"], record["method"].removeprefix("sparse-")
        for quantity, value in (("nlml", -record["energy"]), ("nlpd", record["nlpd"]), ("error", record["error"])):
            found.setdefault((quantity, rule), {}).setdefault(count, []).append(value)
    # A mean over fewer folds than its neighbours' is no point of the same curve.
    whole = max((len(v) for curve in found.values() for v in curve.values()), default=0)
    return {
        key: {count: (float(np.mean(v)), float(np.std(v))) for count, v in sorted(curve.items()) if len(v) == whole}
        for key, curve in found.items()
    }


def run_all(counts: Sequence[int], rules: Sequence[str], folds: Sequence[int], folder: Path = RESULTS) -> None:
    """One record for each number of inducing inputs, rule and fold."""
    for count in counts:
        for rule in rules:
            for fold in folds:
                if (f"banana-{count}", f"sparse-{rule}", fold, "best") in store.read(folder):
                    continue
                record = run(banana(count), METHODS[f"sparse-{rule}"], fold, "best") | {"task": f"banana-{count}"}
                store.append(record, folder)
                found = f"NLPD {record['nlpd']:.4f}, error {record['error']:.4f} in {record['seconds']:.1f} s"
                print(f"M = {count} {rule} fold {fold}: {found}", flush=True)


def draw(folder: Path = RESULTS) -> Any:
    """One panel for each quantity: lines are ours, dots the paper's."""
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.6), layout="constrained")
    mine, theirs = ours(folder), printed()
    for ax, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
        for rule in RULES:
            curve, dots = mine.get((quantity, rule), {}), theirs[quantity, rule]
            if curve:
                mean, sd = np.array(list(curve.values())).T
                ax.plot(list(curve), mean, color=COLOURS[rule], linewidth=1.6, label=rule)
                ax.fill_between(list(curve), mean - sd, mean + sd, color=COLOURS[rule], alpha=0.08, linewidth=0)
            # Dots without a line of ours need a name too.
            style = {"color": COLOURS[rule], "markersize": 3.5, "mfc": "none", "label": None if curve else rule}
            ax.plot(list(dots), [m for m, _ in dots.values()], "o", **style)
        ax.set_xlabel("inducing inputs M, in time and in space")
        ax.set_ylabel(label)
        ax.set_xlim(1.5, 20.5)
    axes[1].legend(frameon=False, fontsize=8, title="lines: thiele\ndots: the paper", title_fontsize=8)
    return figure


def table(folder: Path = RESULTS) -> str:
    """NLPD and error, ours and printed, one line for each number of inducing inputs and rule."""
    mine, theirs = ours(folder), printed()
    lines = ["| M | rule | NLPD | paper | error | paper | −energy | paper |", "|---|---|---|---|---|---|---|---|"]
    for rule in RULES:
        for count in mine.get(("nlpd", rule), {}):
            cells = []
            for quantity, digits in (("nlpd", 3), ("error", 3), ("nlml", 0)):
                paper = theirs[quantity, rule].get(count)
                cells += [f"{mine[quantity, rule][count][0]:.{digits}f}", f"{paper[0]:.{digits}f}" if paper else "–"]
            lines.append(f"| {count} | {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments.figure4", description="Banana against inducing inputs.")
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS))
    parser.add_argument("--methods", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=list(range(FOLDS)))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--draw", type=Path, default=Path("figures/figure4.png"))
    options = parser.parse_args(arguments)
    run_all(options.counts, options.methods, options.folds, options.results)
    options.draw.parent.mkdir(parents=True, exist_ok=True)
    draw(options.results).savefig(options.draw, dpi=160)
    print(table(options.results))
    print(f"drew {options.draw}")


if __name__ == "__main__":
    main()
