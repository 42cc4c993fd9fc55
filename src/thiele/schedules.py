"""The two schedules of learning: how a search over the hyperparameters and the sites takes turns, and where it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

from thiele import training
from thiele.learn import GAINLESS, UNBEGUN, Learnt, Rounds, climb, in_turn, maximise
from thiele.rules import VGP
from thiele.search import Search
from thiele.series import Series

# Rounds for each step of a quasi-Newton search that the user allows, and the gain, in units of the objective, that
# `thiele.learn.PATIENCE` of them must bring.
ROUNDS_FOR_A_STEP, GAIN = 5, 1e-5
# Plain gradients have nothing but rounds: a quasi-Newton step would wait for hundreds of them.
ROUNDS_OF_GRADIENTS = 50
# Rounds from one state that may be gone back to, to the next.
BETWEEN_STATES = 50
# Sites that do not converge by themselves are moved by half of what the rule asks for.
CALM = 0.5


class Options(NamedTuple):
    """What `GP.fit` was told about the search."""

    tolerance: float
    max_steps: int
    learning_rate: float
    settle: bool
    progress: bool | None


class Ended(NamedTuple):
    """How the search went, the log likelihood at its end, and the sites there."""

    learnt: Learnt
    objective: float
    found: training.Found


def paper(search: Search, options: Options) -> Ended:
    """One sweep of the sites and one step of Adam at a time; then sites to convergence, if that is wanted. Those of
    plain gradients stay where these took them.
    """
    steps, progress = options.max_steps, options.progress
    learnt = climb(search.several, search.start, options.learning_rate, steps=steps, progress=progress)
    settle = options.settle and not isinstance(search.model.rule, VGP)
    return Ended(learnt, *(search.at if settle else search.at_rest)(learnt.vector))


def best(search: Search, options: Options) -> Ended:
    """Quasi-Newton steps, with sites that have converged at each.

    Where they do not converge at the starting values, or take too many sweeps, as those of plain gradients or for a
    product of latent functions may, rounds of the paper's schedule come first, in calm steps, for as long as they gain
    anything; where sweeps climb the energy, from where they have led. Quasi-Newton steps come after the rounds only if
    there is nothing left for these to gain and the sites converge by then, and never for plain gradients.
    """
    rest: dict[str, Any] = {"tolerance": options.tolerance, "max_steps": options.max_steps}
    rest |= {"progress": options.progress, "begins": lambda: search.settled}
    learnt = maximise(search.evaluate, search.start, **rest)
    if learnt.message != UNBEGUN:
        return Ended(learnt, *search.at(learnt.vector))
    rounds = _Remembering(_calm(search.model), search.series, search.scales)
    by_gradients = isinstance(search.model.rule, VGP)
    if search.model.rule.merit == "energy" and not by_gradients:
        rounds.sites = search.left_off
    steps = options.max_steps * (ROUNDS_OF_GRADIENTS if by_gradients else ROUNDS_FOR_A_STEP)
    climbed = climb(
        rounds.several, search.start, options.learning_rate, steps=steps, progress=options.progress, gain=GAIN
    )
    climbed = climbed._replace(vector=rounds.back_to_the_best(climbed.vector))
    search.sites = rounds.sites
    if GAINLESS in climbed.message and not by_gradients:
        learnt = maximise(search.evaluate, climbed.vector, **rest)
        # Where it did not begin, or met no number or an interrupt at once, what the rounds have found is kept.
        if learnt.message != UNBEGUN and len(learnt.trace.objective) > 0:
            return Ended(in_turn(climbed, learnt), *search.at(learnt.vector))
    return Ended(climbed, *rounds.at_rest(climbed.vector))


class _Remembering(Search):
    """A search that can go back to the best state that some rounds began with: Adam may leave an optimum again."""

    def __init__(self, model: Any, data: Series, scales: np.ndarray) -> None:
        super().__init__(model, data, scales)
        self.best: tuple[float, np.ndarray, Any] = -np.inf, np.empty(0), None

    def several(self, scaled: np.ndarray, memory: Any, learning_rate: float, most: int) -> Rounds:
        self.begin(scaled)
        before = self.sites
        found = super().several(scaled, memory, learning_rate, min(most, BETWEEN_STATES))
        if found.values[0] > self.best[0]:
            self.best = float(found.values[0]), scaled, before
        return found

    def back_to_the_best(self, last: np.ndarray) -> np.ndarray:
        """The point and the sites of the best state, `last` included."""
        before = self.sites
        self.several(last, optax.adam(0.0).init(last), 0.0, 1)
        if self.best[2] is None:
            self.sites = before
            return last
        _, point, self.sites = self.best
        return point


def _calm(model: Any) -> Any:
    rule = model.rule
    return (
        model
        if isinstance(rule, VGP)
        else dataclasses.replace(model, rule=dataclasses.replace(rule, step=min(rule.step, CALM)))
    )


SCHEDULES: dict[str, Callable[[Search, Options], Ended]] = {"best": best, "paper": paper}
