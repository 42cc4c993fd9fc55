"""Save a fit as one file, and load it: a zip of `thiele.json` and plain `.npy` arrays, readable without this library.

Nothing in a file is ever run: objects are named, and only names of this library's own classes are known. What is kept
is the model, the data, the sites and the way of learning; the posterior is computed anew from them, so that a file does
not depend on how the library arranges its arithmetic. A file is written beside its place and then put there in one
step: whatever happens, the old file or the new one is there, whole.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thiele import inducing, kernels, likelihoods, mean, model, priors, quadrature, rules, spatial, training
from thiele.archives import Archive, NotSaved, packed, unpacked, write_whole
from thiele.axes import Axis
from thiele.fit import Fit
from thiele.learn import Learnt, Trace
from thiele.parameters import Mark, Parametric, parameter_fields
from thiele.precision import double_precision
from thiele.rules import Site
from thiele.series import Clock, Series, slots
from thiele.steps import distinct_steps
from thiele.training import Report

FORMAT = "thiele fit"
VERSION = 1
ROOMS = (kernels, spatial, likelihoods, rules, quadrature, priors, inducing, mean, model)


def _known_classes() -> dict[str, type]:
    """What a file may name: the classes of these rooms that hold settings."""
    found = {}
    for room in ROOMS:
        here = room.__name__.removeprefix("thiele.")
        for name, thing in vars(room).items():
            settings = isinstance(thing, type) and dataclasses.is_dataclass(thing) and not inspect.isabstract(thing)
            if settings and thing.__module__.startswith(room.__name__):  # not what the room itself imports
                found[f"{here}.{name}"] = thing
    return found


KNOWN = _known_classes()
NAMES = {made: name for name, made in KNOWN.items()}


# Writing.


def save(fit: Fit, path: str | os.PathLike) -> Path:
    """Write `fit` to `path`, in place of what is there; returns the path."""
    return write_whole(Path(path), packed(archived(fit)))


def archived(fit: Fit) -> Archive:
    """All that is kept of a fit."""
    arrays: dict[str, np.ndarray] = {}

    def kept(name: str, value: Any) -> str:
        arrays[name] = np.asarray(value)
        return name

    data, learnt = fit.data, fit.learnt
    contents = {
        "format": FORMAT,
        "version": VERSION,
        "model": _plain(fit.model, arrays),
        "data": {
            "time": kept("time", data.time),
            "y": kept("y", data.y),
            "observed": kept("observed", data.observed),
            **({} if data.space is None else {"space": kept("space", data.space)}),
            "covariates": {name: kept(f"covariate-{name}", value) for name, value in data.covariates.items()},
        },
        "order": None if isinstance(fit.order, slice) else kept("order", fit.order),
        "clock": _clock(fit.clock),
        "objective": _plain(float(fit.objective), arrays),
        "sites": None if fit.sites is None else {k: kept(f"site-{k}", v) for k, v in fit.sites._asdict().items()},
        "learnt": None
        if learnt is None
        else {
            "vector": kept("learnt", learnt.vector),
            "objective": _plain(float(learnt.objective), arrays),
            "converged": bool(learnt.converged),
            "message": str(learnt.message),
            "trace": {name: kept(f"trace-{name}", value) for name, value in learnt.trace._asdict().items()},
        },
        "inference": None if fit.inference is None else {k: int(v) for k, v in fit.inference._asdict().items()},
    }
    return Archive(contents, arrays)


def _clock(clock: Clock) -> dict[str, Any]:
    dated = clock.origin is not None
    unit = np.datetime_data(clock.origin.dtype)[0] if dated else None
    return {"origin": str(clock.origin) if dated else None, "unit": unit, "axis": clock.axis._asdict()}


def _plain(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """What JSON can hold, with arrays put aside under names."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, jax.Array | np.ndarray):
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype == np.float64 and np.isfinite(array):
            return {"number": float(array)}  # its shortest decimal form, which gives the same double back
        name = f"model-{len(arrays)}"
        arrays[name] = array
        return {"array": name}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if type(value) in NAMES:
        return _described(value, arrays)
    raise TypeError(
        f"cannot save {type(value).__name__}: a file holds only what thiele itself defines, because loading one must "
        "not run code; keep the program that makes this model, and its data"
    )


