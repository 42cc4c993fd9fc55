"""What a prediction holds: moments of the latent function, and the distribution of an observation."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from thiele.axes import Axis, table
from thiele.likelihoods import AbstractLikelihood
from thiele.precision import double_precision
from thiele.programs import compiled
from thiele.series import floats


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """f ~ N(mean, var) at each new time, and y given f by the likelihood.

    `mean` and `var` have shape (n,) for one latent function and (n, L) for several; `cov` is (n, L, L).
    """

    mean: Float[np.ndarray, " n *l"]
    var: Float[np.ndarray, " n *l"]
    cov: Float[np.ndarray, "n l l"] = dataclasses.field(repr=False)
    likelihood: AbstractLikelihood = dataclasses.field(repr=False)
    covariates: dict[str, np.ndarray] = dataclasses.field(repr=False)
    times: Any = dataclasses.field(default=None, repr=False)
    """When, as the user has it."""
    axis: Axis = dataclasses.field(default=Axis(), repr=False)

    @classmethod
    def of(
        cls,
        mean: Float[Array, "l n"],
        cov: Float[Array, "l l n"],
        likelihood: AbstractLikelihood,
        covariates: dict[str, np.ndarray],
        times: Any = None,
        axis: Axis = Axis(),  # noqa: B008 - it cannot be changed
    ) -> Prediction:
        """From lane-last moments."""
        m, V = np.moveaxis(np.asarray(mean), -1, 0), np.moveaxis(np.asarray(cov), -1, 0)
        v = np.diagonal(V, axis1=1, axis2=2).copy()
        one = m.shape[1] == 1
        return cls(m[:, 0] if one else m, v[:, 0] if one else v, V, likelihood, covariates, times, axis)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, var = _observed_moments(self.likelihood, self.covariates, *self._latent())
        return np.asarray(mean), np.asarray(var)

    @property
    def y_mean(self) -> np.ndarray:
        """E y."""
        return self._moments[0]

    @property
    def y_var(self) -> np.ndarray:
        """Var y: the latent function's uncertainty and the noise."""
        return self._moments[1]

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds an observation with probability `level`: (lower, upper)."""
        if not isinstance(level, (int, float)) or not 0.0 < level < 1.0:
            raise ValueError(f"`level` must be a number between 0 and 1, got {level!r}")
        tail = 0.5 * (1.0 - level)
        return self.quantile(tail), self.quantile(1.0 - tail)

    @double_precision
    def mean_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds E[y | f] with probability `level`: how sure the mean is, without the noise.

        Of a probability it is the useful one: an observation of 0 or 1 lies between 0 and 1 nearly always.
        """
        if not isinstance(level, (int, float)) or not 0.0 < level < 1.0:
            raise ValueError(f"`level` must be a number between 0 and 1, got {level!r}")
        if self.mean.ndim != 1:
            raise ValueError(f"an interval of the mean needs one latent function, got {self.mean.shape[1]}")
        width = NormalDist().inv_cdf(0.5 + 0.5 * level) * np.sqrt(self.var)
        ends = [
            np.asarray(_response(self.likelihood, self.covariates, jnp.asarray(self.mean + s * width))) for s in (-1, 1)
        ]
        return np.minimum(*ends), np.maximum(*ends)  # a link may fall

    def table(self, level: float = 0.95) -> Any:
        """Mean, standard deviation and central interval of an observation, over the times: a DataFrame, with the
        times as its index, for those who came with pandas; likewise for polars and xarray; otherwise a mapping from
        names to arrays. Categories have a column of probabilities each, and no interval.
        """
        if self.y_mean.ndim == 1:
            ends = dict(zip(("lower", "upper"), self.interval(level), strict=True))
            columns = {"mean": self.y_mean, "sd": np.sqrt(self.y_var), **ends}
        else:
            columns = {f"mean_{k}": column for k, column in enumerate(self.y_mean.T)}
        return table(self.axis, np.arange(len(self.mean)) if self.times is None else self.times, columns)

    @double_precision
    def quantile(self, p: float) -> np.ndarray:
        """The value that an observation stays below with probability `p`."""
        if not isinstance(p, (int, float)) or not 0.0 < p < 1.0:
            raise ValueError(f"`p` must be a number between 0 and 1, got {p!r}")
        level = jnp.asarray(p, jnp.float64)
        return np.asarray(_observed_quantile(self.likelihood, self.covariates, level, *self._latent()))

    @double_precision
    def _latent(self) -> tuple[Array, Array]:
        if self.mean.ndim == 1:
            return jnp.asarray(self.mean, jnp.float64), jnp.asarray(self.var, jnp.float64)
        return jnp.asarray(self.mean, jnp.float64), jnp.asarray(self.cov, jnp.float64)

    @double_precision
    def log_density(self, y: ArrayLike, name: str = "y") -> np.ndarray:
        """log p(y_n) of one observation at each time; NaN where it is missing."""
        values = floats(y, name)
        if values.shape != self.mean.shape[:1]:
            raise ValueError(f"`{name}` must have shape {self.mean.shape[:1]} like the times, got {values.shape}")
        self.likelihood.at(**self.covariates).check(values)
        missing = np.isnan(values)
        # A value that the likelihood allows stands in for a missing one.
        allowed = values[~missing][0] if np.any(~missing) else 1.0
        filled = jnp.asarray(np.where(missing, allowed, values))
        densities = np.array(_log_predictive(self.likelihood, self.covariates, filled, *self._latent()))
        densities[missing] = np.nan
        return densities


Covariates = dict[str, Array]


def _each(method: str, likelihood: AbstractLikelihood, covariates: Covariates, *columns: Array) -> Any:
    """A method of the likelihood at every row, with that row's covariates."""

    def one(extra: Covariates, *row: Array) -> Any:
        return getattr(likelihood.at(**extra), method)(*row)

    return jax.vmap(one)(covariates, *columns)


@compiled
@double_precision
def _observed_moments(likelihood: AbstractLikelihood, extra: Covariates, mean: Array, var: Array) -> Any:
    return _each("predict_mean_var", likelihood, extra, mean, var)


@compiled
@double_precision
def _response(likelihood: AbstractLikelihood, extra: Covariates, f: Array) -> Float[Array, " n"]:
    return _each("conditional_mean", likelihood, extra, f)


@compiled
@double_precision
def _observed_quantile(
    likelihood: AbstractLikelihood, extra: Covariates, p: Array, mean: Array, var: Array
) -> Float[Array, " n"]:
    return _each("predictive_quantile", likelihood, extra, jnp.full(mean.shape[0], p), mean, var)


@compiled
@double_precision
def _log_predictive(
    likelihood: AbstractLikelihood, extra: Covariates, y: Array, mean: Array, var: Array
) -> Float[Array, " n"]:
    return _each("log_predictive", likelihood, extra, y, mean, var)
