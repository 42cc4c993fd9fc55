r"""E[g(f)] under f ~ N(mean, var) as a weighted sum of values of g, and log E[exp(l(f))] without overflow.

A rule knows its nodes for any number of dimensions: `GaussHermite(20).nodes(2)` has 400. Rules are frozen values that
hash and compare by their settings and hold no arrays, so they may be static configuration, default arguments, or
arguments of a jitted function. Nodes are computed once in numpy and enter a compiled program as constants.

`expectation` and `log_expectation` take one datum: a scalar mean and variance, or a mean (L,) and covariance (L, L).
Where exp(l) may be far narrower than the Gaussian, in one dimension, `log_expectation` places its nodes itself unless a
rule is named.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from thiele import small
from thiele.tilted import log_tilted, standard_deviation

MAXIMUM_NODES = 1_000_000
# A signed sum below this share of its positive part is rounding and truncation error, not a probability.
TRUSTED_SHARE = 1e-3


class Nodes(NamedTuple):
    """Points and weights for the standard Gaussian; the weights sum to one and may be negative."""

    points: np.ndarray
    weights: np.ndarray


class AbstractQuadrature(abc.ABC):
    """A rule for expectations under a Gaussian, in any number of dimensions."""

    @abc.abstractmethod
    def nodes(self, dimension: int) -> Nodes:
        """Points (n, dimension) and weights (n,) for N(0, I)."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class GaussHermite(AbstractQuadrature):
    """Tensor product of the Gauss-Hermite rule: exact up to degree 2 `order` - 1 in each variable, weights positive."""

    order: int = 20

    def nodes(self, dimension: int) -> Nodes:
        return _gauss_hermite(self.order, dimension)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Unscented3(AbstractQuadrature):
    """Points ±√L e_i with equal weights: exact up to total degree 3 from 2 L points, weights positive.

    The unscented transform with its centre dropped, also known as the spherical-radial cubature rule.
    """

    def nodes(self, dimension: int) -> Nodes:
        return _unscented_third_order(dimension)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Unscented5(AbstractQuadrature):
    """The fully symmetric rule of McNamee and Stenger (1967): exact up to total degree 5 from 2 L² + 1 points.

    The weights of the points on the axes are (4 - L)/18: zero for four dimensions and negative for more. An expectation
    of a positive function can then come out negative; `log_expectation` says what it does about that.
    """

    def nodes(self, dimension: int) -> Nodes:
        return _unscented_fifth_order(dimension)


@jax.tree_util.register_static
@dataclass(frozen=True)
class MonteCarlo(AbstractQuadrature):
    """Fixed random points in antithetic pairs x and -x, equal weights: the same `seed` gives the same points."""

    samples: int = 1000
    seed: int = 0

    def nodes(self, dimension: int) -> Nodes:
        return _antithetic_normal(self.samples, self.seed, dimension)


@cache
def _gauss_hermite(order: int, dimension: int) -> Nodes:
    if order < 1:
        raise ValueError(f"`order` of GaussHermite must be at least 1, got {order}")
    if order**dimension > MAXIMUM_NODES:
        raise ValueError(
            f"GaussHermite(order={order}) in {dimension} dimensions needs {order}^{dimension} nodes, more than "
            f"{MAXIMUM_NODES}; lower `order` or use Unscented5() or MonteCarlo()"
        )
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.meshgrid(*[points] * dimension, indexing="ij")
    products = np.prod(np.meshgrid(*[weights / weights.sum()] * dimension, indexing="ij"), axis=0)
    return Nodes(np.stack([axis.ravel() for axis in grid], axis=1), products.ravel())


@cache
def _unscented_third_order(dimension: int) -> Nodes:
    axes = np.sqrt(dimension) * np.eye(dimension)
    return Nodes(np.concatenate([axes, -axes]), np.full(2 * dimension, 0.5 / dimension))


@cache
def _unscented_fifth_order(dimension: int) -> Nodes:
    axes = np.sqrt(3.0) * np.eye(dimension)
    pairs = [s * axes[i] + t * axes[j] for i, j in itertools.combinations(range(dimension), 2)
             for s, t in itertools.product((1.0, -1.0), repeat=2)]  # fmt: skip
    points = np.concatenate([np.zeros((1, dimension)), axes, -axes, np.reshape(pairs, (-1, dimension))])
    centre = 1.0 + (dimension**2 - 7.0 * dimension) / 18.0
    weights = np.concatenate([[centre], np.full(2 * dimension, (4.0 - dimension) / 18.0), np.full(len(pairs), 1 / 36)])
    return Nodes(points, weights)