def _described(thing: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(thing) if field.init]
    said = {"is": NAMES[type(thing)], **{name: _plain(getattr(thing, name), arrays) for name in names}}
    marks = {m.name: m for m in thing.marks} if isinstance(thing, Parametric) else {}
    return said | ({"marks": {name: _mark(mark, arrays) for name, mark in marks.items()}} if marks else {})


def _mark(mark: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    said = {"fixed": mark.fixed, "automatic": mark.automatic, "prior": _plain(mark.prior, arrays)}
    return said | ({"duration": True} if mark.duration else {})


# Reading.


@double_precision
def load(path: str | os.PathLike) -> Fit:
    """The fit that `fit.save(path)` wrote. No code in the file is run; a file that is not whole is refused."""
    return restored(unpacked(Path(path).read_bytes(), path, {FORMAT: VERSION}), path)


def restored(archive: Archive, path: Any, conditioned: Callable[[Fit], Fit] | None = None) -> Fit:
    """A fit from its archive, with its posterior by `conditioned`; `path` is for errors."""
    try:
        return (conditioned or with_posterior)(_held(archive))
    except NotSaved as problem:
        raise NotSaved(f"{path} {problem}") from None
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise NotSaved(f"{path} is damaged: {type(problem).__name__}: {problem}") from problem


def with_posterior(held: Fit) -> Fit:
    """With the posterior, which a file does not hold."""
    data, places = held.data, held.model.inducing
    seen = data if places is None else places.tie(data)
    posterior, _ = training.condition(held.model, seen, held.sites)
    return dataclasses.replace(held, posterior=posterior)


def _held(archive: Archive) -> Fit:
    """All that a file holds of a fit: everything but the posterior."""
    contents, arrays = archive.contents, archive.arrays
    found = _thing(contents["model"], arrays)
    held, learnt = contents["data"], contents["learnt"]
    time, space = arrays[held["time"]], arrays[held["space"]] if "space" in held else None
    chained = found.inducing is None
    data = Series(
        time,
        arrays[held["y"]],
        arrays[held["observed"]],
        {name: arrays[at] for name, at in held["covariates"].items()},
        distinct_steps(time) if chained and space is None else None,
        space,
        slots(time) if chained and space is not None else None,
    )
    rows = {len(data.time), len(data.y), len(data.observed), len(time if space is None else space)}
    if len(rows) > 1:
        raise NotSaved("is damaged: its times, places, values and marks of what was observed differ in length")
    sites = contents["sites"]
    sites = None if sites is None else Site(**{name: arrays[at] for name, at in sites.items()})
    posterior: Any = None
    return Fit(
        found,
        data,
        slice(None) if contents["order"] is None else arrays[contents["order"]],
        _clock_of(contents["clock"]),
        posterior,
        _thing(contents["objective"], arrays),
        jax.tree.map(jax.numpy.asarray, sites),
        None if learnt is None else _learnt(learnt, arrays),
        None if contents["inference"] is None else Report(**contents["inference"]),
    )


def _learnt(said: dict[str, Any], arrays: dict[str, np.ndarray]) -> Learnt:
    trace = Trace(**{name: arrays[at] for name, at in said["trace"].items()})
    return Learnt(
        arrays[said["vector"]], _thing(said["objective"], arrays), trace, bool(said["converged"]), str(said["message"])
    )


def _clock_of(said: dict[str, Any]) -> Clock:
    origin = None if said["origin"] is None else np.datetime64(said["origin"], said["unit"])
    return Clock(origin, Axis(**said["axis"]))


def _thing(said: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(said, dict):
        return said
    if "number" in said:
        return np.float64(said["number"])
    if "float" in said:
        return float(said["float"])
    if "array" in said:
        return arrays[said["array"]]
    if "tuple" in said:
        return tuple(_thing(item, arrays) for item in said["tuple"])
    if said["is"] not in KNOWN:
        raise NotSaved(f"holds {said['is']!r}, which this version of thiele does not know")
    return _made(KNOWN[said["is"]], said, arrays)


def _made(kind: type, said: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    made = kind(**{name: _thing(value, arrays) for name, value in said.items() if name not in ("is", "marks")})
    if issubclass(kind, Parametric):
        marks = {name: {**mark, "prior": _thing(mark["prior"], arrays)} for name, mark in said.get("marks", {}).items()}
        # In the order of the fields, as the constructor has them: models that are equal compile once.
        marks = tuple(Mark(f.name, **marks[f.name]) for f in parameter_fields(made) if f.name in marks)
        object.__setattr__(made, "marks", marks)
    return made
