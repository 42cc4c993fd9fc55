r"""Hyperparameters: natural values in the fields, constraints as metadata, one vector of free values for optimisers.

A module that has hyperparameters derives from `Parametric` and declares them with `positive`, `real`, `between` or
`increasing`. Its fields always hold values on the natural scale. `unconstrain(model)` lists the values that are free
to move as one real vector; `constrain(model, vector)` puts such a vector back. A user holds a value with `fixed(1.0)`
and states a belief about it with `param(1.0, prior=...)`, wherever a plain number is accepted. A value that the user
left at its default is marked automatic: learning may start it from the data, in the units that the field declares.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from thiele.durations import in_days, is_duration
from thiele.precision import double_precision, float64

M = TypeVar("M", bound="Parametric")


class Prior(Protocol):
    """Anything with the log density of a value on the natural scale; it must be hashable."""

    def log_prob(self, value: Array) -> Array: ...


class Constraint(NamedTuple):
    """A set of allowed values and a smooth one-to-one map onto it from the real numbers."""

    to_natural: Callable[[Array], Array]
    to_real: Callable[[Array], Array]
    allows: Callable[[np.ndarray], bool]
    words: str


def _between(low: float, high: float) -> Constraint:
    width = high - low
    return Constraint(
        to_natural=lambda u: low + width * jax.nn.sigmoid(u),
        to_real=lambda x: jnp.log((x - low) / (high - x)),
        allows=lambda x: bool(np.all((x > low) & (x < high))),
        words=f"between {low:g} and {high:g}",
    )


# The logarithm, not softplus: lengthscales of 1e-6 and of 1e6 are equally easy to reach, and steps are relative.
POSITIVE = Constraint(jnp.exp, jnp.log, lambda x: bool(np.all(x > 0)), "positive")
REAL = Constraint(lambda u: u, lambda x: x, lambda x: True, "a finite number")
INCREASING = Constraint(
    to_natural=lambda u: jnp.cumsum(jnp.concatenate([u[:1], jnp.exp(u[1:])])),
    to_real=lambda x: jnp.concatenate([x[:1], jnp.log(jnp.diff(x))]),
    allows=lambda x: x.ndim == 1 and bool(np.all(np.diff(x) > 0)),
    words="a vector that increases",
)


class Unit(enum.Enum):
    """What a hyperparameter is measured in, for starting values and for showing it."""

    TIME = "time"
    RATE = "1/time"
    SPACE = "space"
    LATENT = "latent function"
    VARIANCE = "variance of the latent function"
    NONE = ""


class Default(NamedTuple):
    """A value that nobody asked for: the default of a field."""

    value: Any


def _declare(constraint: Constraint, default: Any, unit: Unit = Unit.NONE, vector: bool = False) -> Any:
    settings: dict[str, Any] = {"metadata": {"constraint": constraint, "unit": unit, "vector": vector}}
    if default is not dataclasses.MISSING:
        settings["default"] = Default(default)
    return eqx.field(**settings)


def positive(default: Any = dataclasses.MISSING, unit: Unit = Unit.NONE, vector: bool = False) -> Any:
    """Declare a hyperparameter that is greater than zero, or a vector of them."""
    return _declare(POSITIVE, default, unit, vector)


def real(default: Any = dataclasses.MISSING, unit: Unit = Unit.NONE, vector: bool = False) -> Any:
    """Declare a hyperparameter that may be any number, or a vector of them."""
    return _declare(REAL, default, unit, vector)


def between(low: float, high: float, default: Any = dataclasses.MISSING) -> Any:
    """Declare a hyperparameter strictly between `low` and `high`."""
    return _declare(_between(low, high), default)


def increasing(default: Any = dataclasses.MISSING) -> Any:
    """Declare a vector of hyperparameters whose entries increase (cut points)."""
    return _declare(INCREASING, default, vector=True)


class Mark(NamedTuple):
    """What a user said of one hyperparameter beyond its value."""

    name: str
    fixed: bool = False
    prior: Prior | None = None
    automatic: bool = False
    duration: bool = False
    """Given as a duration, "7 days": it means nothing where times are numbers."""


class param(NamedTuple):  # noqa: N801 - reads as a function where it is used: lengthscale=th.param(4.0, prior=...)
    """A value with what is to happen to it: held (`fixed=True`), or learnt under a `prior`."""

    value: Any
    fixed: bool = False
    prior: Prior | None = None


def fixed(value: ArrayLike) -> param:
    """A value that learning must leave as it is: `Matern32(variance=fixed(1.0))`."""
    return param(value, fixed=True)


class Parametric(eqx.Module):
    """Base of every object that has hyperparameters or holds objects that do."""

    marks: tuple[Mark, ...] = eqx.field(static=True, init=False, repr=False)

    def __post_init__(self) -> None:
        marks = []
        for field in parameter_fields(self):
            given = getattr(self, field.name)
            if isinstance(given, Default) and isinstance(given.value, param):  # a default that is held
                given = given.value._replace(value=Default(given.value.value))
            given = given if isinstance(given, param) else param(given)
            automatic = isinstance(given.value, Default)
            given = given._replace(value=given.value.value) if automatic else given
            if given.prior is not None and not hasattr(given.prior, "log_prob"):
                raise TypeError(f"`prior` of `{field.name}` must have a method `log_prob`, got {given.prior!r}")
            duration = field.metadata["unit"] is Unit.TIME and is_duration(given.value)
            if given.fixed or given.prior is not None or automatic or duration:
                marks.append(Mark(field.name, given.fixed, given.prior, automatic, duration))
            number = in_days(given.value, field.name) if duration else given.value
            value = _checked(number, field, type(self).__name__)
            object.__setattr__(self, field.name, value)
        object.__setattr__(self, "marks", tuple(marks))

    def __repr__(self) -> str:
        shown = [f"{f.name}={_show(getattr(self, f.name))}" for f in dataclasses.fields(self) if f.repr]
        return f"{type(self).__name__}({', '.join(shown)})"


def _show(value: Any) -> str:
    if isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, Tracer):
        return np.array2string(np.asarray(value), precision=6, separator=", ", threshold=8)
    return repr(value)


def parameter_fields(module: Parametric) -> list[dataclasses.Field]:
    """The fields of `module` itself that are hyperparameters."""
    return [field for field in dataclasses.fields(module) if "constraint" in field.metadata]


def _checked(value: Any, field: dataclasses.Field, owner: str) -> Array:
    constraint: Constraint = field.metadata["constraint"]
    if isinstance(value, Tracer):
        # Arithmetic on a traced float32 would stay in float32.
        return float64(value)
    problem = f"`{field.name}` of {owner} must be {constraint.words}, got {value!r}"
    try:
        concrete = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(problem) from None
    if concrete.ndim > 0 and not field.metadata["vector"]:
        raise ValueError(f"`{field.name}` of {owner} must be one number, got an array of shape {concrete.shape}")
    if not np.all(np.isfinite(concrete)) or not constraint.allows(concrete):
        raise ValueError(problem)
    return float64(concrete)


class Parameter(NamedTuple):
    """One hyperparameter inside a larger model, and where it sits."""

    path: tuple[str | int, ...]
    value: Array
    constraint: Constraint
    unit: Unit
    fixed: bool
    prior: Prior | None
    automatic: bool
    duration: bool = False

    @property
    def name(self) -> str:
        """The path as one would write it: `kernel.terms[0].lengthscale`."""
        return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.path).lstrip(".")


def parameters(model: Any, path: tuple[str | int, ...] = ()) -> Iterator[Parameter]:
    """Every hyperparameter in `model`, depth first, in the order of the fields."""
    if isinstance(model, (tuple, list)):
        for i, item in enumerate(model):
            yield from parameters(item, (*path, i))
    elif isinstance(model, Parametric):
        said = {mark.name: mark for mark in model.marks}
        for field in dataclasses.fields(model):
            value = getattr(model, field.name)
            here = (*path, field.name)
            if "constraint" in field.metadata:
                mark = said.get(field.name, Mark(field.name))
                rules = field.metadata["constraint"], field.metadata["unit"]
                yield Parameter(here, value, *rules, mark.fixed, mark.prior, mark.automatic, mark.duration)
            else:
                yield from parameters(value, here)


def _free(model: Parametric) -> list[Parameter]:
    return [p for p in parameters(model) if not p.fixed]


def _at(model: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        model = model[step] if isinstance(step, int) else getattr(model, step)
    return model


def replace(model: M, values: dict[str, ArrayLike]) -> M:
    """`model` with some hyperparameters set by name, as `parameters` names them; what was said of them stays."""
    chosen = [p for p in parameters(model) if p.name in values]
    if unknown := set(values) - {p.name for p in chosen}:
        known = ", ".join(f"`{p.name}`" for p in parameters(model))
        raise ValueError(f"this model has no hyperparameter {sorted(unknown)}; it has {known}")
    arrays = [float64(values[p.name]) for p in chosen]
    return eqx.tree_at(lambda m: [_at(m, p.path) for p in chosen], model, arrays) if chosen else model


def settled(model: Any) -> Any:
    """`model` with no value marked automatic any more: what has been learnt is not to be guessed again."""
    if isinstance(model, tuple):
        return type(model)(settled(item) for item in model) if type(model) is tuple else model
    if not isinstance(model, Parametric):
        return model
    copy = object.__new__(type(model))
    for field in dataclasses.fields(model):
        object.__setattr__(copy, field.name, settled(getattr(model, field.name)))
    marks = [mark._replace(automatic=False) for mark in model.marks]
    object.__setattr__(copy, "marks", tuple(m for m in marks if m != Mark(m.name)))
    return copy


@double_precision
def unconstrain(model: Parametric) -> Float[Array, " free"]:
    """The values of `model` that are free to move, as one vector of real numbers."""
    parts = [jnp.ravel(p.constraint.to_real(jnp.asarray(p.value, jnp.float64))) for p in _free(model)]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, jnp.float64)


@double_precision
def constrain(model: M, vector: Float[Array, " free"]) -> M:
    """`model` with its free values replaced by those that `vector` stands for: the inverse of `unconstrain`."""
    free = _free(model)
    sizes = [math.prod(jnp.shape(p.value)) for p in free]
    if jnp.shape(vector) != (sum(sizes),):
        raise ValueError(f"`vector` must have shape ({sum(sizes)},) for this model, got {jnp.shape(vector)}")
    values, start = [], 0
    for p, size in zip(free, sizes, strict=True):
        chunk = jnp.reshape(vector[start : start + size], jnp.shape(p.value))
        values.append(p.constraint.to_natural(chunk))
        start += size
    return eqx.tree_at(lambda m: [_at(m, p.path) for p in free], model, values) if free else model


@double_precision
def log_prior(model: Parametric) -> Float[Array, ""]:
    """The sum of the priors' log densities at the natural values, without a Jacobian; 0 where none is stated."""
    terms = [jnp.sum(p.prior.log_prob(p.value)) for p in parameters(model) if p.prior is not None]
    return sum(terms, start=jnp.zeros((), jnp.float64))
