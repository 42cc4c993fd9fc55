"""The paper's Figure 3: two classes in the plane, with inducing states and with inducing values.

    python -m experiments.boundaries [--draw figures]

draws the boundary between the classes for Banana and for two moons, in two panels each: inducing states at M times and
M points in space, beside the sparse GP of the textbooks at the same hyperparameters: values of f on the grid of these.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import thiele as th
from experiments.tasks import banana as banana_task
from experiments.tasks import split

BLUE, ORANGE = "#0072B2", "#E69F00"
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def two_moons(n: int = 400, noise: float = 0.15, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles that reach into one another."""
    rng = np.random.default_rng(seed)
    angle = np.pi * rng.uniform(size=n)
    label = np.arange(n) % 2
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    lower = np.column_stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)])
    inputs = np.where(label[:, None] == 0, upper, lower) + noise * rng.standard_normal((n, 2))
    return inputs, label.astype(float)


def banana() -> tuple[np.ndarray, np.ndarray]:
    """What fold 0 trains on."""
    task = banana_task(15)
    rows, data = split(task, 0).train, task.load()
    return data.time[rows], data.value[rows].astype(float)


DATA = {"moons": two_moons, "banana": banana}
COUNT = 8
"""Inducing times, and inducing points in space."""


def fitted(inputs: np.ndarray, label: np.ndarray, count: int) -> tuple[th.Fit, th.Fit]:
    """With `count` inducing points in space and as many inducing times: states, learnt; values, at the same
    hyperparameters.
    """
    low, high = inputs.min(axis=0), inputs.max(axis=0)
    points, times = (np.linspace(low[i], high[i], count) for i in (1, 0))
    kernel = th.SpaceTime(th.Matern52(1.0, 1.0), th.spatial.Matern52(lengthscale=1.0), points)
    states = th.GP(kernel, th.Bernoulli(), inducing=times).fit(inputs, label)
    values = th.GP(states.model.kernel, th.Bernoulli(), inducing=th.Inducing(times=times, of="values"))
    return states, values.condition(inputs, label)


def panel(ax: Any, fit: th.Fit, inputs: np.ndarray, label: np.ndarray, title: str) -> None:
    """Data, probabilities as lines, the boundary drawn thick, inducing times and places on the axes."""
    low, high = inputs.min(axis=0) - 0.3, inputs.max(axis=0) + 0.3
    t, r = np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 100)
    p = fit.predict(th.grid(t, r)).y_mean.reshape(len(t), len(r)).T
    ax.contourf(t, r, p, levels=np.linspace(0, 1, 21), cmap="RdYlBu_r", alpha=0.35)
    ax.contour(t, r, p, levels=LEVELS, colors="black", linewidths=[0.5, 0.7, 1.8, 0.7, 0.5])
    for value, colour in ((0.0, BLUE), (1.0, ORANGE)):
        ax.plot(*inputs[label == value].T, ".", color=colour, markersize=2.0, alpha=0.6)
    if fit.inducing is not None:
        ax.plot(fit.inducing, np.full(len(fit.inducing), low[1]), "k|", markersize=9, clip_on=False)
    points = np.asarray(fit.kernel.points())[:, 0]
    ax.plot(np.full(len(points), low[0]), points, "k_", markersize=9, clip_on=False)
    ax.set(title=title, xlabel="time", ylabel="space", xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def draw(inputs: np.ndarray, label: np.ndarray, count: int) -> Any:
    """Both panels for one data set."""
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.0), sharex=True, sharey=True, layout="constrained")
    for ax, fit, of in zip(axes, fitted(inputs, label, count), ("states", "values"), strict=True):
        panel(ax, fit, inputs, label, f"inducing {of}, {count} × {count}: ELBO {fit.objective:.1f}".replace("-", "−"))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments.boundaries", description="Two classes in the plane.")
    parser.add_argument("--draw", type=Path, default=Path("figures"))
    folder = parser.parse_args(arguments).draw
    folder.mkdir(parents=True, exist_ok=True)
    for name, load in DATA.items():
        path = folder / f"{name}-boundary.png"
        draw(*load(), COUNT).savefig(path, dpi=160)
        print(f"drew {path}")


if __name__ == "__main__":
    main()
