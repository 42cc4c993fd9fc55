r"""Evenly spaced inducing times, where weights are functions of the place within a segment, the same in all.

A kernel that does not change with time makes them exponentials, sines and powers of τ = (x − z_m) / (z_{m+1} − z_m),
and a polynomial through few places has them to rounding, unless much is forgotten within a segment. The weights of all
data are then one product, and so is their derivative: Chebyshev's polynomials T_k at the data, which hold no
hyperparameter and are found once, times a small table. Where they do not do, the coefficients that follow show it, and
the table is NaN: whoever asked has to ask again without it (`thiele.search`).

ν is made of squares of weights, and has twice the degree: as T_{m+k} = 2 T_m T_k − T_{m−k}, it is p + T_m q with the
same polynomials in p and q.
"""

from __future__ import annotations

from functools import cache
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
from thiele.weights import Weights, by_output, inside, owner

# So many terms, and what they are enough for: the length of a segment times the rates λ of exp(−λ t), or the
# frequencies, of a kernel. Who learns needs room: up to 24 terms do for twice as much and more, 64 for a quarter more.
REACH = {12: 0.4, 16: 1.0, 24: 6.0, 64: 50.0}
# The most that any of the terms left out may be, in units of the prior deviation of what it adds to.
ROUNDING = 1e-13
# Of fewer data, weights are as soon found one by one; of more numbers, polynomials would be most of what is in memory.
LEAST_DATA, MOST_NUMBERS = 2**12, 24 * 2**18

Polynomials = Float[Array, "*data terms"]
Table = Float[Array, "terms 2d+2outputs"]


def terms_for(kernel: AbstractKernel, time: Float[np.ndarray, " n"], z: Float[np.ndarray, " M"]) -> int | None:
    """How many terms do for the kernel as it is, where weights may go by polynomials: times z are even, but for their
    rounding, and all sorted times between them, neither few nor too many. In double precision: a float32 is not worth
    it.
    """
    if len(z) < 2 or len(time) < LEAST_DATA or time[0] < z[0] or time[-1] > z[-1]:
        return None
    if np.ptp(np.diff(z)) > 8.0 * np.finfo(np.float64).eps * np.max(np.abs(z)):
        return None
    if jnp.result_type(float) != jnp.float64 or not kernel.sde().stationary:
        return None
    rates = np.abs(np.linalg.eigvals(np.asarray(_drift(kernel))))
    needed = float(np.max(rates)) * (z[-1] - z[0]) / (len(z) - 1)
    enough = (terms for terms, reach in REACH.items() if needed <= reach and terms * len(time) <= MOST_NUMBERS)
    return next(enough, None)


@compiled
def _drift(kernel: AbstractKernel) -> Float[Array, "d d"]:
    return kernel.sde().F


def terms_of(known: Polynomials | None) -> int | None:
    """How many terms weights have, where they go by way of polynomials."""
    return None if known is None else known.shape[-1]


class _Transform(NamedTuple):
    """Places in a segment; from values there to coefficients; from those of ν, of twice the last degree at the most, to
    those of p and q.
    """

    share: Float[np.ndarray, " nodes"]
    coefficients: Float[np.ndarray, "nodes nodes"]
    folded: Float[np.ndarray, "terms nodes"]
    factor: Float[np.ndarray, "terms nodes"]


@cache
def _transform(terms: int) -> _Transform:
    nodes = chebyshev.chebpts1(2 * terms)
    last = terms - 1
    return _Transform(
        0.5 + 0.5 * nodes,
        np.linalg.inv(chebyshev.chebvander(nodes, 2 * terms - 1)),
        np.eye(terms, 2 * terms) - np.pad(np.eye(last)[::-1], ((0, 1), (terms, 1))),
        np.pad(2.0 * np.eye(last), ((1, 0), (terms, 1))),
    )


def polynomials(time: Float[np.ndarray, "*data"], z: Float[np.ndarray, " M"], terms: int) -> Polynomials:
    """T_0, T_1, … at the places of times between even ones."""
    # One at the last inducing time, after which there is no segment, sees that state as those at the others do.
    before = z[np.searchsorted(z, time, side="right") - 1]
    place = np.clip((time - before) * ((len(z) - 1) / (z[-1] - z[0])), 0.0, 1.0)
    return jnp.asarray(chebyshev.chebvander(2.0 * place - 1.0, terms - 1))


def table(sde: SDE, step: Float[Array, ""], L: Blocks, terms: int) -> Table:
    """The coefficients of W, p and q in a segment of this length, with a root L of its noise; NaN where they do not
    do.
    """
    at = _transform(terms)
    *of_w, nu = inside(sde, step, L, at.share)
    values = jnp.concatenate(jax.tree.leaves(of_w), axis=-1), nu
    in_w, in_nu = (jnp.asarray(at.coefficients, step.dtype) @ x[0] for x in values)
    found = jnp.concatenate([in_w[:terms], at.folded @ in_nu, at.factor @ in_nu], axis=-1)
    return jnp.where(_negligible(sde.once(), in_w[terms:], in_nu[-1]), found, jnp.nan)


def interpolated(sde: SDE, table: Table, at: Polynomials) -> Weights:
    """W and ν of tiles of data."""
    once = sde.once()
    sizes = [block.count * block.dim for block in once.blocks]
    found = (at.reshape(-1, at.shape[-1]) @ table).reshape(*at.shape[:2], -1)
    *parts, p, q = jnp.split(found, np.cumsum([*sizes, *sizes, len(once.outputs)]), axis=-1)
    state, noise = (by_output(once, some) for some in (parts[: len(sizes)], parts[len(sizes) :]))
    return Weights(state, noise, jnp.maximum(p + at[..., -1:] * q, 0.0))


def _negligible(sde: SDE, of_w: Float[Array, "terms 2d"], of_nu: Float[Array, " outputs"]) -> Bool[Array, ""]:
    """Whether these coefficients move no function of time by more than rounding does, nor its variance."""
    variances = [jnp.diagonal(as_array(P), axis1=1, axis2=2).reshape(-1) for P in sde.covariance(jnp.zeros(()))]
    of_state = jnp.concatenate(variances)
    both = jnp.concatenate([of_state, jnp.ones_like(of_state)])
    prior = jnp.asarray(sde.H, of_state.dtype) @ of_state
    moved = (jnp.square(of_w) * both) @ jnp.asarray(owner(sde), both.dtype).T
    return jnp.all(moved <= ROUNDING**2 * prior) & jnp.all(jnp.abs(of_nu) <= ROUNDING * prior)
