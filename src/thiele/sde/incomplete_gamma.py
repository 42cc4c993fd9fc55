r"""γ(k, x) = ∫₀ˣ u^{k-1} e^{-u} du for k = 1 … n, each to full relative accuracy, with one exponential."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def lower_gammas(n: int, x: Float[Array, "*any"]) -> list[Float[Array, "*any"]]:
    """[γ(1, x), …, γ(n, x)] for x >= 0 not so large that xⁿ overflows."""
    powers = _powers(n + 1, x)
    decay = jnp.exp(-x)
    # Below n/2 the power series, above it the complement, which there loses less than a factor 20.
    series = powers[n] * decay * _series(n, x)
    tail = decay * _horner([1.0 / math.factorial(i) for i in range(n)], x)
    gammas = [jnp.where(x < 0.5 * n, series, math.factorial(n - 1) * (1.0 - tail))]
    for k in range(n - 1, 0, -1):
        gammas.append((gammas[-1] + powers[k] * decay) / k)  # all terms positive: downwards is stable
    return gammas[::-1]


@lower_gammas.defjvp
def _lower_gammas_jvp(n: int, primals: tuple, tangents: tuple) -> tuple[list, list]:
    # The derivative is the integrand. Differentiating the series would keep all of its partial sums.
    (x,), (dx,) = primals, tangents
    decay = jnp.exp(-x)
    return lower_gammas(n, x), [power * decay * dx for power in _powers(n, x)]


def _powers(count: int, x: Float[Array, "*any"]) -> list[Float[Array, "*any"]]:
    """[1, x, x², …], by multiplication so that the derivative at 0 is finite."""
    powers = [jnp.ones_like(x)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return powers


def _series(n: int, x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """The sum of x^j / (n (n+1) … (n+j)), to rounding for x <= n/2."""
    coefficients = [1.0 / n]
    while coefficients[-1] * (0.5 * n) ** (len(coefficients) - 1) > 2.0**-54 * coefficients[0]:
        coefficients.append(coefficients[-1] / (n + len(coefficients)))
    return _horner(coefficients, x)


def _horner(coefficients: list[float], x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total
