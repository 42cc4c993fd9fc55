r"""Kernels over space, and inducing points there: the second factor of a separable space-time kernel.

Any positive definite function of places will do: space need not be Markovian. A kernel in space is a correlation; the
variance that is learnt belongs to the factor in time.
"""

from __future__ import annotations

import math
import numbers
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.parameters import Parametric, Unit, fixed, param, positive, real
from thiele.precision import double_precision, float64

# Of pairwise distances: k-means on more points than this is no better, only slower.
LARGEST_SAMPLE = 20_000


class AbstractSpatialKernel(Parametric):
    """k(r, s) = σ² ρ(‖(r − s)/ℓ‖) for places of any dimension, with one lengthscale or one for each coordinate.

    σ² is held unless it is given as `th.param(...)`.
    """

    variance: Array = positive(default=fixed(1.0))
    lengthscale: Array = positive(default=1.0, unit=Unit.SPACE, vector=True)

    def __post_init__(self) -> None:
        # With the variance in time it would be known as a product only, so a plain number is meant as written.
        if isinstance(self.variance, numbers.Real):
            object.__setattr__(self, "variance", fixed(self.variance))
        Parametric.__post_init__(self)

    @abstractmethod
    def correlation(self, square: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """ρ from the squared distance in lengthscales."""

    def __check_init__(self) -> None:
        if self.lengthscale.ndim > 1:
            raise ValueError(
                f"`lengthscale` of {type(self).__name__} must be one number or one for each coordinate, "
                f"got shape {self.lengthscale.shape}"
            )

    @double_precision
    def __call__(self, r: Any, s: Any) -> Float[Array, "*n"]:
        """k(r, s) for places (..., D), with broadcasting: `kernel(r[:, None], r[None])` is the Gram matrix."""
        return self.covariance(float64(r), float64(s))

    def covariance(self, r: Float[Array, "*n D"], s: Float[Array, "*n D"]) -> Float[Array, "*n"]:
        """k(r, s) for float64 arrays."""
        return self.variance * self.correlation(jnp.sum(jnp.square((r - s) / self.lengthscale), axis=-1))

    def at_one_place(self) -> Float[Array, ""]:
        """k(r, r)."""
        return self.variance


class RBF(AbstractSpatialKernel):
    r"""k = σ² exp(−‖(r − s)/ℓ‖²/2): smooth."""

    def correlation(self, square: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(-0.5 * square)


class Matern12(AbstractSpatialKernel):
    r"""k = σ² e^{-a},  a = ‖(r − s)/ℓ‖: rough."""

    def correlation(self, square: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.exp(-_root(square))


class Matern32(AbstractSpatialKernel):
    r"""k = σ² (1 + a) e^{-a},  a = √3 ‖(r − s)/ℓ‖: once differentiable."""

    def correlation(self, square: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _matern32(square)


class Matern52(AbstractSpatialKernel):
    r"""k = σ² (1 + a + a²/3) e^{-a},  a = √5 ‖(r − s)/ℓ‖: twice differentiable."""

    def correlation(self, square: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return _matern52(square)


# In terms of the squared distance the derivatives are smooth at zero, and cheaper than by way of the distance.


@jax.custom_jvp
def _matern32(square: Float[Array, "*n"]) -> Float[Array, "*n"]:
    a = math.sqrt(3.0) * _root(square)
    return (1.0 + a) * jnp.exp(-a)


@_matern32.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    a = math.sqrt(3.0) * _root(primals[0])
    decay = jnp.exp(-a)
    return (1.0 + a) * decay, -1.5 * decay * tangents[0]


@jax.custom_jvp
def _matern52(square: Float[Array, "*n"]) -> Float[Array, "*n"]:
    a = math.sqrt(5.0) * _root(square)
    return (1.0 + a + a**2 / 3.0) * jnp.exp(-a)


@_matern52.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    a = math.sqrt(5.0) * _root(primals[0])
    decay = jnp.exp(-a)
    return (1.0 + a + a**2 / 3.0) * decay, -(5.0 / 6.0) * (1.0 + a) * decay * tangents[0]


def _root(square: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """√square, with a derivative of zero at zero, where a correlation is flat."""
    apart = square > 0.0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


class Points(Parametric):
    """Places of inducing points, (M, D)."""

    at: Array = real(vector=True)

    def __check_init__(self) -> None:
        if self.at.ndim != 2:
            raise ValueError(f"inducing points in space must have shape (M, D), got {self.at.shape}")


def _rows(given: Any) -> tuple[tuple[float, ...], ...] | None:
    """Places as tuples: what is static must hash and compare."""
    if given is None:
        return None
    at = np.asarray(given, dtype=float)
    at = at[:, None] if at.ndim == 1 else at
    if at.ndim != 2 or at.size == 0 or not np.all(np.isfinite(at)):
        raise ValueError(
            f"inducing points in space must be finite, of shape (M, D), M at least 1, got {np.shape(given)}"
        )
    return tuple(map(tuple, at.tolist()))


class Inducing(eqx.Module):
    """Which inducing points a space-time kernel is to have: `count` by k-means of the data's places, or `points`.

    Neither: the data's own distinct places, which is exact. With `learn=True` they are learnt with the
    hyperparameters, from there on.
    """

    count: int | None = eqx.field(static=True, default=None)
    points: tuple[tuple[float, ...], ...] | None = eqx.field(converter=_rows, static=True, default=None, kw_only=True)
    learn: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self) -> None:
        if self.count is not None and self.points is not None:
            raise ValueError(f"spatial `Inducing` takes `count` or `points`, got both: {self.count!r} and points")
        if self.count is not None and (
            isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1
        ):
            raise ValueError(f"`count` of spatial Inducing must be an integer of at least 1, got {self.count!r}")

    def place(self, places: Float[np.ndarray, "n D"]) -> Points:
        """The points for data at these places."""
        if self.points is not None:
            at = np.asarray(self.points, dtype=float)
        else:
            at = np.unique(places, axis=0)
            if self.count is not None and self.count < len(at):
                at = _centres(places, self.count)
        if at.shape[1] != places.shape[1]:
            raise ValueError(
                f"`inducing` of SpaceTime must have one column for each of the {places.shape[1]} coordinate(s) of "
                f"space in the data, got {at.shape[1]}"
            )
        return Points(param(at) if self.learn else fixed(at))


def as_spatial_inducing(given: Any) -> Inducing | Points:
    """None: the data's places. A number: so many by k-means. An array (M, D), or (M,) on a line: there."""
    if given is None:
        return Inducing()
    if isinstance(given, Inducing | Points):
        return given
    if isinstance(given, bool | str | float):
        raise TypeError(
            "`inducing` of SpaceTime must be a number of points, an array of places, th.spatial.Inducing or None, "
            f"got {given!r}"
        )
    if np.ndim(given) == 0:
        return Inducing(int(given) if isinstance(given, np.integer) else given)
    return Points(fixed(_rows(given)))


def _centres(places: Float[np.ndarray, "n D"], count: int) -> Float[np.ndarray, "count D"]:
    """The centres of k-means, the same at every call, each coordinate on its own scale."""
    import scipy.cluster.vq  # it takes longer to load than most of this library

    rng = np.random.default_rng(0)
    some = places if len(places) <= LARGEST_SAMPLE else rng.choice(places, LARGEST_SAMPLE, replace=False)
    scale = np.where(np.ptp(some, axis=0) > 0.0, np.std(some, axis=0), 1.0)
    found, _ = scipy.cluster.vq.kmeans2(some / scale, count, iter=30, minit="++", rng=rng)
    return np.unique(found * scale, axis=0)


def cholesky(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L with L L' = K to rounding, also where smooth kernels and near places make K singular to rounding."""
    size = K.shape[0]
    rounding = 8.0 * size * jnp.finfo(K.dtype).eps * jnp.max(jnp.diagonal(K))
    eye = jnp.eye(size, dtype=K.dtype)
    sharp = jax.lax.stop_gradient(jnp.linalg.cholesky(K + rounding * eye))
    # Only the branch that is taken is differentiated: a factor that failed would spoil the derivative of the other.
    jitter = jnp.where(jnp.all(jnp.isfinite(sharp)), rounding, 1e5 * rounding)
    return jnp.linalg.cholesky(K + jitter * eye)
