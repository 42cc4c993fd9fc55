r"""Several outputs as mixtures of shared functions: the linear model of coregionalisation.

f_p = Σ_j a_pj g_j, with independent g_j ~ GP(0, k_j), so that k((x, p), (x', q)) = Σ_j a_pj a_qj k_j(x, x'). Which
output a row observes is its last coordinate: 0, 1, …. Outputs may be observed at different times.
"""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractOneLatent, Emission, require_one_latent
from thiele.parameters import Parametric, real
from thiele.sde import Output


class Coregional(AbstractOneLatent):
    """`loadings` (outputs, functions) times independent functions, one for each of `kernels`.

    Inputs are (t, p), or (t, r₁, …, p) where the kernels are in space, with the output p = 0, 1, … last. Loadings and
    variances of the kernels are known as a product only: hold one of them (`Matern32(variance=th.fixed(1.0))`).
    """

    kernels: tuple[AbstractOneLatent, ...]
    loadings: Array = real(vector=True)

    def __post_init__(self) -> None:
        kernels = (self.kernels,) if isinstance(self.kernels, AbstractOneLatent) else tuple(self.kernels)
        for kernel in kernels:
            require_one_latent(kernel, "kernels", "Coregional")
        self.kernels = kernels
        Parametric.__post_init__(self)

    def __check_init__(self) -> None:
        if self.loadings.ndim != 2 or self.loadings.shape[1] != len(self.kernels):
            raise ValueError(
                f"`loadings` of Coregional must have shape (outputs, {len(self.kernels)}), one column for each kernel, "
                f"got {self.loadings.shape}"
            )

    @property
    def in_space(self) -> bool:
        return True

    @property
    def outputs_observed(self) -> int:
        return self.loadings.shape[0]

    def covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        a, b = (self.loadings[_index(x)] for x in (t, s))
        x, y = t[..., :-1], s[..., :-1]
        each = [k.covariance(x, y) if k.in_space else k.covariance(x[..., 0], y[..., 0]) for k in self.kernels]
        return sum(a[..., j] * b[..., j] * k for j, k in enumerate(each))

    def outputs(self) -> tuple[Output, ...]:
        return tuple(output for kernel in self.kernels for output in kernel.outputs())

    def emission(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> Emission:
        a = self.loadings[_index(r)]
        each = [kernel.emission(t, r[..., :-1]) for kernel in self.kernels]
        w = jnp.concatenate([a[..., j, None] * e.w for j, e in enumerate(each)], axis=-1)
        return Emission(w, sum(jnp.square(a[..., j]) * e.rest for j, e in enumerate(each)))

    def rest_covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        a, b = (self.loadings[_index(x)] for x in (t, s))
        each = [kernel.rest_covariance(t[..., :-1], s[..., :-1]) for kernel in self.kernels]
        return sum(a[..., j] * b[..., j] * k for j, k in enumerate(each))

    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        if places is None:
            raise ValueError("`t` must hold (t, output) in each row for Coregional, got times alone")
        output = places[:, -1]
        wrong = (output != np.round(output)) | (output < 0) | (output >= self.outputs_observed)
        if np.any(wrong):
            last, came = self.outputs_observed - 1, output[np.argmax(wrong)]
            raise ValueError(f"the last column of `t` must be the output, an integer from 0 to {last}, got {came:g}")
        rest = places[:, :-1] if places.shape[1] > 1 else None
        kernels = tuple(kernel.placed(rest) if kernel.in_space else kernel for kernel in self.kernels)
        return eqx.tree_at(lambda k: k.kernels, self, kernels)


def _index(x: Float[Array, "*n D"]) -> Array:
    """The output that each row is about; a row of padding counts as the first."""
    return jnp.nan_to_num(x[..., -1]).astype(jnp.int32)
