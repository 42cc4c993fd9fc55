r"""What was learnt, in words: hyperparameters with their uncertainty, what was chosen, and what to be careful about.

Near its maximum the objective is −½ (u − û)′ A (u − û) in the free values u, with curvature A; so u ~ N(û, A⁻¹), and
an interval of u is one on the natural scale. A is found from differences of the gradient, two for each free value.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thiele import training
from thiele.durations import in_words
from thiele.fit import Fit
from thiele.parameters import Parameter, Unit, constrain, parameters, unconstrain
from thiele.precision import double_precision

STEP = 1e-3  # of free values, which are logarithms or the like
FLAT = 1e-4  # curvature below which the data say nothing: a change by a factor e costs less than 1e-4 nats
LONG = 3.0  # lengthscales beyond so many spans of the data are "longer than the data"


class Entry(NamedTuple):
    """One hyperparameter: its value, an interval that holds it, and how it came to be."""

    name: str
    value: float
    lower: float
    upper: float
    """NaN where it was fixed, or where the data leave it open."""
    said: str
    """"fixed", "learnt", "learnt, with a prior" or "given"."""
    time: bool
    """Whether it is a length of time, in the units of the data's clock."""


class Summary(NamedTuple):
    """`print` it. `parameters` is for programs."""

    data: tuple[str, ...]
    parameters: tuple[Entry, ...]
    method: tuple[str, ...]
    warnings: tuple[str, ...]
    level: float
    dated: bool

    def __str__(self) -> str:
        rows = [("hyperparameter", "value", f"{100 * self.level:g} % between", "")]
        rows += [self._row(entry) for entry in self.parameters]
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        warned = [f"warning: {text}" for text in self.warnings]
        return "\n".join([*self.data, "", *lines, "", *self.method, *([""] if warned else []), *warned])

    __repr__ = __str__

    def _row(self, entry: Entry) -> tuple[str, str, str, str]:
        show = in_words if entry.time and self.dated else lambda x: f"{x:.4g}"
        open_ended = np.isnan(entry.lower) or np.isnan(entry.upper)
        between = "" if open_ended else f"{show(entry.lower)} and {show(entry.upper)}"
        return entry.name, show(entry.value), between, entry.said


@double_precision
def summary(fit: Fit, level: float = 0.95) -> Summary:
    """Hyperparameters with intervals of probability `level`, what was chosen, and warnings in plain words."""
    if not isinstance(level, (int, float)) or not 0.0 < level < 1.0:
        raise ValueError(f"`level` must be a number between 0 and 1, got {level!r}")
    deviations = standard_errors(fit) if fit.learnt is not None else np.full(unconstrain(fit.model).shape, np.nan)
    entries = tuple(_entries(fit, deviations, NormalDist().inv_cdf(0.5 + 0.5 * level)))
    return Summary(
        _about_data(fit),
        entries,
        _about_method(fit),
        tuple(_warnings(fit, entries)),
        level,
        fit.clock.origin is not None,
    )


@double_precision
def standard_errors(fit: Fit) -> Float[np.ndarray, " free"]:
    """Standard deviations of the free values (`parameters.unconstrain`); NaN where the data leave a value open."""
    model = fit.model
    at = np.asarray(unconstrain(model))
    data: Any = fit.data
    if model.inducing is not None:
        data = model.inducing.tie(fit.data)

    def slope(vector: np.ndarray) -> np.ndarray:
        _, gradient = training.objective_and_gradient(model, jnp.asarray(vector), data, fit.sites)
        return np.asarray(gradient)

    if at.size == 0:
        return at
    # A mean is in the units of y; the others are logarithms or the like.
    size = np.concatenate([np.full(np.size(p.value), _step(fit, p)) for p in parameters(model) if not p.fixed])
    rows = [(slope(at + h * e) - slope(at - h * e)) / (2.0 * h) for h, e in zip(size, np.eye(at.size), strict=True)]
    curvature = -0.5 * (np.array(rows) + np.array(rows).T) * np.outer(size, size) / STEP**2
    if not np.all(np.isfinite(curvature)):
        return np.full(at.size, np.nan)
    values, vectors = np.linalg.eigh(curvature)
    known = values > FLAT
    variance = np.sum(np.where(known, vectors**2 / np.where(known, values, 1.0), 0.0), axis=1)
    # A value that moves along a direction in which nothing changes is open, whatever the other directions say.
    left_open = np.sum(vectors**2 * ~known, axis=1) > 1e-3
    return np.where(left_open, np.nan, np.sqrt(variance)) * size / STEP


def _step(fit: Fit, p: Parameter) -> float:
    spread = float(np.std(np.asarray(fit.data.y)[fit.data.observed])) or 1.0
    return STEP * (spread if p.unit is Unit.LATENT and training.has_gaussian_noise(fit.model) else 1.0)


