r"""A Kalman filter and smoother by `jax.lax.associative_scan` (Särkkä and García-Fernández, 2021): the baseline.

x' = A x + q, q ~ N(0, Q), y = h·x + N(0, R), with a state of two entries and a scalar observation. Matrices are
(n, 2, 2), vectors (n, 2, 1), and the inverse of a 2 x 2 matrix is in closed form. Products are written in one of two
ways: by `@`, which compiles fast and runs fast on a CPU, or as sums over the small axes, which leaves no call of a
library in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Product = Callable[[Array, Array], Array]
PRODUCTS: dict[str, Product] = {
    "calls": jnp.matmul,
    "sums": lambda a, b: a[..., :, :1] * b[..., :1, :] + a[..., :, 1:] * b[..., 1:, :],
}


class Problem(NamedTuple):
    """Transitions (n - 1, 2, 2), the first state's covariance (2, 2), h (2,), the noise's variance, values (n,)."""

    A: Array
    Q: Array
    P0: Array
    h: Array
    R: Array
    y: Array


class Filtering(NamedTuple):
    """p(x' | x, y) = N(A x + b, C) and p(y | x) ∝ exp(η·x − ½ xᵀ J x), of a piece of the chain."""

    A: Array
    b: Array
    C: Array
    eta: Array
    J: Array


class Smoothing(NamedTuple):
    """p(x | x', y) = N(E x' + g, L), of a piece of the chain."""

    E: Array
    g: Array
    L: Array


def turned(a: Array) -> Array:
    return jnp.swapaxes(a, -1, -2)


def inverse(a: Array) -> Array:
    p, q, r, s = a[..., :1, :1], a[..., :1, 1:], a[..., 1:, :1], a[..., 1:, 1:]
    adjugate = jnp.concatenate([jnp.concatenate([s, -q], axis=-1), jnp.concatenate([-r, p], axis=-1)], axis=-2)
    return adjugate / (p * s - q * r)


def _filtering_elements(p: Problem, mul: Product) -> Filtering:
    Q = jnp.concatenate([p.P0[None], p.Q])
    # The first state has no state before it: nothing is carried from there, and nothing is said about it.
    A = jnp.concatenate([jnp.zeros_like(p.P0)[None], p.A])
    h, y = p.h[None, None], p.y[:, None, None]
    S = mul(mul(h, Q), turned(h)) + p.R
    K, left = mul(Q, turned(h)) / S, mul(h, A)
    return Filtering(A - K * left, K * y, Q - K * mul(h, Q), turned(left) * y / S, turned(left) * left / S)


def _joined(i: Filtering, j: Filtering, mul: Product) -> Filtering:
    """Piece i, then piece j."""
    between = inverse(jnp.eye(2, dtype=i.A.dtype) + mul(i.C, j.J))
    E, G = mul(j.A, between), mul(turned(i.A), turned(between))
    return Filtering(
        A=mul(E, i.A),
        b=mul(E, i.b + mul(i.C, j.eta)) + j.b,
        C=mul(mul(E, i.C), turned(j.A)) + j.C,
        eta=mul(G, j.eta - mul(j.J, i.b)) + i.eta,
        J=mul(mul(G, j.J), i.A) + i.J,
    )


def _joined_back(later: Smoothing, earlier: Smoothing, mul: Product) -> Smoothing:
    return Smoothing(
        E=mul(earlier.E, later.E),
        g=mul(earlier.E, later.g) + earlier.g,
        L=mul(mul(earlier.E, later.L), turned(earlier.E)) + earlier.L,
    )


def filtered(p: Problem, mul: Product) -> tuple[Array, Array]:
    """Mean and covariance of each state given the values up to it."""
    found = jax.lax.associative_scan(lambda i, j: _joined(i, j, mul), _filtering_elements(p, mul))
    return found.b, found.C


def _predicted(p: Problem, m: Array, P: Array, mul: Product) -> tuple[Array, Array]:
    """Of each state but the first, given the values before it."""
    return mul(p.A, m[:-1]), mul(mul(p.A, P[:-1]), turned(p.A)) + p.Q


def _seen(h: Array, m: Array, P: Array, mul: Product) -> tuple[Array, Array]:
    """Mean and variance of h·x."""
    h = h[None, None]
    return mul(h, m)[:, 0, 0], mul(mul(h, P), turned(h))[:, 0, 0]


def log_likelihood(p: Problem, mul: Product) -> Array:
    """log p(y), from the predictions that the filtered states make."""
    m, P = _predicted(p, *filtered(p, mul), mul)
    m, P = jnp.concatenate([jnp.zeros_like(m[:1]), m]), jnp.concatenate([p.P0[None], P])
    mean, variance = _seen(p.h, m, P, mul)
    return -0.5 * jnp.sum(jnp.log(2.0 * jnp.pi * (variance + p.R)) + (p.y - mean) ** 2 / (variance + p.R))


def conditioned(p: Problem, mul: Product) -> tuple[Array, Array]:
    """Mean and variance of h·x at every state, given all values."""
    m, P = filtered(p, mul)
    mean, cov = _predicted(p, m, P, mul)
    E = mul(mul(P[:-1], turned(p.A)), inverse(cov))
    elements = Smoothing(
        E=jnp.concatenate([E, jnp.zeros_like(P[:1])]),
        g=jnp.concatenate([m[:-1] - mul(E, mean), m[-1:]]),
        L=jnp.concatenate([P[:-1] - mul(mul(E, cov), turned(E)), P[-1:]]),
    )
    found = jax.lax.associative_scan(lambda i, j: _joined_back(i, j, mul), elements, reverse=True)
    return _seen(p.h, found.g, found.L, mul)