@cache
def _antithetic_normal(samples: int, seed: int, dimension: int) -> Nodes:
    if samples < 2 or samples % 2:
        raise ValueError(f"`samples` of MonteCarlo must be even and positive, got {samples}")
    half = np.random.default_rng(seed).standard_normal((samples // 2, dimension))
    return Nodes(np.concatenate([half, -half]), np.full(samples, 1.0 / samples))


def default_quadrature(dimension: int) -> AbstractQuadrature:
    """Gauss-Hermite of order 20 in one and two dimensions, the fifth-order unscented rule in more (paper, sec. 5)."""
    return GaussHermite(20) if dimension <= 2 else Unscented5()


def semidefinite_cholesky(var: Float[Array, "L L"]) -> Float[Array, "L L"]:
    """Lower triangular C with C C' = var, also where `var` is singular or has lost definiteness to rounding."""
    return small.lower(cholesky_columns(var))


def cholesky_columns(var: Float[Array, "L L"]) -> list[list[Float[Array, ""]]]:
    """The same factor as numbers: column j holds its entries from the diagonal down.

    A pivot never falls below rounding error of its diagonal entry, so the factor and its derivatives stay finite; where
    `var` is singular the value is off by about that much. Number by number for every L: it runs under `vmap` over data.
    """
    eps = jnp.finfo(var.dtype).eps
    return small.cholesky_columns(var, least=lambda entry: eps * jnp.abs(entry) + eps**1.5)


def standard_nodes(dimension: int, dtype: Any, rule: AbstractQuadrature | None) -> tuple[Array, np.ndarray]:
    """Points (n, dimension) in `dtype` and numpy weights (n,); `None` stands for `default_quadrature`."""
    points, weights = (rule or default_quadrature(dimension)).nodes(dimension)
    return jnp.asarray(points, dtype), weights


def weighted_sum(values: Any, weights: np.ndarray) -> Any:
    """Σ w_i v_i over the first axis of every array in `values`."""
    return jax.tree.map(lambda v: jnp.tensordot(jnp.asarray(weights, v.dtype), v, axes=1), values)


def log_weighted_sum(log_values: Float[Array, " n"], weights: np.ndarray) -> Float[Array, ""]:
    """log Σ w_i exp(l_i) for weights of either sign.

    Where negative weights bring the sum under a thousandth of its positive part, that thousandth stands in for it: the
    answer stays finite and its gradient still points towards larger likelihood.
    """
    w = jnp.asarray(weights, log_values.dtype)
    top = lax.stop_gradient(jnp.max(log_values, where=weights > 0, initial=-jnp.inf))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    # A value under a negative weight may exceed the largest under a positive one; it must not overflow.
    terms = w * jnp.exp(jnp.minimum(log_values - top, 0.45 * float(np.log(jnp.finfo(w.dtype).max))))
    total = jnp.sum(terms)
    if np.any(weights < 0):
        positive = jnp.sum(jnp.where(weights > 0, terms, 0.0))
        total = jnp.where(total > TRUSTED_SHARE * positive, total, TRUSTED_SHARE * positive)
    return top + jnp.log(total)


def gaussian_points(
    mean: Float[Array, "*L"], var: Float[Array, "*L *L"], rule: AbstractQuadrature | None = None
) -> tuple[Float[Array, " n *L"], np.ndarray]:
    """Points mean + C x for the nodes x of `rule`, with C C' = var, and their weights."""
    mean, var = jnp.asarray(mean), jnp.asarray(var)
    dtype = jnp.result_type(mean, var, 1.0)
    mean, var = mean.astype(dtype), var.astype(dtype)
    if var.shape != 2 * mean.shape or mean.ndim > 1:
        raise ValueError(f"`var` must have shape {2 * mean.shape} for a mean of shape {mean.shape}, got {var.shape}")
    if mean.ndim == 0:
        x, weights = standard_nodes(1, dtype, rule)
        return mean + standard_deviation(var) * x[:, 0], weights
    x, weights = standard_nodes(mean.shape[0], dtype, rule)
    return mean + x @ semidefinite_cholesky(var).T, weights


def expectation(
    fn: Callable[[Array], Any],
    mean: Float[Array, "*L"],
    var: Float[Array, "*L *L"],
    rule: AbstractQuadrature | None = None,
) -> Any:
    """E[fn(f)], f ~ N(mean, var); `fn` may return any tree of arrays."""
    points, weights = gaussian_points(mean, var, rule)
    return weighted_sum(jax.vmap(fn)(points), weights)


def log_expectation(
    log_fn: Callable[[Array], Array],
    mean: Float[Array, "*L"],
    var: Float[Array, "*L *L"],
    rule: AbstractQuadrature | None = None,
    *,
    one_hill: bool = False,
) -> Float[Array, ""]:
    """log E[exp(log_fn(f))], f ~ N(mean, var), without overflow; see `log_weighted_sum` for negative weights.

    In one dimension `None` places the nodes by what `log_fn` says (`thiele.tilted`), which takes less where it is known
    to be concave, `one_hill`.
    """
    if rule is None and jnp.ndim(mean) == 0:
        dtype = jnp.result_type(mean, var, 1.0)
        return log_tilted(log_fn, jnp.asarray(mean, dtype), jnp.asarray(var, dtype), one_hill=one_hill)
    points, weights = gaussian_points(mean, var, rule)
    return log_weighted_sum(jax.vmap(log_fn)(points), weights)
