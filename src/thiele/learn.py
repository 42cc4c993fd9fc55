"""Maximise an objective over the free hyperparameters, by a quasi-Newton method on the real line.

The loop runs on the host, so that it can show where it is, stop at a tolerance, and return what it has when the user
interrupts it. A step to where the objective is not a number counts as a very bad step, and is taken back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import optax
from jaxtyping import Float

# Unconstrained values are logarithms or the like: further than this from the start nothing changes any more.
FURTHEST = 25.0
# Steps of Adam that may pass without a gain: it circles around an optimum before it settles there.
PATIENCE = 50
UNBEGUN = "the search was not begun"
GAINLESS = "without a gain"


class Trace(NamedTuple):
    """The way to the optimum, one entry for each step.

    `gradient` is its largest component; `seconds` counts from the start; `sweeps` is how many passes the sites took in
    all so far, and `repaired` how many of them had to be made positive semidefinite at that step.
    """

    objective: Float[np.ndarray, " steps"]
    gradient: Float[np.ndarray, " steps"]
    seconds: Float[np.ndarray, " steps"]
    sweeps: Float[np.ndarray, " steps"]
    repaired: Float[np.ndarray, " steps"]


class Learnt(NamedTuple):
    """Where the search ended, and why."""

    vector: Float[np.ndarray, " free"]
    objective: float
    trace: Trace
    converged: bool
    message: str


class Evaluation(NamedTuple):
    """The objective and its gradient at one point, and what inference went through to get there."""

    value: float
    gradient: Float[np.ndarray, " free"]
    sweeps: int = 0
    repaired: int = 0

    @property
    def finite(self) -> bool:
        """Whether value and gradient are numbers."""
        return bool(np.isfinite(self.value) and np.all(np.isfinite(self.gradient)))


Evaluate = Callable[[np.ndarray], Evaluation]


class _Record:
    """The best point so far and the trace that leads to it."""

    def __init__(self, start: np.ndarray, display: Display) -> None:
        self.best, self.value, self.gradient = np.asarray(start), -np.inf, np.zeros_like(start)
        self.sweeps, self.repaired = 0, 0
        self._rows: list[tuple[float, ...]] = []
        self._began, self._display = time.perf_counter(), display

    def take(self, vector: np.ndarray, found: Evaluation) -> None:
        self.sweeps, self.repaired = self.sweeps + found.sweeps, found.repaired
        if found.finite and found.value > self.value:
            self.best, self.value, self.gradient = np.array(vector), found.value, found.gradient

    def note(self, value: float | None = None, gradient: np.ndarray | None = None, at: float | None = None) -> None:
        shown = self.value if value is None else value
        slope = float(np.max(np.abs(self.gradient if gradient is None else gradient), initial=0.0))
        now = time.perf_counter() if at is None else at
        self._rows.append((shown, slope, now - self._began, self.sweeps, self.repaired))
        self._display.show(shown, len(self._rows))

    def trace(self) -> Trace:
        return Trace(*np.array(self._rows, dtype=float).reshape(-1, len(Trace._fields)).T)


def maximise(
    evaluate: Evaluate,
    start: np.ndarray,
    *,
    tolerance: float,
    max_steps: int,
    progress: bool | None,
    begins: Callable[[], bool] = lambda: True,
) -> Learnt:
    """Climb from `start` until no component of the gradient exceeds `tolerance` (in nats per unit of the vector).

    `begins` is asked once the starting point is known: where it says no, the search ends there.
    """
    from scipy.optimize import minimize  # it takes longer to load than the rest of this library, and not all learn

    converged, message = False, "the objective is not finite at the starting values"
    with Display(progress) as display:
        record = _Record(start, display)
        first = None

        def descend(vector: np.ndarray) -> tuple[float, np.ndarray]:
            assert first is not None
            found = first if np.array_equal(vector, start) else evaluate(vector)
            if found is not first:
                record.take(vector, found)
            if found.finite:
                return -found.value / unit, -found.gradient / unit
            return (10.0 * abs(record.value) + 1e10) / unit, np.zeros_like(vector)

        try:
            first = evaluate(np.asarray(start))
            record.take(start, first)
            if np.isfinite(record.value):
                record.note()
            if np.isfinite(record.value) and not begins():
                message = UNBEGUN
            elif np.isfinite(record.value):
                # The first step is the gradient itself. In units in which its largest component is at most 1 the search
                # begins within a factor of e of the starting values, and not where nothing converges.
                unit = max(1.0, float(np.max(np.abs(first.gradient))))
                result = minimize(
                    descend,
                    start,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=[(u - FURTHEST, u + FURTHEST) for u in np.asarray(start)],
                    callback=lambda _: record.note(),
                    options={"maxiter": max_steps, "maxcor": 20, "ftol": 1e-12, "gtol": tolerance / unit, "maxls": 40},
                )
                converged, message = bool(result.success), str(result.message)
        except KeyboardInterrupt:
            message = "interrupted: this is the best so far"
    return Learnt(record.best, float(record.value), record.trace(), converged, message)


class Rounds(NamedTuple):
    """Some steps of the paper's schedule in turn: the points, the objective and its gradient at each, how many sites
    had to be repaired there; then where they lead, and the memory of Adam.
    """

    points: Float[np.ndarray, "count free"]
    values: Float[np.ndarray, " count"]
    gradients: Float[np.ndarray, "count free"]
    repaired: Float[np.ndarray, " count"]
    vector: Float[np.ndarray, " free"]
    memory: Any


def climb(
    several: Callable[[np.ndarray, Any, float, int], Rounds],
    start: np.ndarray,
    learning_rate: float,
    *,
    steps: int,
    progress: bool | None,
    gain: float | None = None,
) -> Learnt:
    """The paper's schedule: `steps` steps of Adam, each after one sweep of the sites; fewer where the objective has
    risen by less than `gain` of its size in `PATIENCE` of them.

    `several(vector, memory, learning_rate, most)` takes one or more of them; where the objective is no longer finite it
    stops.
    """
    vector, memory = np.asarray(start), optax.adam(learning_rate).init(np.asarray(start))
    message = f"{steps} steps were taken"
    with Display(progress) as display:
        record, done = _Record(start, display), 0
        mark, marked = -np.inf, 0
        try:
            while done < steps:
                began = time.perf_counter()
                *rows, vector, memory = several(vector, memory, learning_rate, steps - done)
                seconds = (time.perf_counter() - began) / len(rows[0])
                done += len(rows[0])
                for k, (point, value, gradient, repaired) in enumerate(zip(*rows, strict=True)):
                    found = Evaluation(float(value), gradient, 1, int(repaired))
                    record.take(point, found)
                    record.note(found.value, gradient, at=began + (k + 1) * seconds)
                if not found.finite:
                    message = "the objective is no longer finite: this is the last point where it was"
                    vector = record.best
                    break
                if gain is None:
                    continue
                if record.value > mark + gain * (1.0 + abs(record.value)):
                    mark, marked = record.value, done
                elif done - marked >= PATIENCE:
                    message = f"{done} steps were taken, the last {done - marked} {GAINLESS}"
                    break
        except KeyboardInterrupt:
            message = "interrupted: this is the last point"
    return Learnt(vector, float(record.value), record.trace(), "steps were taken" in message, message)


def in_turn(earlier: Learnt, later: Learnt) -> Learnt:
    """Two searches as one, where the second begins at the end of the first."""
    before, after = earlier.trace, later.trace
    after = after._replace(seconds=after.seconds + before.seconds[-1], sweeps=after.sweeps + before.sweeps[-1])
    return later._replace(trace=Trace(*(np.concatenate(rows) for rows in zip(before, after, strict=True))))


class Display:
    """A line on a terminal that says where the search is; nothing elsewhere."""

    def __init__(self, progress: bool | None) -> None:
        wanted = sys.stderr.isatty() if progress is None else progress
        self._progress = _line() if wanted else None

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("fitting")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, objective: float, step: int) -> None:
        """Refresh the line."""
        if self._progress is not None:
            self._progress.update(self._task, description=f"fitting: step {step}, objective {objective:.4f}")


def _line() -> Any:
    # Loaded only where something is shown: the arithmetic must run where nothing but JAX and its kin is installed.
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*columns, transient=True)
