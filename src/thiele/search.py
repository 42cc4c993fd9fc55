"""The objective of learning as a search sees it: scaled vectors in, numbers out.

A model here is what `thiele.training` takes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from thiele import even, training
from thiele.approximate import sites_of
from thiele.inducing import Places
from thiele.learn import Evaluation, Rounds
from thiele.own_sites import Grouped
from thiele.parameters import constrain, log_prior, unconstrain
from thiele.rules import CVI, Site
from thiele.series import Series
from thiele.tied import Tied

# A distance from the best so far, in units of it, that is not believed unless the sites have converged.
IMPLAUSIBLE = 1.0
# With few data a step takes less time than the host does to ask for the next: so many are visited before it is asked.
# Of many, a step in a loop takes longer than one by itself.
DATA_IN_A_PROGRAM, MOST_DATA_IN_A_LOOP = 2**16, 2**13


def tied(model: Any, data: Series, batched: bool = False) -> Series | Tied | Grouped:
    """The data as the model's sites take them: each by itself, or by the segments between inducing times, whose sites
    are of the data where that is less work and all of these are visited.
    """
    if not isinstance(model.inducing, Places):
        return data
    by_datum = isinstance(model.rule, CVI) and not model.kernel.in_space and not batched
    grouped = model.inducing.group(data, model.kernel) if by_datum else None
    return model.inducing.tie(data, model.kernel) if grouped is None else grouped


def evenly(model: Any, data: Series | Tied | Grouped) -> Series | Tied | Grouped:
    """The same, with weights by way of polynomials where these do (`thiele.even`)."""
    if isinstance(data, Series) or model.inducing.of != "states":
        return data
    z = np.asarray(model.inducing.times)
    terms = even.terms_for(model.kernel, np.asarray(data.time), z)
    return data if terms is None else data.evenly(z, terms)


class Search:
    """Sites are kept from one call to the next.

    Where weights go by way of polynomials, and these do not do for some hyperparameters, the objective is NaN: it is
    then asked for by way of the data as they are, `plain`.
    """

    def __init__(self, model: Any, data: Series, scales: np.ndarray, batch_size: int | None = None) -> None:
        self.model, self.series, self.scales = model, data, scales
        self.start = np.asarray(unconstrain(model)) / scales
        self.moving = model.inducing is not None and unconstrain(model.inducing).size > 0
        self.plain = tied(model, data, batch_size is not None)
        self.data = self.plain if self.moving else evenly(model, self.plain)
        self.sites: Any = None
        self.latest: tuple[np.ndarray, Any] = np.empty(0), None  # a search often ends where it looked last
        self.settled = True
        self.most = -np.inf
        self.batch_size, self.rng = batch_size, np.random.default_rng(0)

    def _vector(self, scaled: np.ndarray) -> Array:
        """Free values; where inducing times are among them, the data are tied to the segments that these make."""
        vector = jnp.asarray(scaled * self.scales)
        if self.moving:
            self.data = self.plain = tied(constrain(self.model, vector), self.series)
        return vector

    def evaluate(self, scaled: np.ndarray) -> Evaluation:
        (found, (_, _, report)), gradient = self._converged(self._vector(scaled))
        value = float(found)
        self.settled = not bool(report.unconverged)
        if self.settled:
            self.most = max(self.most, value)
        elif abs(value - self.most) > IMPLAUSIBLE * (1.0 + abs(self.most)):
            value = np.nan  # what sites on the way make of the energy may be anything: the step is taken back
        return Evaluation(value, np.asarray(gradient) * self.scales, int(report.sweeps), int(report.repaired))

    def best_of(self, candidates: list[Any]) -> np.ndarray:
        """The starting point from which most is explained, by the program that learning runs."""
        starts = [np.asarray(unconstrain(candidate)) / self.scales for candidate in candidates]
        values = []
        for start in starts:
            self.sites = None
            values.append(float(self._converged(self._vector(start))[0][0]))
        self.sites = None
        return starts[int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]

    def at(self, scaled: np.ndarray) -> tuple[float, training.Found]:
        """The log likelihood and what inference found at one point: no new compilation after `evaluate`."""
        vector = self._vector(scaled)
        seen, latest = self.latest
        (value, found), _ = latest if np.array_equal(seen, vector) else self._converged(vector)
        return float(value) - float(log_prior(constrain(self.model, vector))), found

    @property
    def left_off(self) -> Site:
        """The sites that the last evaluation ended with."""
        (_, found), _ = self.latest[1]
        return found.sites

    def _converged(self, vector: Array) -> tuple[tuple[Array, training.Found], Array]:
        """The objective and its gradient, by way of the last sites that converged, or of fresh ones."""
        start = self._first(vector) if self.sites is None else sites_of(self.sites)
        found = self._objective(vector, start)
        if self.sites is not None and _unconverged(found):
            # What fits one set of hyperparameters may be a start that leads nowhere for the next.
            again = self._objective(vector, self._first(vector))
            if not _unconverged(again) or not bool(again[0][0] <= found[0][0]):
                found = again
        if not _unconverged(found):
            self.sites = found[0][1].sites
        self.latest = np.asarray(vector), found
        return found

    def _objective(self, vector: Array, start: Site | None) -> tuple[tuple[Array, training.Found], Array]:
        found = training.objective_and_gradient(self.model, vector, self.data, start)
        if self.data is not self.plain and not np.isfinite(float(found[0][0])):
            found = training.objective_and_gradient(self.model, vector, self.plain, start)
        return found

    def _first(self, vector: Array) -> Site | None:
        if training.begins_anywhere(self.model):
            return None
        return training.first_sites(constrain(self.model, vector), self.plain)

    def at_rest(self, scaled: np.ndarray) -> tuple[float, training.Found]:
        """The same with the sites where rounds have left them."""
        self.begin(scaled)
        before = self.sites
        found = self.several(scaled, optax.adam(0.0).init(scaled), 0.0, 1)
        self.sites = before
        value = float(found.values[0]) - float(log_prior(constrain(self.model, self._vector(scaled))))
        report = training.Report(*(np.asarray(x) for x in (1, int(found.repaired[0]), 1)))
        return value, training.Found(sites_of(before), None, report)

    def begin(self, scaled: np.ndarray) -> None:
        """Sites to start from, unless there are some."""
        self._vector(scaled)
        if self.sites is None:
            self.sites = training.begin(self.model, self.plain)

    def several(self, scaled: np.ndarray, memory: Any, learning_rate: float, most: int) -> Rounds:
        """Steps of the paper's schedule, as many in one program as few data make worth while."""
        self.begin(scaled)
        data, n = self.data, self.series.y.shape[0]
        together = min(training.MOST_ROUNDS, DATA_IN_A_PROGRAM // n)
        # The last two: other data at every step.
        alone = together <= 1 or n > MOST_DATA_IN_A_LOOP or self.moving or self.batch_size is not None
        if self.batch_size is not None and isinstance(data, Tied):
            data = data.batch(self.rng, self.batch_size)
        climber = training.Climber(jnp.asarray(scaled), memory, self.sites)
        count = None if alone else jnp.asarray(min(most, together))
        found = training.rounds(self.model, data, climber, jnp.asarray(self.scales), jnp.asarray(learning_rate), count)
        done = int(found.done)
        if self.data is not self.plain and not np.isfinite(np.asarray(found.rows.values)[done - 1]):
            self.data = self.plain
            return self.several(scaled, memory, learning_rate, most)
        self.sites = found.climber.state
        rows = (np.asarray(x)[:done] for x in found.rows)
        return Rounds(*rows, np.asarray(found.climber.scaled), found.climber.memory)


def _unconverged(found: tuple[tuple[Array, training.Found], Array]) -> bool:
    (value, (_, _, report)), _ = found
    return bool(report.unconverged) or not np.isfinite(float(value))
