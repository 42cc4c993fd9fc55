r"""Integrals of y | z, g ~ N(a' z, s), a = softplus(g), under a Gaussian (z, g), with their derivatives by hand.

At a node of the quadrature over g the rest is in closed form. With e = y − a' z, V the covariance of z there, b = V a,

    log E N(y; a' z, s)^α = l = −½ (α log 2πs − log s + log u + α e²/u),    u = s + α a' V a,
    c = α/u,   t = c e:     ∂l/∂z = t a,    ∂l/∂a = t z + (t² − c) b,    ∂l/∂V = ½ (t² − c) a a',

and E log N(y; a' z, s) is the same with c = 1/s and without t². Automatic differentiation finds these too, but it takes
each of the latents as a direction through every operation at every node, which was ten times as slow (benchmarks).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.likelihoods.special import softplus_and_slope
from thiele.quadrature import AbstractQuadrature, cholesky_columns, default_quadrature, log_weighted_sum, weighted_sum


class Given(NamedTuple):
    """At every node: a and its slope in g, z and V a, each (k, n); e and a' V a, each (n,)."""

    a: Array
    slope: Array
    z: Array
    b: Array
    e: Array
    spread: Array


class Pieces(NamedTuple):
    """(g, z) = K (1, x) at a node x of the quadrature, and the covariance V of z there, by its lower triangle."""

    K: Float[Array, "2k 1+k"]
    V: Float[Array, " entries"]


def _triangle(k: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(k) for j in range(i + 1)]


def _pieces(mean: Array, var: Array) -> Pieces:
    k = mean.shape[0] // 2
    # Rolled, not looked up: of two gathers of the same the compiler keeps both, and all that follows twice.
    mean, columns = jnp.roll(mean, k), cholesky_columns(jnp.roll(var, (k, k), (0, 1)))
    zero = jnp.zeros((), var.dtype)
    rows = [[mean[i], *(columns[j][i - j] if i >= j else zero for j in range(k))] for i in range(2 * k)]
    rest = columns[k:]
    V = [sum(rest[c][i - c] * rest[c][j - c] for c in range(j + 1)) for i, j in _triangle(k)]
    return Pieces(jnp.stack([jnp.stack(row) for row in rows]), jnp.stack(V))


def _nodes(k: int, dtype: jnp.dtype, quadrature: AbstractQuadrature | None) -> tuple[Array, np.ndarray]:
    """(1, x) of all nodes, (1 + k, n), and their weights."""
    points, weights = (quadrature or default_quadrature(k)).nodes(k)
    # One constant, which the compiler knows for the same wherever it is.
    return jnp.asarray(np.concatenate([np.ones((1, len(points))), points.T]), dtype), weights


def _given(y: Array, at: Pieces, nodes: Array) -> Given:
    k = at.K.shape[0] // 2
    f = at.K @ nodes
    g, z = f[:k], f[k:]
    a, slope = softplus_and_slope(g)
    place = {pair: i for i, pair in enumerate(_triangle(k))}
    V = lambda i, j: at.V[place[max(i, j), min(i, j)]]  # noqa: E731
    b = jnp.stack([sum(V(i, j) * a[j] for j in range(k)) for i in range(k)])
    return Given(a, slope, z, b, y - jnp.sum(a * z, axis=0), jnp.sum(a * b, axis=0))


class Slopes(NamedTuple):
    """Derivatives of an integral in y, in its pieces, in the noise variance and in the power."""

    y: Array
    at: Pieces
    noise: Array
    power: Array


def _slopes(at: Given, nodes: Array, share: Array, c: Array, curved: Array, by_noise: Array, by_power: Array) -> Slopes:
    """From c, t² − c (`curved`) and a node's share of the integral."""
    k, t = at.a.shape[0], c * at.e
    by_g = at.slope * (t * at.z + curved * at.b)
    by_f = share * jnp.concatenate([by_g, t * at.a])
    weight = share * curved
    by_V = [weight * at.a[i] * at.a[j] * (0.5 if i == j else 1.0) for i, j in _triangle(k)]
    return Slopes(
        -jnp.sum(share * t),
        Pieces(by_f @ nodes.T, jnp.sum(jnp.stack(by_V), axis=-1)),
        jnp.sum(share * by_noise),
        jnp.sum(share * by_power),
    )


def _along(slopes: Slopes, tangents: Slopes) -> Array:
    """The derivative in one direction; arguments that do not move cost nothing."""
    total = jnp.zeros_like(slopes.y)
    for slope, tangent in zip(jax.tree.leaves(slopes), jax.tree.leaves(tangents), strict=True):
        if not isinstance(tangent, jax.custom_derivatives.SymbolicZero):
            total = total + jnp.sum(slope * tangent)
    return total


# E log N(y; a' z, s).


def expected_log_normal(
    quadrature: AbstractQuadrature | None, y: Array, mean: Array, var: Array, noise: Array
) -> Float[Array, ""]:
    """E log N(y; a' z, s) under N(mean, var)."""
    return _expected(quadrature, y, _pieces(mean, var), noise)


