"""Starting values for hyperparameters that the user left at their defaults, in the units of the data.

A default lengthscale of 1 means nothing until one knows whether time is in seconds or in centuries. Values that the
user gave are where learning starts; the others are tried on a grid that spans the data, and the best start wins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from thiele.parameters import Parameter, Parametric, Unit, parameters, replace
from thiele.series import Series

SHARES_OF_SPAN = (0.3, 0.1, 0.03, 0.01, 0.003)
STEPS_OF_GAP = (30.0, 5.0)
SHARES_OF_NOISE = (0.5, 0.05)
SHARE_OF_REACH = 0.3


def starting_points(model: Parametric, series: Series, location: bool) -> Iterator[Parametric]:
    """Models to try; `location` says that f is on the scale of y, so that the variance of y bounds that of f."""
    automatic = [p for p in parameters(model) if p.automatic and not p.fixed]
    timed = [p for p in automatic if p.unit in (Unit.TIME, Unit.RATE)]
    spread_out = [p for p in automatic if p.unit is Unit.SPACE]
    y, time = series.y[series.observed], series.time[series.observed]
    spread = float(np.var(y)) or 1.0
    span = float(time[-1] - time[0]) or 1.0
    gap = float(np.median(np.diff(np.unique(time)))) if len(np.unique(time)) > 1 else span
    scales = [s * span for s in SHARES_OF_SPAN if s * span > 2.0 * gap] or [span]
    # Bursts far apart: the span says nothing about what happens within one.
    scales += [s * gap for s in STEPS_OF_GAP if s * gap < 0.5 * min(scales)]
    reach = _reach(series)
    noisy = location and any(_is_noise(p) for p in automatic)
    for scale, share in itertools.product(scales if timed else [1.0], SHARES_OF_NOISE if noisy else [0.5]):
        values = {}
        # Parts that differ in nothing else must not start equal: the gradient could never tell them apart.
        for k, p in enumerate(timed):
            length = max(scale / 3.0**k, gap)
            values[p.name] = length if p.unit is Unit.TIME else 2.0 * np.pi / length
        for k, p in enumerate(spread_out):
            values[p.name] = np.broadcast_to(SHARE_OF_REACH * reach / 2.0**k, np.shape(p.value))
        parts = [p for p in automatic if p.unit is Unit.VARIANCE]
        for p in parts:
            values[p.name] = (1.0 - share) * spread / len(parts) if location else 1.0
        for p in automatic:
            if location and _is_noise(p):
                values[p.name] = share * spread
            elif location and p.unit is Unit.LATENT:
                values[p.name] = _means(y, np.shape(p.value), series)
        yield replace(model, {name: np.asarray(value) for name, value in values.items()})


def _means(y: np.ndarray, shape: tuple[int, ...], series: Series) -> np.ndarray:
    """The mean of all data, or of each output's where there is a mean for each."""
    if not shape or series.space is None:
        return np.full(shape, np.mean(y))
    output = series.space[series.observed, -1]
    return np.array([np.mean(y[output == i]) if np.any(output == i) else np.mean(y) for i in range(*shape)])


def _reach(series: Series) -> float:
    """How far places lie apart: the mean extent of their coordinates."""
    return 1.0 if series.space is None else float(np.mean(np.ptp(series.space, axis=0))) or 1.0


def natural_scales(model: Parametric, series: Series, location: bool) -> np.ndarray:
    """The size of a step that matters, for each entry of `unconstrain(model)`.

    Logarithms are of order one. A mean is in the units of y, and a search must not mistake 1e-6 of them for nothing.
    """
    spread = float(np.std(series.y[series.observed])) or 1.0
    free = [p for p in parameters(model) if not p.fixed]
    sizes = [np.full(np.size(p.value), spread if location and p.unit is Unit.LATENT else 1.0) for p in free]
    return np.concatenate(sizes) if sizes else np.zeros(0)


def _is_noise(p: Parameter) -> bool:
    return p.path[0] == "likelihood" and p.path[-1] == "variance"
