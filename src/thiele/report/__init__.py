"""One page about a fit: an HTML file that holds its data, its pictures and the program that draws them.

Nothing is loaded from a network, so the page can be sent by mail, archived, and opened in ten years. The data travel as
JSON in which no character can end the script; everything shown is set as text, never as markup.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from thiele.archives import write_whole
from thiele.calendars import to_local
from thiele.checks import check
from thiele.durations import in_words
from thiele.fit import Fit
from thiele.forecast import times_ahead
from thiele.left_out import anomalies
from thiele.likelihoods import Bernoulli
from thiele.parameters import Unit, parameters
from thiele.prediction import Prediction
from thiele.series import Clock
from thiele.summary import summary

GRID = 800  # times of the curves
POINTS = 4000  # observations drawn; of more, the lowest and the highest of each bin
ROWS = 400  # of the forecast's table
AHEAD = 0.15  # the horizon where none is stated, as a share of the span
DIGITS = 7


def report(
    fit: Fit, path: str | os.PathLike, *, horizon: Any = None, title: str = "A fit", level: float = 0.95
) -> Path:
    """Write an interactive page about `fit` to `path`; `horizon` says how far ahead it looks, `title` heads it."""
    page = files("thiele.report")
    read = lambda name: page.joinpath(name).read_text(encoding="utf-8")  # noqa: E731
    data = json.dumps(_contents(fit, horizon, level), allow_nan=False, separators=(",", ":"))
    parts = {
        "@STYLE@": read("style.css"),
        "@SCRIPT@": read("script.js"),
        " @VERSION@": _version(),
        "@TITLE@": _text(title),
        "@DATA@": data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
    }
    html = read("page.html")
    for mark, value in parts.items():
        html = html.replace(mark, value)
    return write_whole(Path(path), html.encode("utf-8"))


def _version() -> str:
    try:
        return f" {version('thiele')}"
    except PackageNotFoundError:  # a checkout that is not installed
        return ""


def _text(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _contents(fit: Fit, horizon: Any, level: float) -> dict[str, Any]:
    seen = np.asarray(fit.data.observed)
    time, y = np.asarray(fit.data.time)[seen], np.asarray(fit.data.y)[seen]
    first, last = float(fit.data.time[0]), float(fit.data.time[-1])
    span = last - first
    ahead = times_ahead(fit, horizon if horizon is not None else AHEAD * span) if span or horizon else np.zeros(0)
    end = max([last, *ahead])
    curve = np.linspace(first, end, GRID) if end > first else np.array([first])
    said = summary(fit, level)
    along = fit.predict(fit.clock.times(curve), **_usual(fit))
    if along.y_mean.ndim > 1:
        raise ValueError(f"a report needs values in an order; {type(fit.likelihood).__name__} has categories")
    found = check(fit)
    return {
        "dated": fit.clock.origin is not None,
        "level": f"{100 * level:g} %",
        "band": f"{100 * level:g} % of {'the probability' if _is_binary(fit) else 'observations'}",
        "about": [*said.data, *([f"times in {fit.clock.axis.zone}"] if fit.clock.axis.zone else [])],
        "warnings": [*said.warnings, *found.warnings],
        "parameters": [list(said._row(entry)) for entry in said.parameters],
        "method": list(said.method),
        "points": _points(fit, time, y),
        "shade": _stamps(fit, np.array([last, end])).tolist() if end > last else None,
        "curve": {"t": _stamps(fit, curve).tolist(), **_columns(along, level)},
        "forecast": _forecast(fit, ahead[:ROWS], level) if len(ahead) else None,
        "components": _components(fit, curve, level),
        "anomalies": _anomalies(fit, level),
        "check": {
            "n": found.n,
            "histogram": _numbers(found.histogram),
            "levels": _numbers(found.levels),
            "coverage": _numbers(found.coverage),
            "autocorrelation": _numbers(found.autocorrelation),
            "ahead": found.ahead,
        },
        "trace": None if fit.trace is None or len(fit.trace.objective) < 2 else _numbers(fit.trace.objective),
    }


def _usual(fit: Fit) -> dict[str, float]:
    """Covariates of a typical observation, for curves between the data."""
    return {name: float(np.median(value)) for name, value in fit.data.covariates.items()}


def _forecast(fit: Fit, ahead: np.ndarray, level: float) -> dict[str, Any]:
    p = fit.predict(fit.clock.times(ahead), **_usual(fit))
    return {"t": _stamps(fit, ahead).tolist(), **_columns(p, level)}


def _columns(p: Prediction, level: float) -> dict[str, Any]:
    # That a value of 0 or 1 lies between 0 and 1 says nothing; how sure its probability is does.
    lower, upper = p.mean_interval(level) if isinstance(p.likelihood, Bernoulli) else p.interval(level)
    return {"mean": _numbers(p.y_mean), "lower": _numbers(lower), "upper": _numbers(upper)}


def _is_binary(fit: Fit) -> bool:
    return isinstance(fit.model.likelihood, Bernoulli)


def _points(fit: Fit, time: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    if len(time) > POINTS:
        bins = np.array_split(np.arange(len(time)), POINTS // 2)
        kept = np.unique([row for rows in bins for row in (rows[np.argmin(y[rows])], rows[np.argmax(y[rows])])])
        time, y = time[kept], y[kept]
    return {"t": _stamps(fit, time).tolist(), "y": _numbers(y)}


def _components(fit: Fit, numbers: np.ndarray, level: float) -> list[dict[str, Any]]:
    if len(fit.model.kernel.parts()) < 2 or (fit.model.inducing is not None and fit.model.inducing.of == "values"):
        return []
    width = NormalDist().inv_cdf(0.5 + 0.5 * level)
    found = []
    for part in fit.components(fit.clock.times(numbers)):
        spread = width * np.sqrt(part.var)
        curves = {"mean": part.mean, "lower": part.mean - spread, "upper": part.mean + spread}
        found.append({"name": _name(part.kernel, fit), **{name: _numbers(x) for name, x in curves.items()}})
    return found


def _name(kernel: Any, fit: Fit) -> str:
    """The kernel and its lengths of time: "Matern32, lengthscale 18 days"."""
    show = in_words if fit.clock.origin is not None else lambda x: f"{x:.4g}"
    lengths = [f"{p.name} {show(float(p.value))}" for p in parameters(kernel) if p.unit is Unit.TIME]
    return ", ".join([type(kernel).__name__, *lengths])


def _anomalies(fit: Fit, level: float) -> dict[str, Any]:
    # As plain arrays, whatever library the data came in.
    plain = _plainly(fit)
    found = anomalies(plain, level=level)
    columns = {name: _numbers(found[name]) for name in ("value", "mean", "lower", "upper", "probability")}
    return {"t": _stamps(fit, plain.clock.numbers(found["time"])).tolist(), **columns}


def _plainly(fit: Fit) -> Fit:
    """The same fit as of plain arrays."""
    return dataclasses.replace(fit, clock=Clock(fit.clock.origin))


def _stamps(fit: Fit, numbers: np.ndarray) -> np.ndarray:
    """Times as the page has them: milliseconds of the clock on the wall for dates, numbers otherwise."""
    if fit.clock.origin is None:
        return numbers
    utc = np.asarray(_plainly(fit).clock.times(numbers))
    return to_local(utc, fit.clock.axis.zone).astype("datetime64[ms]").astype(np.int64)


def _numbers(values: Any) -> list[float | None]:
    """For JSON: a few digits, and nothing where a number is not finite."""
    return [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in np.asarray(values, float).tolist()]