def _expected_and_slopes(
    quadrature: AbstractQuadrature | None, y: Array, pieces: Pieces, noise: Array
) -> tuple[Array, Slopes]:
    nodes, weights = _nodes(pieces.K.shape[0] // 2, pieces.K.dtype, quadrature)
    at = _given(y, pieces, nodes)
    square = jnp.square(at.e) + at.spread
    value = -0.5 * (jnp.log(2.0 * math.pi * noise) + weighted_sum(square, weights) / noise)
    share = jnp.asarray(weights, value.dtype)
    c = jnp.broadcast_to(1.0 / noise, at.e.shape)
    by_noise = 0.5 * (square / noise - 1.0) / noise
    return value, _slopes(at, nodes, share, c, -c, by_noise, jnp.zeros_like(c))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expected(quadrature: AbstractQuadrature | None, y: Array, pieces: Pieces, noise: Array) -> Array:
    return _expected_and_slopes(quadrature, y, pieces, noise)[0]


@partial(_expected.defjvp, symbolic_zeros=True)
def _expected_jvp(quadrature: AbstractQuadrature | None, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    value, slopes = _expected_and_slopes(quadrature, *primals)
    return value, _along(slopes._replace(power=()), Slopes(*tangents, ()))


# log E N(y; a' z, s)^α.


def log_expected_normal(
    quadrature: AbstractQuadrature | None, y: Array, mean: Array, var: Array, noise: Array, power: Array | float
) -> Float[Array, ""]:
    """log E N(y; a' z, s)^power under N(mean, var)."""
    return _tilted(quadrature, y, _pieces(mean, var), noise, jnp.asarray(power, mean.dtype))


class Tilted(NamedTuple):
    """log E N^α, each node's share of it, and what its derivatives need."""

    value: Array
    share: Array
    c: Array
    widened: Array


def _at_nodes(at: Given, weights: np.ndarray, noise: Array, power: Array) -> Tilted:
    widened = noise + power * at.spread
    constant = power * jnp.log(2.0 * math.pi * noise)
    logs = -0.5 * (constant + jnp.log(widened / noise) + power * jnp.square(at.e) / widened)
    value, share = jax.value_and_grad(lambda x: log_weighted_sum(x, weights))(logs)
    return Tilted(value, share, power / widened, widened)


def _tilted_and_slopes(
    quadrature: AbstractQuadrature | None, y: Array, pieces: Pieces, noise: Array, power: Array
) -> tuple[Array, Slopes]:
    nodes, weights = _nodes(pieces.K.shape[0] // 2, pieces.K.dtype, quadrature)
    at = _given(y, pieces, nodes)
    value, share, c, widened = _at_nodes(at, weights, noise, power)
    ratio = jnp.square(at.e) / widened
    by_noise = 0.5 * ((1.0 - power) / noise + (power * ratio - 1.0) / widened)
    by_power = 0.5 * ((power * ratio - 1.0) * at.spread / widened - ratio - jnp.log(2.0 * math.pi * noise))
    return value, _slopes(at, nodes, share, c, jnp.square(c * at.e) - c, by_noise, by_power)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _tilted(quadrature: AbstractQuadrature | None, y: Array, pieces: Pieces, noise: Array, power: Array) -> Array:
    return _tilted_and_slopes(quadrature, y, pieces, noise, power)[0]


@partial(_tilted.defjvp, symbolic_zeros=True)
def _tilted_jvp(quadrature: AbstractQuadrature | None, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    value, slopes = _tilted_and_slopes(quadrature, *primals)
    return value, _along(slopes, Slopes(*tangents))


def tilted_slopes(
    quadrature: AbstractQuadrature | None, y: Array, mean: Array, var: Array, noise: Array, power: Array | float
) -> tuple[Float[Array, " 2k"], Float[Array, "2k 2k"]]:
    """First and second derivative of `log_expected_normal` in the mean.

    With π the share of a node, d₁ = Σ π ∇l and d₂ = Σ π (∇l ∇l' + ∇²l) − d₁ d₁', where ∇²l follows from

        ∂t/∂z = −c a,    ∂t/∂a = −c z − 2 c t b,    ∂c/∂a = −2 c² b.
    """
    k = mean.shape[0] // 2
    pieces = _pieces(mean, var)
    nodes, weights = _nodes(k, var.dtype, quadrature)
    at = _given(y, pieces, nodes)
    a, slope, z, b, e, _ = at
    _, share, c, _ = _at_nodes(at, weights, noise, jnp.asarray(power, mean.dtype))
    t = c * e
    curved = jnp.square(t) - c
    by_z, by_a = t * a, t * z + curved * b
    gradient = [*by_z, *(slope * by_a)]
    t_by_a = -c * (z + 2.0 * t * b)
    place = {pair: i for i, pair in enumerate(_triangle(k))}
    V = lambda i, j: pieces.V[place[max(i, j), min(i, j)]]  # noqa: E731

    def second(i: int, j: int) -> Array:
        """∂²l of two latents, i ≥ j, the carriers first."""
        if i < k:
            return -c * a[i] * a[j]
        if j < k:
            same = t if i - k == j else 0.0
            return slope[i - k] * (same + a[j] * t_by_a[i - k])
        p, q = i - k, j - k
        of_a = z[p] * t_by_a[q] + 2.0 * b[p] * (t * t_by_a[q] + jnp.square(c) * b[q]) + curved * V(p, q)
        own = slope[p] * (1.0 - slope[p]) * by_a[p] if p == q else 0.0
        return slope[p] * slope[q] * of_a + own

    pairs = _triangle(2 * k)
    curvature = [gradient[i] * gradient[j] + second(i, j) for i, j in pairs]
    sums = jnp.sum(share * jnp.stack([*gradient, *curvature]), axis=-1)
    first, raw = sums[: 2 * k], sums[2 * k :]
    index = np.zeros((2 * k, 2 * k), int)
    for n, (i, j) in enumerate(pairs):
        index[i, j] = index[j, i] = n
    return first, raw[index] - jnp.outer(first, first)
