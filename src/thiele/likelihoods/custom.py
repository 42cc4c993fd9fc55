"""A likelihood from a user's own function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import (
    AbstractLikelihood,
    continuous_quantile,
    discrete_quantile,
    refuse,
    refuse_unless_integer,
)
from thiele.likelihoods.quantiles import POSITIVE_LINE, REAL_LINE, UNIT_INTERVAL
from thiele.parameters import Parametric

INTERVALS = {"real": REAL_LINE, "positive": POSITIVE_LINE, "unit": UNIT_INTERVAL}
SUPPORTS = (*INTERVALS, "counts")


class Piece(Parametric):
    """One of the functions that make up a custom likelihood: plain code, or a module with hyperparameters."""

    name: str = eqx.field(static=True)
    code: Callable[..., Array] | None = eqx.field(static=True)
    module: Any

    @classmethod
    def of(cls, name: str, function: Callable[..., Array]) -> Piece:
        # A plain function must not be a leaf of the model, where `jit` expects arrays.
        is_module = isinstance(function, eqx.Module)
        return cls(name, None if is_module else function, function if is_module else None)

    def __call__(self, *args: Any) -> Array:
        return (self.module if self.code is None else self.code)(*args)


class CustomLikelihood(AbstractLikelihood):
    """p(y | f) = exp(log_prob(y, f)) for a user's function; made by `Custom`."""

    pieces: tuple[Piece, ...]
    dimension: int = eqx.field(static=True)
    support: str = eqx.field(static=True)

    def __check_init__(self):
        if self.support not in SUPPORTS:
            raise ValueError(
                f"`support` of Custom must be one of {', '.join(map(repr, SUPPORTS))}, got {self.support!r}"
            )

    @property
    def latents(self) -> int:
        return self.dimension

    def _piece(self, name: str) -> Callable[..., Array]:
        for piece in self.pieces:
            if piece.name == name:
                return piece
        raise ValueError(f"this Custom likelihood has no `{name}`, and what was asked of it needs one: pass {name}=...")

    def log_prob(self, y, f):
        return self._piece("log_prob")(y, f)

    def conditional_mean(self, f):
        return self._piece("conditional_mean")(f)

    def conditional_variance(self, f):
        return self._piece("conditional_variance")(f)

    def cdf(self, y, f):
        return self._piece("cdf")(y, f)

    def sample(self, key, f):
        return self._piece("sampler")(key, f)

    def predictive_quantile(self, p, mean, var, quadrature=None):
        if self.support == "counts":
            return discrete_quantile(self, jnp.inf, p, mean, var, quadrature)
        return continuous_quantile(self, INTERVALS[self.support], p, mean, var, quadrature)

    def check(self, y: ArrayLike) -> None:
        if self.support == "counts":
            refuse_unless_integer(y, jnp.inf, "Custom")
        else:
            refuse(y, INTERVALS[self.support].contains, INTERVALS[self.support].words, "Custom")


def Custom(  # noqa: N802 - reads as the class of what it makes, like the other likelihoods
    log_prob: Callable[[Array, Array], Array],
    latents: int = 1,
    *,
    conditional_mean: Callable[[Array], Array] | None = None,
    conditional_variance: Callable[[Array], Array] | None = None,
    cdf: Callable[[Array, Array], Array] | None = None,
    sampler: Callable[[Array, Array], Array] | None = None,
    support: str = "real",
) -> CustomLikelihood:
    """A likelihood from log p(y | f), a function of one datum and its latent value, or vector of `latents` values.

    >>> import jax.numpy as jnp
    >>> Custom(lambda y, f: -jnp.log1p((y - f) ** 2)).latents
    1

    The density is enough for CVI, VGP, PowerEP and Laplace and for log predictive densities. EKS, PL and predictive
    moments also need `conditional_mean(f)` and `conditional_variance(f)`; quantiles need these and `cdf(y, f)`; samples
    need `sampler(key, f)`. `support` says where y lives: "real", "positive", "unit" or "counts". A function with
    hyperparameters to learn is a `Parametric` with a `__call__`.
    """
    given = {
        "log_prob": log_prob,
        "conditional_mean": conditional_mean,
        "conditional_variance": conditional_variance,
        "cdf": cdf,
        "sampler": sampler,
    }
    pieces = tuple(Piece.of(name, function) for name, function in given.items() if function is not None)
    return CustomLikelihood(pieces, latents, support)
