"""The objective of a model and its gradient, exact or by a rule, and the posterior that belongs to it.

A model here is anything with `kernel`, `likelihood`, `mean`, `rule` and `inducing`. Two engines have one surface: with
Gaussian noise and a state at each datum the posterior is exact; otherwise sites are found by the model's rule,
warm-started from the ones before. Data are a `Series`, or `Tied` where the model has inducing times.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from thiele import approximate, exact
from thiele.approximate import setting
from thiele.chain import posterior
from thiele.energies import energy
from thiele.inference import Ascent, Inferred, ascend
from thiele.likelihoods import has_gaussian_noise as gaussian_noise
from thiele.own_sites import Grouped
from thiele.parameters import constrain, log_prior
from thiele.posterior import ChainPosterior, InducedPosterior
from thiele.precision import scalar_in_double
from thiele.programs import compiled, optimised
from thiele.rules import Site
from thiele.series import Series
from thiele.tied import Tied

# The most rounds of the paper's schedule in one program.
MOST_ROUNDS = 200


def is_exact(model: Any) -> bool:
    """Whether the posterior is Gaussian without approximation. In space it may be, but goes by way of sites."""
    return has_gaussian_noise(model) and model.inducing is None and not model.kernel.in_space


def begins_anywhere(model: Any) -> bool:
    """Whether inference asks for no sites to start from."""
    return is_exact(model) or approximate.knows_sites(model.rule, model.likelihood)


def has_gaussian_noise(model: Any) -> bool:
    """Whether y is f plus Gaussian noise, so that f is on the scale of y."""
    return gaussian_noise(model.likelihood)


class Report(NamedTuple):
    """How inference went on the way to one value of the objective; all zero where it is exact."""

    sweeps: Int[Array, ""]
    repaired: Int[Array, ""]
    unconverged: Int[Array, ""]


class Found(NamedTuple):
    """What inference found on the way: None where the posterior is exact."""

    sites: Site | None
    marginals: Any
    report: Report


def _exactly() -> Found:
    return Found(None, None, Report(*(jnp.zeros((), int) for _ in range(3))))


def _found(inferred: Inferred) -> Found:
    report = Report(inferred.sweeps, inferred.repaired, 1 - inferred.converged)
    return Found(inferred.sites, inferred.marginals, report)


def _value(
    model: Any, data: Series | Tied | Grouped, start: Site | None, *, patient: bool
) -> tuple[Float[Array, ""], Found]:
    if is_exact(model):
        return exact.log_likelihood(model.kernel, model.likelihood, model.mean.value, data), _exactly()
    at = setting(model, data)
    found = approximate.find_sites(model.rule, at, start, patient=patient)
    return approximate.converged_objective(model.rule, at, found), _found(found)


@scalar_in_double
@compiled
def log_likelihood(model: Any, data: Series | Tied | Grouped) -> Float[Array, ""]:
    """log p(y), exact or as the rule's energy approximates it, differentiable in model and data."""
    return _value(model, data, None, patient=True)[0]


@compiled
def objective_and_gradient(
    model: Any, vector: Float[Array, " free"], data: Series | Tied | Grouped, start: Site | None
) -> tuple[tuple[Float[Array, ""], Found], Float[Array, " free"]]:
    """What learning maximises, the log likelihood and the log priors, at free values `vector`, with its gradient there;
    sites start from `start`. Where they converge too slowly they are left on the way: there are other ways to learn.
    """

    def of_vector(v: Array) -> tuple[Array, Found]:
        moved = constrain(model, v)
        value, found = _value(moved, data, start, patient=False)
        return value + log_prior(moved), found

    return jax.value_and_grad(of_vector, has_aux=True)(vector)


def alternate(
    model: Any, vector: Float[Array, " free"], data: Series | Tied | Grouped, state: Any
) -> tuple[Float[Array, ""], Float[Array, " free"], Any, Int[Array, ""]]:
    """One round of the paper's schedule: the gradient of the energy with the sites held, and one sweep of the sites,
    from one posterior. A rule by plain gradients moves its sites along the same gradient as the hyperparameters.

    The published programs find the posterior again between the two: their sweep has seen the step that the
    hyperparameters took last, where this one has not.
    """

    def by_gradients(v: Array, factors: Any) -> Array:
        moved = constrain(model, v)
        return energy(model.rule, *setting(moved, data), factors.sites()) + log_prior(moved)

    def by_a_sweep(v: Array) -> tuple[Array, tuple[Site, Array]]:
        moved = constrain(model, v)
        value, ahead = approximate.one_round(model.rule, setting(moved, data), state)
        return value + log_prior(moved), ahead

    if isinstance(state, Ascent):
        value, (gradient, slope) = jax.value_and_grad(by_gradients, argnums=(0, 1))(vector, state.factors)
        return value, gradient, ascend(model.rule, state, slope), jnp.array(0)
    (value, (new, repaired)), gradient = jax.value_and_grad(by_a_sweep, has_aux=True)(vector)
    return value, gradient, new, repaired


