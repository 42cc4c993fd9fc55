"""Maximise many objectives at once: as many searches as there are rows, in steps that they take together.

Each row has its own quasi-Newton matrix (BFGS) and its own step, halved until the objective rises enough; what they
share is the evaluation, which takes all rows in one call. A row that has arrived waits for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from thiele.learn import FURTHEST, Learnt, Trace

HALVINGS = 25
ENOUGH = 1e-4  # share of the expected rise that a step must bring
LONGEST = 3.0  # of a first step, in the units of free values, which are logarithms or the like
STALLED = 1e-10  # relative gain below which a row has nothing left to win


class Evaluations(NamedTuple):
    """Values and gradients of all rows."""

    value: Float[np.ndarray, " K"]
    gradient: Float[np.ndarray, "K p"]


def maximise_together(
    evaluate: Callable[[Float[np.ndarray, "K p"]], Evaluations],
    start: Float[np.ndarray, "K p"],
    *,
    tolerance: float,
    max_steps: int,
) -> list[Learnt]:
    """Climb in every row from `start` until no component of its gradient exceeds `tolerance`."""
    began = time.perf_counter()
    x = np.array(start)
    K, p = x.shape
    now = evaluate(x)
    f = np.where(np.isfinite(now.value) & np.all(np.isfinite(now.gradient), axis=1), now.value, -np.inf)
    g = np.where(np.isfinite(now.gradient), now.gradient, 0.0)
    H = np.broadcast_to(np.eye(p), (K, p, p)).copy()
    message = np.full(K, "the objective is not finite at the starting values", dtype=object)
    going = np.isfinite(f)
    message[going] = "the most steps were taken"
    rows: list[list[tuple[float, float, float]]] = [[] for _ in range(K)]

    def note(which: np.ndarray) -> None:
        seconds = time.perf_counter() - began
        for k in np.flatnonzero(which):
            rows[k].append((f[k], float(np.max(np.abs(g[k]), initial=0.0)), seconds))

    def arrived() -> np.ndarray:
        return np.max(np.abs(g), axis=1, initial=0.0) <= tolerance

    note(going)
    message[going & arrived()] = "the gradient is within the tolerance"
    going &= ~arrived()
    fresh = np.ones(K, bool)  # rows whose matrix is still the identity
    for _ in range(max_steps):
        if not np.any(going):
            break
        d = np.einsum("kij,kj->ki", H, g)
        uphill = np.einsum("ki,ki->k", d, g)
        lost = going & ~(uphill > 0.0)
        H[lost], d[lost], fresh[lost] = np.eye(p), g[lost], True
        size = np.max(np.abs(d), axis=1)
        long = size > (np.where(fresh, LONGEST / 3.0, LONGEST))
        d[long] *= (np.where(fresh, LONGEST / 3.0, LONGEST)[long] / size[long])[:, None]
        uphill = np.einsum("ki,ki->k", d, g)
        step, accepted = np.ones(K), ~going
        new_x, new_f, new_g = x.copy(), f.copy(), g.copy()
        for _ in range(HALVINGS):
            trial = np.where(
                accepted[:, None], new_x, np.clip(x + step[:, None] * d, start - FURTHEST, start + FURTHEST)
            )
            found = evaluate(trial)
            finite = np.isfinite(found.value) & np.all(np.isfinite(found.gradient), axis=1)
            good = ~accepted & finite & (found.value >= f + ENOUGH * step * uphill)
            new_x[good], new_f[good], new_g[good] = trial[good], found.value[good], found.gradient[good]
            accepted |= good
            if np.all(accepted):
                break
            step[~accepted] *= 0.5
        stuck = going & ~accepted
        moved = going & accepted
        s, y = new_x - x, g - new_g
        H, fresh = _updated(H, s, y, moved, fresh)
        stalled = moved & (new_f - f <= STALLED * np.maximum(np.abs(new_f), 1.0))
        x, f, g = new_x, new_f, new_g
        note(moved)
        message[stuck | stalled] = "nothing more is gained"
        near = going & arrived()
        message[near] = "the gradient is within the tolerance"
        going &= ~(stuck | stalled | near)
    done = np.array([text != "the most steps were taken" for text in message]) & np.isfinite(f)
    return [Learnt(x[k], float(f[k]), _trace(rows[k]), bool(done[k]), str(message[k])) for k in range(K)]


def _updated(
    H: np.ndarray, s: np.ndarray, y: np.ndarray, moved: np.ndarray, fresh: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse curvature after a step `s` along which the slope fell by `y`."""
    sy = np.einsum("ki,ki->k", s, y)
    use = moved & (sy > 1e-12 * np.sqrt(np.sum(s**2, axis=1) * np.sum(y**2, axis=1)) + 1e-300)
    if not np.any(use):
        return H, fresh
    s, y, sy, rows = s[use], y[use], sy[use], np.flatnonzero(use)
    before = H[rows]
    # The first matrix has the scale of the first step (Nocedal and Wright, 2006, 6.20).
    scale = sy / np.sum(y**2, axis=1)
    before = np.where(fresh[rows][:, None, None], scale[:, None, None] * np.eye(H.shape[-1]), before)
    Hy = np.einsum("kij,kj->ki", before, y)
    outer = lambda a, b: a[:, :, None] * b[:, None, :]  # noqa: E731
    grow = (1.0 + np.einsum("ki,ki->k", y, Hy) / sy) / sy
    H, fresh = H.copy(), fresh.copy()
    H[rows] = before + grow[:, None, None] * outer(s, s) - (outer(Hy, s) + outer(s, Hy)) / sy[:, None, None]
    fresh[rows] = False
    return H, fresh


def _trace(rows: list[tuple[float, float, float]]) -> Trace:
    objective, gradient, seconds = np.array(rows, dtype=float).reshape(-1, 3).T
    return Trace(objective, gradient, seconds, np.zeros_like(objective), np.zeros_like(objective))
