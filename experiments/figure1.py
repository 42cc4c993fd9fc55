"""Figure 1 of the paper: filtering and smoothing with inducing states. `python -m experiments.figure1 [file]`.

Above, the forward filter: at each inducing time it has taken in the sites of the segments before, and from there it
predicts, until the next inducing state. Below, the posterior. The short lines are the slopes that inducing states of a
Matérn-5/2 hold beside the value.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import thiele as th
from thiele.bridges import bridges
from thiele.chain.layouts import choose_layout
from thiele.chain.matrices import dense
from thiele.chain.sweeps import predictions
from thiele.segments import absorb

KERNEL = th.Matern52(variance=1.0, lengthscale=1.2)
NOISE = 0.05
INDUCING = np.linspace(0.0, 10.0, 8)
BLUE, GREY = "#0072b2", "#666666"


def data() -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of a smooth curve, with a hole."""
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 10.0, 90))
    t = t[(t < 5.9) | (t > 6.9)]
    return t, np.sin(t) + 0.5 * np.sin(2.3 * t) + np.sqrt(NOISE) * rng.standard_normal(t.size)


def filtered(fit: th.Fit, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of f on the grid from the inducing states to its left, and the filter's mean states."""
    sde = KERNEL.sde()
    at = bridges(KERNEL, jnp.asarray(INDUCING))
    absorbed = absorb(at.steps, fit.posterior.sites)
    m, P, _, _ = predictions(absorbed.chain, absorbed.information, choose_layout(len(INDUCING), sde.dim, sde.dim, 1))
    here = np.searchsorted(INDUCING, grid, side="right") - 1
    move = sde.transition(jnp.asarray(INDUCING[here]), jnp.asarray(grid - INDUCING[here]))
    A, Q = (dense(tuple(x)) for x in zip(*move, strict=True))
    H = jnp.asarray(sde.H)
    mean = jnp.einsum("li,ijq,jq->q", H, A, m[:, here])
    var = jnp.einsum("li,ijq,jkq,mkq,nm->q", H, A, P[:, :, here], A, H) + jnp.einsum("li,ijq,mj->q", H, Q, H)
    return np.asarray(mean), np.asarray(var), np.asarray(m)


def draw_panel(ax: Any, grid: np.ndarray, mean: np.ndarray, var: np.ndarray, states: np.ndarray, title: str) -> None:
    """A curve with its band, and the inducing states with their slopes."""
    sde = KERNEL.sde()
    sd = 1.96 * np.sqrt(var)
    # The filter jumps at inducing times: the lines break there.
    for start, end in itertools.pairwise(INDUCING):
        part = (grid >= start) & (grid < end)
        ax.fill_between(grid[part], (mean - sd)[part], (mean + sd)[part], color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(grid[part], mean[part], color=BLUE, linewidth=1.5)
    value, slope = (sde.H @ states)[0], (sde.H @ np.asarray(sde.F) @ states)[0]
    for z, f, df in zip(INDUCING, value, slope, strict=True):
        reach = 0.28 / np.hypot(1.0, df)
        ax.plot([z - reach, z + reach], [f - reach * df, f + reach * df], color="black", linewidth=2.2, zorder=4)
    ax.plot(INDUCING, value, "o", color="black", markersize=5.5, zorder=5, label="inducing state: value and slope")
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_ylabel("f")
    ax.margins(x=0.01)


def draw() -> Any:
    """Both panels."""
    t, y = data()
    fit = th.GP(KERNEL, th.Gaussian(variance=NOISE), inducing=INDUCING, mean=0.0).condition(t, y)
    grid = np.linspace(0.0, 10.0, 1200)
    sde = KERNEL.sde()
    with jax.enable_x64(True):
        forward_mean, forward_var, forward_states = filtered(fit, grid)
        smoothed = fit.predict(grid)
        segments = fit.posterior.segments.mean
        states = np.asarray(segments[1:, : sde.dim]).T
        figure, axes = plt.subplots(2, 1, figsize=(7.0, 5.0), sharex=True, sharey=True, layout="constrained")
        draw_panel(axes[0], grid, forward_mean, forward_var, forward_states, "(a) forward: the filter")
        draw_panel(axes[1], grid, smoothed.mean, smoothed.var, states, "(b) backward: the smoother, the posterior")
    for ax in axes:
        ax.plot(t, y, ".", color=GREY, markersize=3.5, zorder=1, label="data")
    axes[1].set_xlabel("time")
    # Above the posterior there is room; the filter's bands fill their panel.
    axes[1].legend(loc="upper right", fontsize=8, frameon=False)
    return figure


def main() -> None:
    """Draw it into a file."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "figures/figure1.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw().savefig(path, dpi=160)
    print(f"drew {path}")


if __name__ == "__main__":
    main()
