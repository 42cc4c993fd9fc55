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
import math
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

MAXIMUM_NODES = 1_000_000
# A signed sum below this share of its positive part is rounding and truncation error, not a probability.
TRUSTED_SHARE = 1e-3
# The grid of a tilted density: its size, and how far it goes, in standard deviations, where exp(-32) is left out.
TILTED_NODES = 64
TAIL = 8.0


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


def standard_deviation(var: Float[Array, ""]) -> Float[Array, ""]:
    """√var with a finite derivative at var = 0 and no NaN below it; off by less than 1e-12 in double precision."""
    return jnp.sqrt(jnp.where(var >= 0.0, var, 0.0) + jnp.finfo(var.dtype).eps ** 1.5)


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


class Grid(NamedTuple):
    """Nodes for one tilted density: f_i, and the logarithms of weight · N(f_i; mean, var)."""

    points: Float[Array, " n"]
    log_weights: Float[Array, " n"]


def tilted_grid(log_fn: Callable[[Array], Array], mean: Float[Array, ""], var: Float[Array, ""]) -> Grid:
    r"""Nodes for ∫ exp(log_fn(f)) N(f; mean, var) df that find the mass wherever it is and however narrow.

        f = c + s sinh(u),   c = argmax log_fn(f) + log N(f; mean, var),   s² = var/(1 + W var),   W = -log_fn"(c) ≥ 0

    with equal steps in u. Near c the nodes are a fraction of s apart; further out their distance grows in proportion,
    up to 8 standard deviations beyond both `mean` and c. So two scales are resolved at once, the width s of a sharp
    likelihood and that of the Gaussian, and the trapezoidal rule in u converges geometrically for a smooth integrand.

    The integral does not depend on where the nodes are, so they may move with `mean` and `var` in any way, and the
    derivative of the sum is that of the integral up to the rule's own error. They move as c and s do when log_fn is
    replaced by its quadratic model at c, held fixed. For a Gaussian likelihood the terms that could cancel in the first
    two derivatives are then zero, and nothing is divided by `var`.
    """
    held, constants = jax.closure_convert(log_fn, mean)
    constants = lax.stop_gradient(constants)
    start, sd = lax.stop_gradient(mean), standard_deviation(var)
    z, Wv = _tilted_mode(lambda z, sd: held(start + sd * z, *constants), lax.stop_gradient(sd))
    fixed_sd = lax.stop_gradient(sd)
    W = Wv / jnp.square(fixed_sd)
    shrink = 1.0 / (1.0 + W * jnp.square(sd))
    # c of the quadratic model, in standard deviations from the mean: equal to z, with the derivatives of the model.
    away = shrink * sd * (W * (start + fixed_sd * z - mean) + z / fixed_sd)
    return _sinh_grid(mean, sd, away, jnp.sqrt(shrink))


def _tilted_mode(log_fn: Callable[[Array, Array], Array], sd: Array) -> tuple[Array, Array]:
    """z near a maximum of log_fn(z, sd) - z²/2, and the curvature -∂²log_fn there, or 0 where that is negative.

    A scan finds the hills; of those that matter the sharpest is taken, because nodes around a broad one would miss it.
    Newton's method inside a bracket climbs it. Nodes follow, not values: a tenth of the hill's width is near enough.
    """
    slope = jax.grad(log_fn)
    curvature = jax.grad(slope)
    scan = jnp.arange(-2.0 * TAIL, 2.0 * TAIL + 1.0, dtype=sd.dtype) / 2.0
    heights = jax.vmap(lambda z: log_fn(z, sd) - 0.5 * jnp.square(z))(scan)
    heights = jnp.where(jnp.isfinite(heights), heights, jnp.finfo(sd.dtype).min / 8.0)
    rises = jnp.diff(heights, prepend=heights[:1], append=heights[-1:])
    hill = (rises[:-1] >= 0.0) & (rises[1:] <= 0.0) & (heights > jnp.max(heights) - 0.5 * TAIL**2)
    top = jnp.argmax(jnp.where(hill, rises[:-1] - rises[1:], -jnp.inf))
    z = scan[top]
    # Where the hill lies beyond the scan: its top solves z = slope(z), and a concave function's slope falls.
    beyond = slope(z, sd)
    beyond = jnp.where(jnp.isfinite(beyond), beyond, 0.0)
    low = jnp.where(top == 0, jnp.minimum(z, beyond), z - 0.5)
    high = jnp.where(top == scan.size - 1, jnp.maximum(z, beyond), z + 0.5)

    def climb(state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, low, high, _, count = state
        gradient = slope(z, sd) - z
        low, high = jnp.where(gradient > 0, z, low), jnp.where(gradient > 0, high, z)
        width = 1.0 / (1.0 + jnp.maximum(-curvature(z, sd), 0.0))
        newton = z + gradient * width
        # Far out on an exponential Newton's steps are short; every third is a bisection.
        trusted = (newton >= low) & (newton <= high) & (count % 3 < 2)
        far = ~(jnp.abs(newton - z) <= 0.1 * jnp.sqrt(width))
        return jnp.where(trusted | ~far, newton, 0.5 * (low + high)), low, high, far, count + 1

    go_on = lambda state: state[3] & (state[4] < 100)  # noqa: E731
    z, *_ = lax.while_loop(go_on, climb, (z, low, high, jnp.array(True), 0))
    bend = -curvature(z, sd)
    return z, jnp.where(bend > 0, bend, 0.0)


def _sinh_grid(mean: Array, sd: Array, away: Array, width: Array) -> Grid:
    """The grid around c = mean + sd · away with s = sd · width."""
    held, narrow = lax.stop_gradient((away, width))
    left = jnp.arcsinh((TAIL + jnp.maximum(held, 0.0)) / narrow)
    right = jnp.arcsinh((TAIL + jnp.maximum(-held, 0.0)) / narrow)
    u = jnp.linspace(-left, right, TILTED_NODES)
    z = away + width * jnp.sinh(u)
    log_step = jnp.log((left + right) / ((TILTED_NODES - 1) * math.sqrt(2.0 * math.pi)))
    return Grid(mean + sd * z, log_step + jnp.log(width * jnp.cosh(u)) - 0.5 * jnp.square(z))


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
) -> Float[Array, ""]:
    """log E[exp(log_fn(f))], f ~ N(mean, var), without overflow; see `log_weighted_sum` for negative weights.

    In one dimension `None` places the nodes by `tilted_grid`.
    """
    if rule is None and jnp.ndim(mean) == 0:
        dtype = jnp.result_type(mean, var, 1.0)
        points, log_weights = tilted_grid(log_fn, jnp.asarray(mean, dtype), jnp.asarray(var, dtype))
        return jax.nn.logsumexp(jax.vmap(log_fn)(points) + log_weights)
    points, weights = gaussian_points(mean, var, rule)
    return log_weighted_sum(jax.vmap(log_fn)(points), weights)
