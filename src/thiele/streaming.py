"""More data for a fit: the hyperparameters stay, the posterior takes everything in."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from thiele.axes import separated
from thiele.fit import Fit
from thiele.inducing import Places
from thiele.model import conditioned
from thiele.parameters import fixed
from thiele.precision import double_precision
from thiele.series import Clock, floats, series


@double_precision
def update(fit: Fit, t_more: Any, y_more: Any = None, covariates: dict[str, Any] | None = None) -> Fit:
    """The posterior given the old data and the new, in any order of time, with the hyperparameters as they are.

    It costs one `condition` on all data, which for a Gaussian likelihood is one pass. Inducing times go on at their
    usual distance as far as the new data reach. Covariates are needed if the old data had them.
    """
    t_more, y_more = separated(t_more, y_more)
    new, values = fit.clock.numbers(t_more, "t_more"), floats(y_more, "y_more")
    if values.shape != new.shape:
        raise ValueError(f"`t_more` and `y_more` must have the same length, got {len(new)} and {values.shape}")
    old, extra = fit.data, covariates or {}
    if set(extra) != set(old.covariates):
        wanted = ", ".join(f"`{name}`" for name in old.covariates) or "none"
        raise ValueError(f"covariates must be those of the data that were fitted ({wanted}), got {sorted(extra)}")
    rows = np.asarray(fit.order) if not isinstance(fit.order, slice) else slice(None)

    def joined(before: np.ndarray, after: Any, name: str) -> np.ndarray:
        given = np.empty_like(np.asarray(before))
        given[rows] = before
        return np.concatenate([given, np.broadcast_to(floats(after, name), new.shape)])

    y = joined(np.where(old.observed, old.y, np.nan), values, "y_more")
    times = joined(old.time, new, "t_more")
    places = _longer(fit.model.inducing, times)
    columns = {name: joined(value, extra[name], name) for name, value in old.covariates.items()}
    data, order = series(times, y, Clock(), columns, find_repeated=places is None)
    fit.model.likelihood.at(**data.covariates).check(np.where(data.observed, data.y, np.nan))
    model = dataclasses.replace(fit.model, inducing=places)
    return dataclasses.replace(conditioned(model, data, order, fit.clock), learnt=fit.learnt)


def _longer(places: Places | None, times: np.ndarray) -> Places | None:
    """Inducing times that reach as far as the data do."""
    if places is None:
        return None
    old = np.asarray(places.times)
    gap = float(np.median(np.diff(old))) if len(old) > 1 else float(np.ptp(times)) or 1.0
    after = np.arange(1, int(np.ceil((np.max(times) - old[-1]) / gap - 1e-9)) + 1) * gap + old[-1]
    before = old[0] - np.arange(int(np.ceil((old[0] - np.min(times)) / gap - 1e-9)), 0, -1) * gap
    return Places(fixed(np.concatenate([before, old, after])), of=places.of)
