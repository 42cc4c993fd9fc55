"""Inducing times, and data tied to the segments between them. Plain numpy: this happens once, before any arithmetic."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from thiele.series import Series
from thiele.tied import Tied

# So many data are in memory at once, with their weights and quadrature nodes.
DATA_AT_ONCE = 16_384


def even_times(series: Series, count: int) -> Float[np.ndarray, " M"]:
    """`count` times evenly spaced from the first observation to the last."""
    time = series.time[series.observed]
    return np.unique(np.linspace(time[0], time[-1], count))


def quantile_times(series: Series, count: int) -> Float[np.ndarray, " M"]:
    """`count` times with about as many observations between any two neighbours."""
    time = series.time[series.observed]
    return np.unique(np.quantile(time, np.linspace(0.0, 1.0, count)))


def tie(series: Series, z: Float[np.ndarray, " M"]) -> Tied:
    """The data in tiles, each inside one of the segments [z_m, z_{m+1})."""
    time = np.asarray(series.time)
    edges = np.concatenate([[0], np.searchsorted(time, z, side="left"), [len(time)]])
    inside = np.diff(edges)
    # Half of the typical number in a segment: few places of a tile are empty, few tiles make a segment.
    width = max(1, 1 << (int(len(time) / (2 * len(z))).bit_length() - 1 if len(time) >= 2 * len(z) else 0))
    tiles = -(-inside // width)
    segment = np.repeat(np.arange(len(inside)), tiles)
    first = np.repeat(np.cumsum(tiles) - tiles, tiles)
    start = edges[segment] + width * (np.arange(len(segment)) - first)
    length = np.minimum(edges[segment + 1] - start, width)
    # Their number depends on sizes alone, not on the times: series of one length share one compilation.
    most = len(time) // width + len(inside)
    at_once = max(1, min(most, DATA_AT_ONCE // width))
    groups = -(-most // at_once)
    cut = lambda x, fill: _padded(x, groups * at_once, fill).reshape(groups, at_once)  # noqa: E731
    tied = np.add.reduceat(np.append(series.observed, False).astype(np.float64), edges[:-1]) * (inside > 0)
    return Tied(
        time=time,
        y=series.y,
        mask=series.observed,
        covariates=series.covariates,
        segment=cut(segment, len(z)),
        start=cut(start, 0),
        length=cut(length, 0),
        tied=tied,
        width=width,
    )


def _padded(x: np.ndarray, size: int, fill: int) -> np.ndarray:
    return np.concatenate([x, np.full(size - len(x), fill)]).astype(np.int32)
