"""What comes after the data, and what is missing within them, as tables over the user's own times."""

from __future__ import annotations

from typing import Any

import numpy as np

from thiele.axes import dates, table
from thiele.calendars import Rhythm, following, rhythm_of, to_local, to_utc
from thiele.fit import Fit

MOST = 1_000_000  # steps of a forecast; more is a mistake of units


def forecast(
    fit: Fit, horizon: Any, step: Any = None, level: float = 0.95, covariates: dict[str, Any] | None = None
) -> Any:
    """Mean, standard deviation and central interval of observations after the last datum, over the times to come.

    `horizon` says how far: a number in the units of time (days for dates), or a duration, "14 days", a timedelta. The
    times follow the rhythm of the data, or are `step` apart: a series of months goes on by months, a series of local
    days by local days. Covariates of the observations to come (`exposure`) are one number, or one for each.
    """
    times = fit.clock.times(times_ahead(fit, horizon, step))
    return fit.predict(times, **(covariates or {})).table(level)


def times_ahead(fit: Fit, horizon: Any, step: Any = None) -> np.ndarray:
    """The times of a forecast, as numbers of the data's clock."""
    far = fit.clock.span(horizon, "horizon")
    if not far > 0.0:
        raise ValueError(f"`horizon` must be positive, got {horizon!r}")
    each = None if step is None else fit.clock.span(step, "step")
    if each is not None and not each > 0.0:
        raise ValueError(f"`step` must be positive, got {step!r}")
    seen = np.unique(np.asarray(fit.data.time))
    last = float(seen[-1])
    usual = float(np.median(np.diff(seen))) if len(seen) > 1 else 1.0
    if far < (each or usual) * (1.0 - 1e-9) and each is None:
        each = far  # nearer than one step of the data: the horizon itself
    if far / (each or usual) > MOST:
        raise ValueError(
            f"`horizon` must be at most {MOST:,} steps ahead, got {horizon!r} with steps of {each or usual:g}; a "
            "larger `step` makes fewer"
        )
    if fit.clock.origin is None or (each is not None and each % 1.0 != 0.0):
        size = each or usual
        return last + size * np.arange(1, int(far / size + 1e-9) + 1)
    zone, origin = fit.clock.axis.zone, fit.clock.origin
    # The rhythm of the latest dates: how the series goes on, also if it once went otherwise.
    local = to_local(dates(origin, seen[-1000:]), zone)
    rhythm = rhythm_of(local) if each is None else Rhythm(days=each)
    count = int(far / min(usual, each or usual, 28.0 * rhythm.months or np.inf)) + 2
    ahead = (to_utc(following(local[-1], rhythm, count), zone) - origin) / np.timedelta64(1, "D")
    # Months differ by three days and local days by an hour: what is nearer to the end than that is within.
    allowance = 1.5 if rhythm.months else (1.0 / 24.0 + 1e-9 if zone is not None and rhythm.days >= 1.0 else 1e-9)
    return ahead[ahead <= last + far + allowance]


def impute(fit: Fit, level: float = 0.95) -> Any:
    """The data in the order given, with E y in place of what is missing: `value`, `lower`, `upper`, `imputed`.

    The interval holds an observation with probability `level`; of what was observed, both ends are the value itself.
    """
    given = _in_order(fit, np.asarray(fit.data.y))
    seen = _in_order(fit, np.asarray(fit.data.observed))
    covariates = {name: _in_order(fit, np.asarray(value)) for name, value in fit.data.covariates.items()}
    p = fit.predict(**covariates)
    if p.y_mean.ndim > 1:
        raise ValueError(f"`impute` needs values with a mean; {type(fit.likelihood).__name__} has categories")
    lower, upper = p.interval(level)
    columns = {
        "value": np.where(seen, given, p.y_mean),
        "lower": np.where(seen, given, lower),
        "upper": np.where(seen, given, upper),
        "imputed": ~seen,
    }
    return table(fit.clock.axis, p.times, columns)


def _in_order(fit: Fit, column: np.ndarray) -> np.ndarray:
    """A column in the order of time as the user's rows have it."""
    rows = np.empty_like(column)
    rows[fit.order] = column
    return rows
