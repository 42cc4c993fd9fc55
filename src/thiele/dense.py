r"""The textbook Gaussian process, O(n³): the truth that everything else is tested with."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, ArrayLike, Float

from thiele.kernels import AbstractKernel
from thiele.precision import double_precision


@double_precision
def gram(kernel: AbstractKernel, t: ArrayLike, s: ArrayLike | None = None) -> Float[Array, "n m"]:
    """K with entries k(t_i, s_j)."""
    t = jnp.asarray(t, jnp.float64)
    s = t if s is None else jnp.asarray(s, jnp.float64)
    return kernel(t[:, None], s[None, :])


@double_precision
def log_likelihood(
    kernel: AbstractKernel, t: ArrayLike, y: ArrayLike, noise: ArrayLike, mean: ArrayLike = 0.0
) -> Float[Array, ""]:
    """log N(y; mean, K + noise I)."""
    y = jnp.asarray(y, jnp.float64) - mean
    L = jnp.linalg.cholesky(gram(kernel, t) + jnp.asarray(noise) * jnp.eye(len(y)))
    whitened = linalg.solve_triangular(L, y, lower=True)
    return -0.5 * jnp.sum(whitened**2) - jnp.sum(jnp.log(jnp.diag(L))) - 0.5 * len(y) * jnp.log(2.0 * jnp.pi)


@double_precision
def posterior(
    kernel: AbstractKernel, t: ArrayLike, y: ArrayLike, noise: ArrayLike, t_new: ArrayLike, mean: ArrayLike = 0.0
) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """Mean and covariance of f(t_new) given y."""
    y = jnp.asarray(y, jnp.float64) - mean
    L = jnp.linalg.cholesky(gram(kernel, t) + jnp.asarray(noise) * jnp.eye(len(y)))
    across = linalg.solve_triangular(L, gram(kernel, t, t_new), lower=True)
    whitened = linalg.solve_triangular(L, y, lower=True)
    return mean + across.T @ whitened, gram(kernel, t_new) - across.T @ across