def _entries(fit: Fit, deviations: np.ndarray, width: float) -> Any:
    centre = np.asarray(unconstrain(fit.model))
    low = list(parameters(constrain(fit.model, centre - width * np.nan_to_num(deviations))))
    high = list(parameters(constrain(fit.model, centre + width * np.nan_to_num(deviations))))
    place = 0
    for p, lower, upper in zip(parameters(fit.model), low, high, strict=True):
        if p.path[0] == "inducing":
            place += 0 if p.fixed else np.size(p.value)
            continue
        values, lows, highs = (np.ravel(np.asarray(x.value, float)) for x in (p, lower, upper))
        for i, value in enumerate(values):
            open_ended = p.fixed or np.isnan(deviations[place + i])
            ends = (np.nan, np.nan) if open_ended else (float(lows[i]), float(highs[i]))
            name = p.name if len(values) == 1 else f"{p.name}[{i}]"
            yield Entry(name, float(value), *ends, _how(fit, p, open_ended), p.unit is Unit.TIME)
        place += 0 if p.fixed else len(values)


def _how(fit: Fit, p: Parameter, open_ended: bool) -> str:
    if p.fixed:
        return "fixed"
    if fit.learnt is None:
        return "given"
    prior = ", with a prior" if p.prior is not None else ""
    return f"learnt{prior}" + ("; the data leave it open" if open_ended else "")


def _about_data(fit: Fit) -> tuple[str, ...]:
    n, seen = len(fit.data.time), int(np.sum(fit.data.observed))
    times = np.asarray(fit.data.time)
    span, distinct = float(times[-1] - times[0]), np.unique(times)
    first, last = fit.clock.times(times[[0, -1]])
    missing = f", {n - seen} missing" if n > seen else ""
    lines = [f"{seen} observations{missing}, from {_date(first)} to {_date(last)}"]
    if len(distinct) > 1:
        show = in_words if fit.clock.origin is not None else lambda x: f"{x:.4g}"
        repeated = f"; {n - len(distinct)} times repeated" if len(distinct) < n else ""
        lines.append(f"span {show(span)}, usual step {show(float(np.median(np.diff(distinct))))}{repeated}")
    return tuple(lines)


def _date(stamp: Any) -> str:
    return f"{stamp:.6g}" if isinstance(stamp, float | np.floating) else str(stamp).removesuffix(".000000")


def _about_method(fit: Fit) -> tuple[str, ...]:
    name = type(fit.likelihood).__name__
    if training.is_exact(fit.model):
        lines = [f"likelihood {name}; posterior exact"]
    else:
        lines = [f"likelihood {name}; posterior by {type(fit.model.rule).__name__}"]
    if fit.inducing is not None:
        lines[0] += f", {len(fit.inducing)} inducing times (they lose about {fit.slack:.2g} nats of log p(y))"
    lines.append(f"objective {fit.objective:.4f}")
    if fit.learnt is not None:
        trace = fit.learnt.trace
        lines[-1] += (
            f" after {max(len(trace.objective) - 1, 0)} steps, {trace.seconds[-1] if len(trace.seconds) else 0:.1f} s"
        )
    return (*lines, *(f"chosen: {note}" for note in fit.model.notes))


def _warnings(fit: Fit, entries: tuple[Entry, ...]) -> list[str]:
    said = []
    if fit.learnt is not None and not fit.learnt.converged:
        said.append(f"learning stopped early ({fit.learnt.message}): raise `max_steps`, or start from other values")
    if fit.inference is not None and bool(fit.inference.unconverged):
        said.append("the approximation did not settle: try another rule, such as th.PowerEP(power=0.5) or th.Laplace()")
    times = np.asarray(fit.data.time)
    span = float(times[-1] - times[0])
    distinct = np.unique(times)
    gap = float(np.median(np.diff(distinct))) if len(distinct) > 1 else span
    for entry in entries:
        if entry.said == "fixed" or not entry.time or span == 0.0 or not entry.name.endswith("lengthscale"):
            continue
        if entry.value > LONG * span:
            said.append(f"{entry.name} is longer than the data: they show a part of one rise or fall, or a constant")
        elif entry.value < 0.3 * gap:
            said.append(
                f"{entry.name} is shorter than the steps between the data: to this part of the model neighbours have "
                "nothing to do with one another, it acts as noise"
            )
    left_open = [entry.name for entry in entries if entry.said.endswith("leave it open")]
    if left_open and fit.learnt is not None:
        said.append(f"the data say little about {', '.join(left_open)}: state a prior (th.param) or fix it (th.fixed)")
    if fit.inducing is not None and fit.slack > 0.01 * int(np.sum(fit.data.observed)):
        said.append("inducing times lose a good part of what the data say: use more of them, or inducing='auto'")
    return said
