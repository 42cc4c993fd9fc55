"""Inducing times, and data tied to the segments between them. Plain numpy: this happens once, before any arithmetic."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from thiele.kernels import AbstractKernel
from thiele.own_sites import Grouped, group, pays
from thiele.parameters import Parametric, fixed, increasing, param, unconstrain
from thiele.series import DAY, Clock, Series
from thiele.tied import Tied
from thiele.tiles import data_rows, sums_of

# So many data are in memory at once, with their weights and quadrature nodes, where nothing is known of these; and so
# many numbers of weights, which should stay in the cache, where they are. One group of all data is visited soonest.
DATA_AT_ONCE, MOST_AT_ONCE = 2048, 16_384
WEIGHTS_AT_ONCE = 2**18
# What a tile costs beside its data, in data: the moments of its segment and its share of the site.
COST_OF_A_TILE = 2


Kind = Literal["states", "values"]


class Places(Parametric):
    """Inducing times, in the units of the data's clock, and what is induced there."""

    times: Array = increasing()
    of: Kind = eqx.field(static=True, default="states", kw_only=True)

    def tie(self, series: Series, kernel: AbstractKernel | None = None) -> Tied:
        """The data, tied to the segments that these times make; where they are learnt, in shapes that stay the same.
        The kernel says how many weights a datum has.
        """
        at_once = None
        if kernel is not None and self.of == "states":
            at_once = min(MOST_AT_ONCE, max(1, WEIGHTS_AT_ONCE // (2 * kernel.sde().dim * kernel.latents)))
        return tie(series, np.asarray(self.times), self.of, moving=unconstrain(self).size > 0, data_at_once=at_once)

    def group(self, series: Series, kernel: AbstractKernel) -> Grouped | None:
        """The data by segments, for sites of their own, where that is the lesser work."""
        if self.of != "states" or unconstrain(self).size > 0:
            return None
        edges = _edges(np.asarray(series.time), np.asarray(self.times))
        if not pays(kernel, int(np.max(np.diff(edges)))):
            return None
        return group(series.time, series.y, series.observed, series.covariates, edges)


def _plain(given: Any) -> Any:
    """Numbers and dates of Python in place of numpy's: what is static must hash and compare."""
    array = np.asarray(given)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    plain = (array / DAY if array.dtype.kind == "m" else array).tolist()
    return tuple(plain) if isinstance(plain, list) else plain


def _edges(time: Float[np.ndarray, " n"], z: Float[np.ndarray, " M"]) -> Int[np.ndarray, " S+1"]:
    """Where the segments [z_m, z_{m+1}) begin and end among sorted times."""
    return np.concatenate([[0], np.searchsorted(time, z, side="left"), [len(time)]])


class Inducing(eqx.Module):
    """Which inducing times a model is to have: `count` of them, or those that are given as `times`.

    `at` is "even" (from the first observation to the last) or "quantiles" (as many observations between any two
    neighbours). With `learn=True` the times are learnt with the hyperparameters, from there on. `of="values"` takes the
    values of f there in place of its whole state, with dense algebra: the sparse GP of the textbooks, a baseline.
    `count="auto"` takes as many as it needs to lose at most `tolerance` nats of log p(y) per observation.
    """

    count: int | Literal["auto"] | None = eqx.field(converter=_plain, static=True, default=None)
    at: Literal["even", "quantiles"] = eqx.field(static=True, default="even", kw_only=True)
    times: tuple | None = eqx.field(converter=_plain, static=True, default=None, kw_only=True)
    learn: bool = eqx.field(static=True, default=False, kw_only=True)
    of: Kind = eqx.field(static=True, default="states", kw_only=True)
    tolerance: float = eqx.field(static=True, default=1e-3, kw_only=True)

    def __check_init__(self) -> None:
        if (self.count is None) == (self.times is None):
            raise ValueError(f"`Inducing` takes either `count` or `times`, got {self.count!r} and {self.times!r}")
        if self.count not in (None, "auto"):
            if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer):
                raise TypeError(f'`count` of Inducing must be an integer or "auto", got {self.count!r}')
            if self.count < 1:
                raise ValueError(f"`count` of Inducing must be at least 1, got {self.count}")
        if not isinstance(self.tolerance, int | float) or not self.tolerance > 0:
            raise ValueError(f"`tolerance` of Inducing must be a positive number, got {self.tolerance!r}")
        if self.count == "auto" and (self.of, self.at, self.learn) != ("states", "even", False):
            raise ValueError('`count="auto"` of Inducing takes states, evenly spaced and not learnt')
        if self.at not in ("even", "quantiles"):
            raise ValueError(f'`at` of Inducing must be "even" or "quantiles", got {self.at!r}')
        if self.of not in ("states", "values"):
            raise ValueError(f'`of` of Inducing must be "states" or "values", got {self.of!r}')

    def place(self, series: Series, clock: Clock) -> Places:
        """The times for these data; those that coincide are one."""
        if self.times is not None:
            times = np.unique(clock.numbers(np.asarray(self.times), "inducing"))
        else:
            seen = series.time[series.observed]
            shares = np.linspace(0.0, 1.0, self.count)
            even = seen[0] + shares * (seen[-1] - seen[0])
            times = np.unique(even if self.at == "even" else np.quantile(seen, shares))
        return Places(param(times) if self.learn else fixed(times), of=self.of)


def as_inducing(given: Any) -> Inducing | Places | None:
    """None: a site for each datum. A number: so many, evenly spaced. An array: there. "auto": enough."""
    if given is None or isinstance(given, Inducing | Places):
        return given
    if isinstance(given, str) and given == "auto":
        return Inducing("auto")
    if isinstance(given, bool | str | float):
        raise TypeError(f'`inducing` must be a number or an array of times, "auto", th.Inducing or None, got {given!r}')
    if np.ndim(given) == 0:
        return Inducing(given)
    if np.ndim(given) != 1 or np.size(given) == 0:
        raise ValueError(f"`inducing` must have shape (M,), M at least 1, got {np.shape(given)}")
    return Inducing(times=given)


def tie(
    series: Series,
    z: Float[np.ndarray, " M"],
    of: Kind = "states",
    *,
    whole: bool = False,
    moving: bool = False,
    data_at_once: int | None = None,
) -> Tied:
    """The data in tiles, each inside one of the segments [z_m, z_{m+1}); inducing values make one segment of all.

    `whole` makes one tile of each segment, however many data it holds. The shapes fit these times, and with `moving`
    any times: as many tiles as there may be, of the width that suits even segments.
    """
    time = np.asarray(series.time)
    edges = _edges(time, z if of == "states" else z[:0])
    inside = np.diff(edges)
    expected = np.full_like(inside, -(-len(time) // len(inside))) if moving else inside
    if whole:
        width, tiles, most = max(1, int(np.max(inside))), np.ones_like(inside), len(inside)
    else:
        width = _best_width(expected)
        tiles = -(-inside // width)
        most = len(time) // width + len(inside) if moving else _rounded_up(int(np.sum(tiles)))
    segment = np.repeat(np.arange(len(inside)), tiles)
    first = np.repeat(np.cumsum(tiles) - tiles, tiles)
    start = edges[segment] + width * (np.arange(len(segment)) - first)
    length = np.minimum(edges[segment + 1] - start, width)
    at_once = most if whole else max(1, min(most, (data_at_once or DATA_AT_ONCE) // width))
    groups = -(-most // at_once)
    cut = lambda x, fill: _padded(x, groups * at_once, fill).reshape(groups, at_once)  # noqa: E731
    # Of segments that hold data only: an empty one would begin where another does, or beyond the last row.
    tied, holds = np.zeros(len(inside)), inside > 0
    tied[holds] = np.add.reduceat(series.observed, edges[:-1][holds], dtype=np.int64)
    in_groups = {"segment": cut(segment, len(inside) - 1), "start": cut(start, 0), "length": cut(length, 0)}
    # Where times move, so does what a table of places would say.
    still = not (moving or whole)
    return Tied(
        time=time,
        y=series.y,
        mask=series.observed,
        covariates=series.covariates,
        space=series.space,
        **in_groups,
        tied=tied,
        scale=np.ones(()),
        width=width,
        sums=sums_of(in_groups["segment"], in_groups["length"], len(inside)) if still else None,
        rows=data_rows(in_groups["length"], width) if still else None,
    )


def _best_width(inside: Int[np.ndarray, " S"]) -> int:
    """How many places a tile should have for the least work, with so many data in each segment."""
    widths = np.array([*range(1, 17), *(2**k for k in range(5, DATA_AT_ONCE.bit_length()))])
    tiles = np.sum(-(-inside // widths[:, None]), axis=1)
    return int(widths[np.argmin(tiles * (widths + COST_OF_A_TILE))])


def _rounded_up(count: int) -> int:
    """A number with few digits, at most an eighth more: series that are nearly alike share one compilation."""
    unit = max(1, (1 << max(0, count.bit_length() - 1)) // 8)
    return -(-count // unit) * unit


def _padded(x: np.ndarray, size: int, fill: int) -> np.ndarray:
    return np.concatenate([x, np.full(size - len(x), fill)]).astype(np.int32)
