"""Elementary functions whose values and first two derivatives stay finite for any latent value."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import erfcx, gammaln
from jaxtyping import Array, Float
from numpy.polynomial import Chebyshev, Polynomial

from thiele.quadrature import standard_deviation

# artanh(√w)/√w = 1 + w g(w) for 0 ≤ w ≤ 1/9: g from w^8 down, as exact as 1 needs it.
_G = Chebyshev.interpolate(lambda w: sum(w**k / (2 * k + 3) for k in range(20)), 8, domain=[0.0, 1.0 / 9.0])
_ARTANH = _G.convert(kind=Polynomial).coef[::-1].tolist()


def log_cap(dtype: jnp.dtype) -> float:
    """The largest exponent used: exp of it can still be squared (319 in double precision, 39 in single)."""
    return 0.45 * math.log(float(jnp.finfo(dtype).max))


@jax.custom_jvp
def capped_exp(x: Array) -> Array:
    """exp(x) up to x = c, its tangent exp(c) (1 + x - c) beyond, with c = `log_cap`.

    A clipped value would have a zero derivative and an overflowing one none; the tangent keeps the slope's sign, so
    that an optimiser that strays this far is sent back.
    """
    return _slope_of_capped_exp(x) * (1.0 + jnp.maximum(x - _cap(x), 0.0))


@jax.custom_jvp
def _slope_of_capped_exp(x: Array) -> Array:
    return jnp.exp(jnp.minimum(x, _cap(x)))


@capped_exp.defjvp
def _capped_exp_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return capped_exp(x), _slope_of_capped_exp(x) * dx


@_slope_of_capped_exp.defjvp
def _slope_of_capped_exp_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    slope = _slope_of_capped_exp(x)
    return slope, jnp.where(x < _cap(x), slope, 0.0) * dx


def _cap(x: Array) -> float:
    return log_cap(jnp.result_type(x, 1.0))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)). One exponential serves the value and its derivatives; JAX's own takes one for each."""
    return _softplus_and_exponential(x)[0]


def softplus_and_slope(x: Array) -> tuple[Array, Array]:
    """The same, and its slope 1/(1 + exp(−x)), by one exponential."""
    value, t = _softplus_and_exponential(x)
    return value, jnp.where(x > 0.0, 1.0, t) / (1.0 + t)


def _softplus_and_exponential(x: Array) -> tuple[Array, Array]:
    """log(1 + exp(x)) and exp(−|x|)."""
    # Not |x|, whose slope at zero is neither of its two.
    right = x > 0.0
    t = jnp.exp(jnp.where(right, -x, x))
    return jnp.where(right, x, 0.0) + log_one_plus(t), t


@jax.custom_jvp
def log_one_plus(t: Array) -> Array:
    """log(1 + t) for 0 ≤ t ≤ 1, as 2 artanh(t / (2 + t)): plain arithmetic, which the compiler writes for many at once;
    a logarithm on a CPU it calls for one after the other, for three times as long.
    """
    s = t / (2.0 + t)
    w, twice = jnp.square(s), 2.0 * s
    series = jnp.full_like(w, _ARTANH[0])
    for coefficient in _ARTANH[1:]:
        series = series * w + coefficient
    return twice + twice * (w * series)


@log_one_plus.defjvp
def _log_one_plus_jvp(primals, tangents):
    (t,), (dt,) = primals, tangents
    return log_one_plus(t), dt / (1.0 + t)


def log_sigmoid(x: Array) -> Array:
    """log 1/(1 + exp(−x))."""
    return -softplus(-x)


def log_softplus(x: Array) -> Array:
    """log log(1 + exp(x)), which tends to x on the left and to log x on the right."""
    value, t = _softplus_and_exponential(x)
    tail = x < -18.0
    return jnp.where(tail, x - 0.5 * t, jnp.log(jnp.where(tail, 1.0, value)))


def scaled_erfc(x: Array) -> Array:
    """exp(x²) erfc(x) for x ≥ 0.

    The library's function multiplies the two, and erfc underflows a little before its own switch to the asymptotic
    series, where it then returns zero; this one switches early. The terms left out are below rounding.
    """
    switch = 20.0 if x.dtype == jnp.float64 else 8.0
    far = jnp.maximum(x, switch)
    t, series = 0.5 / jnp.square(far), jnp.ones_like(far)
    for odd in range(15, 0, -2):
        series = 1.0 - odd * t * series
    return jnp.where(x > switch, series / (math.sqrt(math.pi) * far), erfcx(jnp.minimum(x, switch)))


@jax.custom_jvp
def hazard(x: Array) -> Array:
    """φ(x)/Φ(x), the slope of log Φ: about -x far on the left, 0 far on the right."""
    left = jnp.minimum(x, 0.0)
    right = jnp.maximum(x, 0.0)
    below = math.sqrt(2.0 / math.pi) / scaled_erfc(-left / math.sqrt(2.0))
    density = jnp.exp(-0.5 * jnp.square(right)) / math.sqrt(2.0 * math.pi)
    return jnp.where(x < 0.0, below, density / jax.scipy.special.ndtr(right))


@hazard.defjvp
def _hazard_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    h = hazard(x)
    return h, -h * (x + h) * dx


@jax.custom_jvp
def log_ndtr(x: Array) -> Array:
    """log Φ(x). Scaling the complementary error function keeps its derivatives accurate far in the left tail."""
    left = jnp.minimum(x, 0.0)
    below = jnp.log(0.5 * scaled_erfc(-left / math.sqrt(2.0))) - 0.5 * jnp.square(left)
    return jnp.where(x < 0.0, below, jnp.log1p(-jax.scipy.special.ndtr(-jnp.maximum(x, 0.0))))


@log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return log_ndtr(x), hazard(x) * dx


def log_rising(r: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """log Γ(r + y)/Γ(r) for y ≥ 0; Stirling's series for large r, where the two logarithms would cancel."""
    large = r > 1e3
    big, small = jnp.where(large, r, 1e3), jnp.where(large, 1.0, r)
    top = big + y
    series = (big - 0.5) * jnp.log1p(y / big) + y * jnp.log(top) - y + (1.0 / top - 1.0 / big) / 12.0
    return jnp.where(large, series, gammaln(small + y) - gammaln(small))


def normal_log_density(residual: Array, variance: Array) -> Array:
    """log N(residual; 0, variance)."""
    return -0.5 * (jnp.log(2.0 * math.pi * variance) + jnp.square(residual) / variance)


def expected_normal_log_density(residual: Array, variance: Array, spread: Array) -> Array:
    """E log N(residual + e; 0, variance), e ~ N(0, spread)."""
    return normal_log_density(residual, variance) - 0.5 * spread / variance


def log_expected_normal_power(residual: Array, variance: Array, spread: Array, power: Array) -> Array:
    """log E N(residual + e; 0, variance)^power, e ~ N(0, spread)."""
    widened = variance + power * spread
    quadratic = power * jnp.square(residual) / widened
    return 0.5 * (-power * jnp.log(2.0 * math.pi * variance) - jnp.log(widened / variance) - quadratic)


def normal_quantile(p: Array, mean: Array, var: Array) -> Array:
    """The p quantile of N(mean, var)."""
    return mean + standard_deviation(var) * jax.scipy.special.ndtri(p)
