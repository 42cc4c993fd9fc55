r"""Separable kernels over time and space (paper, section 4.5).

k((t, r), (t', r')) = k_time(t, t') k_space(r, r'). With inducing points z in space and L L' = K(z, z), the process is

    f(t, r) = Σ_i w_i(r) g_i(t) + rest,    w(r) = L⁻¹ k_space(z, r),    Var rest = k_time(t, t) (k_space(r, r) − w·w),

where the g_i are independent copies of the process in time: white in space. So the prior of the state is a stack of
equal blocks, one for each inducing point, and a place enters through w alone.
"""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractOneLatent, Emission, blocks_of, require_time
from thiele.sde import Output
from thiele.spatial import AbstractSpatialKernel, Inducing, Points, as_spatial_inducing, cholesky


class SpaceTime(AbstractOneLatent):
    """k = `time`(t, t') · `space`(r, r') for inputs (t, r₁, r₂, …).

    `inducing` points in space: None for the data's own places, which is exact; a number, by k-means; an array (M, D);
    or `th.spatial.Inducing`, which can have them learnt.
    """

    time: AbstractOneLatent
    space: AbstractSpatialKernel
    inducing: Inducing | Points = eqx.field(converter=as_spatial_inducing, default=None)

    def __check_init__(self) -> None:
        require_time(self.time, "time", "SpaceTime")
        if not isinstance(self.space, AbstractSpatialKernel):
            raise TypeError(f"`space` of SpaceTime must be a kernel such as th.spatial.RBF(), got {self.space!r}")

    @property
    def in_space(self) -> bool:
        return True

    @property
    def outputs_observed(self) -> int:
        return 0

    def covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        return self.time.covariance(t[..., 0], s[..., 0]) * self.space.covariance(t[..., 1:], s[..., 1:])

    def outputs(self) -> tuple[Output, ...]:
        return (Output(blocks_of(self.time), copies=self.points().shape[0]),)

    def emission(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> Emission:
        w = self._weights(r)
        left = jnp.maximum(self.space.at_one_place() - jnp.sum(w**2, axis=-1), 0.0)
        return Emission(w, self.time.covariance(t, t) * left)

    def rest_covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        seen = jnp.sum(self._weights(t[..., 1:]) * self._weights(s[..., 1:]), axis=-1)
        return self.time.covariance(t[..., 0], s[..., 0]) * (self.space.covariance(t[..., 1:], s[..., 1:]) - seen)

    def _weights(self, r: Float[Array, "*n D"]) -> Float[Array, "*n M"]:
        z = self.points()
        L = cholesky(self.space.covariance(z[:, None], z[None]))
        # The inverse of the small triangle, once: products with it are many times faster than solutions.
        inverse = jax.scipy.linalg.solve_triangular(L, jnp.eye(z.shape[0], dtype=L.dtype), lower=True)
        return self.space.covariance(r[..., None, :], z) @ inverse.T

    def points(self) -> Float[Array, "M D"]:
        """The inducing points in space, which are known once the kernel has been placed."""
        if isinstance(self.inducing, Inducing):
            raise ValueError(
                "`inducing` points of SpaceTime are chosen when the model sees data; give an array of places to use "
                "the kernel by itself"
            )
        return self.inducing.at

    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        if places is None:
            raise ValueError("`t` must hold (t, r1, …) in each row for a kernel in space, got times alone")
        D = places.shape[1]
        if self.space.lengthscale.shape not in ((), (D,)):
            raise ValueError(
                f"`lengthscale` of {type(self.space).__name__} must be one number or one for each of the {D} "
                f"coordinate(s) of space in the data, got {self.space.lengthscale.shape[0]}"
            )
        if isinstance(self.inducing, Inducing):
            return eqx.tree_at(lambda k: k.inducing, self, self.inducing.place(places))
        if self.inducing.at.shape[1] != D:
            raise ValueError(
                f"`inducing` of SpaceTime must have one column for each of the {D} coordinate(s) of space in the "
                f"data, got {self.inducing.at.shape[1]}"
            )
        return self


def grid(*axes: Any) -> Float[np.ndarray, "n dims"]:
    """All combinations of times and coordinates as rows, the last axis fastest: where to predict a map.

    `fit.predict(th.grid(t, r1, r2)).mean.reshape(len(t), len(r1), len(r2))`.
    """
    if not axes or any(np.ndim(axis) > 1 for axis in axes):
        raise ValueError(f"`axes` of grid must be vectors or numbers, got shapes {[np.shape(axis) for axis in axes]}")
    return np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)
