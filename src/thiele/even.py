r"""Evenly spaced inducing times, where weights are functions of the place within a segment, the same in all.

A kernel that does not change with time makes them exponentials, sines and powers of τ = (x − z_m) / (z_{m+1} − z_m),
and a polynomial through few places has them to rounding, unless much is forgotten within a segment. The weights of all
data are then one product, and so is their derivative: Chebyshev's polynomials T_k at the data, which hold no
hyperparameter and are found once, times a small table. Where they do not do, the coefficients that follow show it, and
all weights are NaN: whoever asked has to ask again without them (`thiele.search`).

ν is made of squares of weights, and has twice the degree: as T_{m+k} = 2 T_m T_k − T_{m−k}, it is p + T_m q with the
same polynomials in p and q.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.polynomial import chebyshev

from thiele.chain.types import Blocks
from thiele.kernels import AbstractKernel
from thiele.programs import compiled
from thiele.sde import SDE
from thiele.tables import as_array
from thiele.weights import Weights, owner, weights

TERMS = 24
# What they are enough for: the length of a segment times the rates λ of exp(−λ t), or the frequencies, of a kernel.
REACH = 6.0
# The most that any of the terms left out may be, in units of the prior deviation of what it adds to.
ROUNDING = 1e-13
# Of more, the polynomials would be most of what is in memory.
MOST_DATA = 2**18
_NODES = chebyshev.chebpts1(2 * TERMS)
# From values at the nodes to coefficients.
_TRANSFORM = np.linalg.inv(chebyshev.chebvander(_NODES, 2 * TERMS - 1))
# From the first 2 m + 1 coefficients, m the last degree of `TERMS`, to those of p and of q.
_LAST = TERMS - 1
_FOLDED = np.eye(TERMS, 2 * TERMS) - np.pad(np.eye(_LAST)[::-1], ((0, 1), (TERMS, 1)))
_FACTOR = np.pad(2.0 * np.eye(_LAST), ((1, 0), (TERMS, 1)))


class Polynomials(NamedTuple):
    """T_0, T_1, … at the places of some data."""

    at: Float[Array, "*data terms"]

    precomputed = True  # for the compiler: not data, of which it counts the numbers


def polynomials(time: Float[np.ndarray, "*data"], z: Float[np.ndarray, " M"]) -> Polynomials:
    """Those at times between even ones."""
    # One at the last inducing time, after which there is no segment, sees that state as those at the others do.
    before = z[np.searchsorted(z, time, side="right") - 1]
    place = np.clip((time - before) * ((len(z) - 1) / (z[-1] - z[0])), 0.0, 1.0)
    return Polynomials(jnp.asarray(chebyshev.chebvander(2.0 * place - 1.0, _LAST)))


def applies(kernel: AbstractKernel, time: Float[np.ndarray, " n"], z: Float[np.ndarray, " M"]) -> bool:
    """Whether times z are even, but for their rounding, all sorted times between them, not too many, and polynomials
    enough for the rates and frequencies of the kernel as it is. In double precision: a float32 is not worth it.
    """
    if len(z) < 2 or not 0 < len(time) <= MOST_DATA or time[0] < z[0] or time[-1] > z[-1]:
        return False
    if np.ptp(np.diff(z)) > 8.0 * np.finfo(np.float64).eps * np.max(np.abs(z)):
        return False
    if jnp.result_type(float) != jnp.float64 or not kernel.sde().stationary:
        return False
    rates = np.abs(np.linalg.eigvals(np.asarray(_drift(kernel))))
    return float(np.max(rates)) * (z[-1] - z[0]) <= REACH * (len(z) - 1)


@compiled
def _drift(kernel: AbstractKernel) -> Float[Array, "d d"]:
    return kernel.sde().F


def interpolated(sde: SDE, z: Float[Array, " M"], L: Blocks, polynomials: Polynomials) -> Weights:
    """W and ν where the polynomials are known, with roots L of the noise of even segments; NaN where they do not do."""
    (at,) = polynomials
    # Of a segment that begins at 0, as any does: far from there the nodes would be rounded.
    ends = jnp.arange(2.0) * (z[-1] - z[0]) / (z.shape[0] - 1)
    *of_w, nu = weights(sde, ends, L, jnp.array([1]), ends[1] * jnp.asarray(0.5 + 0.5 * _NODES, z.dtype)[None])
    parts, form = jax.tree.flatten(of_w)
    in_w, in_nu = (jnp.asarray(_TRANSFORM, z.dtype) @ x[0] for x in (jnp.concatenate(parts, axis=-1), nu))
    table = jnp.concatenate([in_w[:TERMS], _FOLDED @ in_nu, _FACTOR @ in_nu], axis=-1)
    enough = _negligible(sde.once(), ends[0], in_w[TERMS:], in_nu[-1])
    found = at.reshape(-1, TERMS) @ jnp.where(enough, table, jnp.nan)
    last = np.cumsum([x.shape[-1] for x in (*parts, nu)])
    *parts, p, q = jnp.split(found.reshape(*at.shape[:2], -1), last, axis=-1)
    return Weights(*form.unflatten(parts), jnp.maximum(p + at[..., -1:] * q, 0.0))


def _negligible(
    sde: SDE, t: Float[Array, ""], of_w: Float[Array, "terms 2d"], of_nu: Float[Array, " outputs"]
) -> Bool[Array, ""]:
    """Whether these coefficients move no function of time by more than rounding does, nor its variance."""
    variances = [jnp.diagonal(as_array(P), axis1=1, axis2=2).reshape(-1) for P in sde.covariance(t)]
    of_state = jnp.concatenate(variances)
    both = jnp.concatenate([of_state, jnp.ones_like(of_state)])
    prior = jnp.asarray(sde.H, of_state.dtype) @ of_state
    moved = (jnp.square(of_w) * both) @ jnp.asarray(owner(sde), both.dtype).T
    return jnp.all(moved <= ROUNDING**2 * prior) & jnp.all(jnp.abs(of_nu) <= ROUNDING * prior)
