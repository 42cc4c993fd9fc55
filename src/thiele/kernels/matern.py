r"""The Matérn family of half-integer order p + 1/2."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.kernels.kernel import AbstractScalarKernel, lag
from thiele.parameters import Unit, positive
from thiele.sde import AbstractBlock, Cascade


class AbstractMatern(AbstractScalarKernel):
    r"""k(τ) = σ² e^{-λ|τ|} × a polynomial of degree p in λ|τ|,  λ = √(2p+1)/ℓ; p times differentiable paths."""

    p: eqx.AbstractClassVar[int]
    variance: Array = positive(default=1.0, unit=Unit.VARIANCE)
    lengthscale: Array = positive(default=1.0, unit=Unit.TIME)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.variance * matern_correlation(self.p, self.lengthscale, lag(t, s))

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return (matern_block(self.p, self.variance, self.lengthscale),)


class Matern12(AbstractMatern):
    r"""k(τ) = σ² e^{-|τ|/ℓ}: the Ornstein-Uhlenbeck process; rough, continuous paths."""

    p: ClassVar[int] = 0


class Matern32(AbstractMatern):
    r"""k(τ) = σ² (1 + λ|τ|) e^{-λ|τ|},  λ = √3/ℓ: paths with one derivative."""

    p: ClassVar[int] = 1


class Matern52(AbstractMatern):
    r"""k(τ) = σ² (1 + λ|τ| + λ²τ²/3) e^{-λ|τ|},  λ = √5/ℓ: paths with two derivatives."""

    p: ClassVar[int] = 2


class Matern72(AbstractMatern):
    r"""k(τ) = σ² (1 + λ|τ| + 2λ²τ²/5 + λ³|τ|³/15) e^{-λ|τ|},  λ = √7/ℓ: paths with three derivatives."""

    p: ClassVar[int] = 3


def matern_rate(p: int, lengthscale: Float[Array, ""]) -> Float[Array, ""]:
    """λ = √(2p+1)/ℓ."""
    return math.sqrt(2 * p + 1) / lengthscale


def matern_correlation(p: int, lengthscale: Float[Array, ""], tau: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """p!/(2p)! e^{-a} Σ_i (p+i)!/(i! (p-i)!) (2a)^{p-i} with a = λτ, for τ >= 0."""
    f = math.factorial
    a = matern_rate(p, lengthscale) * tau
    polynomial = jnp.zeros_like(a)
    for i in range(p + 1):  # from the highest power of a down
        polynomial = polynomial * a + f(p) / f(2 * p) * f(p + i) / (f(i) * f(p - i)) * 2.0 ** (p - i)
    return polynomial * jnp.exp(-a)


def matern_block(p: int, variance: Float[Array, ""], lengthscale: Float[Array, ""]) -> Cascade:
    """The SDE of one Matérn process."""
    return Cascade(variance[None], matern_rate(p, lengthscale)[None], p)


def half_integer(order: float, owner: str) -> int:
    """p, from the order p + 1/2 that a user wrote."""
    orders = {0.5: 0, 1.5: 1, 2.5: 2, 3.5: 3}
    if order not in orders:
        raise ValueError(f"`order` of {owner} must be 0.5, 1.5, 2.5 or 3.5, got {order!r}")
    return orders[order]