class Climber(NamedTuple):
    """Where the paper's schedule is: free values in units of their scales, the memory of Adam, the sites."""

    scaled: Float[Array, " free"]
    memory: Any
    state: Any


class Rows(NamedTuple):
    """What each round found: the point, the objective and its gradient there, how many sites were repaired."""

    points: Float[Array, "rounds free"]
    values: Float[Array, " rounds"]
    gradients: Float[Array, "rounds free"]
    repaired: Int[Array, " rounds"]


class Ran(NamedTuple):
    """Rounds in turn: where they end, how many there were, and what each found, in the first rows of many."""

    climber: Climber
    done: Int[Array, ""]
    rows: Rows


@optimised
def rounds(
    model: Any,
    data: Series | Tied | Grouped,
    climber: Climber,
    scales: Float[Array, " free"],
    learning_rate: Float[Array, ""],
    count: Int[Array, ""] | None,
) -> Ran:
    """`count` rounds of the paper's schedule, each with a step of Adam, in one program; it stops after one whose
    objective or gradient is not finite, and then stays where it was. None: one round, and no loop around it, in which
    a round of many data was seen to take up to half as long again.
    """
    adam = optax.adam(learning_rate)

    def unfinished(carry: tuple[Ran, Array]) -> Array:
        return (carry[0].done < count) & carry[1]

    def step(carry: tuple[Ran, Array]) -> tuple[Ran, Array]:
        (scaled, memory, state), done, rows = carry[0]
        value, slope, new, repaired = alternate(model, scaled * scales, data, state)
        gradient = slope * scales
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        change, new_memory = adam.update(-gradient, memory)
        moved = jax.tree.map(
            partial(jnp.where, finite), Climber(scaled + change, new_memory, new), Climber(scaled, memory, state)
        )
        found = Rows(scaled, value, gradient, repaired)
        return Ran(moved, done + 1, jax.tree.map(lambda x, y: x.at[done].set(y), rows, found)), finite

    most = 1 if count is None else MOST_ROUNDS
    free = jnp.zeros((most, scales.shape[0]))
    empty = Rows(free, jnp.zeros(most), free, jnp.zeros(most, int))
    start = Ran(climber, jnp.array(0), empty), jnp.array(True)
    return step(start)[0] if count is None else jax.lax.while_loop(unfinished, step, start)[0]


@compiled
def begin(model: Any, data: Series | Tied | Grouped) -> Any:
    """Where the paper's schedule begins."""
    return approximate.begin(model.rule, setting(model, data))


@compiled
def first_sites(model: Any, data: Series | Tied | Grouped) -> Site:
    """Where sweeps to convergence begin."""
    return approximate.first_sites(setting(model, data))


@compiled
def find_sites(model: Any, data: Series | Tied | Grouped) -> tuple[Float[Array, ""], Found]:
    """Sites to convergence at the model's hyperparameters, and their energy."""
    found = approximate.find_sites(model.rule, setting(model, data))
    return found.energy, _found(found)


def condition(
    model: Any, data: Series | Tied | Grouped, sites: Site | None, marginals: Any = None
) -> tuple[ChainPosterior | InducedPosterior, Float[Array, ""] | None]:
    """The posterior at the model's hyperparameters, given the sites where it is not exact; else with log p(y).

    `marginals`, where they are known, are the posterior of a model with inducing times.
    """
    if marginals is not None and isinstance(data, Tied):
        return InducedPosterior(model.inducing.times, marginals, sites, model.inducing.of), None
    return _condition(model, data, sites)


@compiled
def _condition(
    model: Any, data: Series | Tied | Grouped, sites: Site | None
) -> tuple[ChainPosterior | InducedPosterior, Float[Array, ""] | None]:
    if sites is not None:
        return approximate.condition(model, data, sites), None
    chain, info, constant = exact.chain_and_information(model.kernel, model.likelihood, model.mean.value, data)
    states, log = posterior(chain, info)
    return ChainPosterior(jnp.asarray(data.time), states, info._replace(H=None)), log + constant


@compiled
def leave_one_out(model: Any, data: Series | Tied | Grouped, sites: Site | None) -> Float[Array, " n"]:
    """log p(y_n | the others) for each datum in the order of time, without a refit."""
    at = setting(model, data)
    if sites is None:
        precision = jnp.broadcast_to(1.0 / model.likelihood.variance, data.y.shape)[:, None]
        sites = Site(precision * (data.y - model.mean.value)[:, None], precision[..., None])
    marginals, _ = at.data.smooth(at.chain, sites)
    return at.data.leave_one_out(model.rule, at.likelihood, at.chain, marginals, sites)


@compiled
def slack(model: Any, data: Tied, sites: Site) -> Float[Array, ""]:
    """About how many nats of log p(y) the inducing states lose."""
    at = setting(model, data)
    marginals, _ = data.smooth(at.chain, sites)
    return data.slack(model.rule, at.likelihood, at.chain, marginals, sites)
