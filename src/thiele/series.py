"""From what a user holds (times and values, in any order, with holes) to arrays in the order of time.

Checks happen here, before any arithmetic: every error names the argument, what was expected and what came.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from thiele.axes import Axis, as_given, axis_of, plain
from thiele.durations import in_days, is_duration
from thiele.steps import DistinctSteps, distinct_steps

DAY = np.timedelta64(1, "D")


class Clock(NamedTuple):
    """How times became numbers: as they are, or as days since `origin`; and what `axis` they came on."""

    origin: np.datetime64 | None = None
    axis: Axis = Axis()

    def numbers(self, t: Any, name: str = "t") -> np.ndarray:
        """Times as float64, in the units of this clock."""
        array = _as_array(t, name)
        if self.origin is None:
            if _is_dates(array):
                raise TypeError(f"`{name}` must be numbers, as in the data that were fitted, got dates")
            return _finite(floats(array, name), name)
        if not _is_dates(array):
            raise TypeError(f"`{name}` must be dates, as in the data that were fitted, got {array.dtype}")
        return (_dates(array, name) - self.origin) / DAY

    def times(self, numbers: np.ndarray) -> Any:
        """Numbers of this clock as the user's own times."""
        return as_given(self.axis, self.origin, numbers)

    def span(self, duration: Any, name: str) -> float:
        """A length of time in the units of this clock: a number as it is; where times are dates, also "7 days"."""
        if not is_duration(duration):
            number = floats(duration, name)
            if number.ndim != 0 or not np.isfinite(number):
                raise ValueError(f"`{name}` must be one finite number or a duration, got {duration!r}")
            return float(number)
        if self.origin is None:
            raise TypeError(f"`{name}` must be a number, in the units of `t`, which are no dates; got {duration!r}")
        return in_days(duration, name)


def clock_for(t: Any) -> Clock:
    """Numbers stay as they are; dates are counted in days from the first of them."""
    array = _as_array(t, "t")
    dated = _is_dates(array) and array.size
    return Clock(np.min(_dates(array, "t")) if dated else None, axis_of(t))


def _as_array(t: Any, name: str) -> np.ndarray:
    array = plain(t)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must have shape (n,), got {array.shape}")
    if np.ma.is_masked(t):
        raise ValueError(f"`{name}` must be known everywhere, got a masked value at row {int(np.argmax(t.mask))}")
    if array.dtype.kind == "m":
        return array / DAY
    return array


def _is_dates(array: np.ndarray) -> bool:
    return array.dtype.kind == "M" or (
        array.dtype == object and array.size > 0 and all(isinstance(x, datetime.date) for x in array)
    )


def _dates(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype == object:
        aware = [getattr(x, "tzinfo", None) is not None for x in array]
        if any(aware) and not all(aware):
            raise ValueError(f"`{name}` must have a time zone everywhere or nowhere, got both")
        if all(aware):
            array = np.array([x.astimezone(datetime.UTC).replace(tzinfo=None) for x in array])
        array = array.astype("datetime64[us]")
    elif np.datetime_data(array.dtype)[0] in "YM":
        array = array.astype("datetime64[D]")  # months and years have no fixed length in days
    if np.any(missing := np.isnat(array)):
        raise ValueError(f"`{name}` must hold dates only, got NaT at row {int(np.argmax(missing))}")
    return array


def floats(values: Any, name: str) -> np.ndarray:
    """Values as float64, with NaN where an array is masked; anything that is no number is refused."""
    array = values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else plain(values)
    if array.dtype.kind in "cmM":
        raise TypeError(f"`{name}` must be real numbers, got {array.dtype}")
    if array.dtype.kind == "U" and array.size and _looks_like_date(str(array.ravel()[0])):
        raise TypeError(
            f"`{name}` must be numbers or dates, got text such as {str(array.ravel()[0])!r}; "
            f"np.asarray({name}, dtype='datetime64') makes dates of it"
        )
    try:
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        for row, value in enumerate(array.ravel()):
            try:
                float(value)
            except (TypeError, ValueError):
                raise TypeError(f"`{name}` must be numbers, got {value!r} at row {row}") from None
        raise TypeError(f"`{name}` must be numbers, got {array.dtype}") from None


def _looks_like_date(text: str) -> bool:
    try:
        return not np.isnat(np.datetime64(text)) and not text.isdigit()
    except ValueError:
        return False


def _finite(array: np.ndarray, name: str) -> np.ndarray:
    if np.any(bad := ~np.isfinite(array)):
        row = int(np.argmax(bad))
        raise ValueError(f"`{name}` must be finite, got {array[row]} at row {row}")
    return array


def columns(inputs: Any, in_space: bool, name: str = "t") -> tuple[Any, Float[np.ndarray, "n D"] | None]:
    """Times and places of what a user gave: times alone, or for a kernel in space an array (n, 1 + D), a data frame
    with the time first, or a tuple of columns `(t, r1, r2)`, of which the first may be dates.
    """
    if not in_space:
        return inputs, None
    if isinstance(inputs, tuple):
        parts = inputs
    elif hasattr(inputs, "columns") and hasattr(inputs, "iloc"):
        parts = tuple(inputs.iloc[:, k] for k in range(inputs.shape[1]))
    else:
        array = np.asarray(inputs)
        if array.ndim != 2:
            raise ValueError(
                f"`{name}` must have shape (n, 1 + D), a time and D coordinates in each row, for a kernel in space, "
                f"got {array.shape}"
            )
        parts = tuple(array.T)
    if len(parts) < 2:
        raise ValueError(f"`{name}` must hold a time and coordinates for a kernel in space, got {len(parts)} column(s)")
    places = [floats(part, name) for part in parts[1:]]
    places = np.concatenate([x[:, None] if x.ndim == 1 else x for x in places], axis=1)
    if np.any(bad := ~np.all(np.isfinite(places), axis=1)):
        raise ValueError(
            f"coordinates in `{name}` must be finite, got {places[np.argmax(bad)]} at row {np.argmax(bad)}"
        )
    if len(places) != len(parts[0]):
        raise ValueError(f"columns of `{name}` must have the same length, got {len(parts[0])} and {len(places)}")
    return parts[0], places


class Slots(NamedTuple):
    """Data grouped by their times: state s of a chain holds the rows `row[s]`, where `taken`; row n is in slot
    `slot[n]` of state `step[n]`. A time with many more data than others takes several states.
    """

    time: Float[Array, " S"]
    row: Int[Array, "S p"]
    taken: Bool[Array, "S p"]
    step: Int[Array, " n"]
    slot: Int[Array, " n"]
    repeated: DistinctSteps | None


# What another slot costs, where a state costs one.
COST_OF_SLOT = 0.1


def slots(times: Float[np.ndarray, " n"]) -> Slots:
    """Group sorted times."""
    n = len(times)
    _, first, counts = np.unique(times, return_index=True, return_counts=True)
    most = int(np.max(counts))
    sizes = sorted({most, *(1 << k for k in range(most.bit_length()) if 1 << k < most)})
    cost = [np.sum(-(-counts // p)) * (1.0 + COST_OF_SLOT * p) for p in sizes]
    p = sizes[int(np.argmin(cost))]
    within = np.arange(n) - np.repeat(first, counts)
    states = -(-counts // p)
    step = np.repeat(np.cumsum(states) - states, counts) + within // p
    slot, S = within % p, int(np.sum(states))
    row, taken = np.zeros((S, p), np.int32), np.zeros((S, p), bool)
    row[step, slot], taken[step, slot] = np.arange(n), True
    time = times[row[:, 0]]
    return Slots(time, row, taken, step.astype(np.int32), slot.astype(np.int32), distinct_steps(time))


# The places of sorted rows in what was given; a slice of all where that was sorted.
Order = np.ndarray | slice


class Series(NamedTuple):
    """Observations in the order of time. `observed` is False where a value is missing, and y is then a stand-in."""

    time: Float[Array, " n"]
    y: Float[Array, " n *k"]
    observed: Bool[Array, " n"]
    covariates: dict[str, Float[Array, " n"]]
    repeated: DistinctSteps | None = None
    space: Float[Array, "n D"] | None = None
    slots: Slots | None = None


def series(
    t: Any,
    y: Any,
    clock: Clock,
    covariates: dict[str, Any] | None = None,
    find_repeated: bool = True,
    in_space: bool = False,
) -> tuple[Series, Order]:
    """Check, sort and mask. Returns the series and `order`: it holds the rows [order] of the input.

    `find_repeated` looks for time steps that repeat, which a chain on the data's own times makes use of. `in_space`
    says that `t` holds coordinates besides the time.
    """
    t, places = columns(t, in_space)
    times = clock.numbers(t)
    values = floats(y, "y")
    if values.ndim != 1:
        raise ValueError(f"`y` must have shape (n,), got {values.shape}")
    if len(times) != len(values):
        raise ValueError(f"`t` and `y` must have the same length, got {len(times)} and {len(values)}")
    if np.any(infinite := np.isinf(values)):
        row = int(np.argmax(infinite))
        raise ValueError(f"`y` must be finite or NaN (missing), got {values[row]} at row {row}")
    observed = ~np.isnan(values)
    if not np.any(observed):
        came = f"{len(values)} rows, all missing" if len(values) else "no rows"
        raise ValueError(f"`y` must hold at least one observed value, got {came}")
    # Ten million rows that come in order are not to be copied about.
    order = slice(None) if np.all(times[1:] >= times[:-1]) else np.argsort(times, kind="stable")
    extra = {name: value[order] for name, value in covariate_arrays(covariates or {}, len(times)).items()}
    if not np.all(observed):
        # A stand-in that every likelihood accepts, because it was observed: nothing is computed from an invalid value.
        values = np.where(observed, values, values[np.argmax(observed)])
    times = times[order]
    if places is not None:
        grouped = slots(times) if find_repeated else None
        return Series(times, values[order], observed[order], extra, None, places[order], grouped), order
    repeated = distinct_steps(times) if find_repeated else None
    return Series(times, values[order], observed[order], extra, repeated), order


def covariate_arrays(covariates: dict[str, Any], n: int) -> dict[str, np.ndarray]:
    """Per-datum covariates as float64, one value for each of `n` rows."""
    return {name: _covariate(name, value, n) for name, value in covariates.items()}


def _covariate(name: str, value: Any, n: int) -> np.ndarray:
    array = floats(value, name)
    if array.shape not in ((), (n,)):
        raise ValueError(f"`{name}` must have shape ({n},) like `t`, or be one number, got {array.shape}")
    return _finite(np.broadcast_to(array, (n,)), name)


def is_traced(*arrays: Any) -> bool:
    """Whether any of these is inside a JAX transformation, where values cannot be looked at."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays))


def traced_series(t: Array, y: Array, covariates: dict[str, Array]) -> Series:
    """`series` for arrays that JAX is tracing: shapes are checked, values cannot be. Sorts only if needed."""
    t, y = jnp.asarray(t, jnp.float64), jnp.asarray(y, jnp.float64)
    if t.ndim != 1 or y.shape != t.shape:
        raise ValueError(f"`t` and `y` must both have shape (n,), got {t.shape} and {y.shape}")

    columns = t, y, {name: jnp.broadcast_to(value, t.shape) for name, value in covariates.items()}

    def in_order(columns: tuple) -> tuple:
        # Sorted together: an index would be an integer of the caller's width, which is not known in this scope.
        leaves, structure = jax.tree.flatten(columns)
        return structure.unflatten(jax.lax.sort(leaves, num_keys=1, is_stable=True))

    t, y, extra = jax.lax.cond(jnp.all(t[1:] >= t[:-1]), lambda columns: columns, in_order, columns)
    observed = ~jnp.isnan(y)
    stand_in = jnp.max(jnp.where(observed, y, -jnp.inf))
    return Series(t, jnp.where(observed, y, jax.lax.stop_gradient(stand_in)), observed, extra)
