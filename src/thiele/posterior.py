r"""Predictions from the posterior of a chain: at any time, through the filtered state before it and what comes after.

Between states i and i + 1 the prediction N(m, P) is filtered state i moved forward to t; the later information (r, N)
is carried back from state i + 1 to t; then f(t) ~ N(H (m + P r), H (P − P N P) Hᵀ). Before the first state N(m, P) is
the prior; after the last there is nothing to carry back.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain import Posterior
from thiele.chain.matrices import dense
from thiele.chain.smoothing import Outputs
from thiele.sde import SDE
from thiele.steps import Steps

# New times are handled this many entries of a covariance at a time, so that memory does not grow with their number.
ENTRIES_AT_ONCE = 2**21


@jax.jit
def predict_latent(sde: SDE, found: Posterior, times: Float[Array, " n"], t_new: Float[Array, " q"]) -> Outputs:
    """Marginals of f at `t_new`, in any order."""
    size = max(1, min(t_new.shape[0], ENTRIES_AT_ONCE // sde.dim**2))
    pieces = -(-t_new.shape[0] // size)
    padded = jnp.pad(t_new, (0, pieces * size - t_new.shape[0]), mode="edge").reshape(pieces, size)
    mean, var = jax.lax.map(lambda t: _predict_piece(sde, found, times, t), padded)
    join = lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., : t_new.shape[0]]  # noqa: E731
    return Outputs(join(mean), join(var))


def _predict_piece(sde: SDE, found: Posterior, times: Array, t: Array) -> Outputs:
    last = jnp.searchsorted(times, t, side="right") - 1
    early, here = last < 0, jnp.maximum(last, 0)
    following = jnp.where(early, times[0], times[jnp.minimum(last + 1, times.shape[0] - 1)])

    H = jnp.asarray(sde.H)
    steps = Steps(sde)
    # To be finite in both branches, a time before the first state is moved from itself.
    start = jnp.where(early, t, times[here])
    ahead = steps(steps.prepare((start, t - start)))
    A, Q = dense(ahead.A), dense(ahead.Q)
    m = jnp.where(early, 0.0, found.m[:, here])
    P = jnp.where(early, dense(sde.covariance(t)), found.P[:, :, here])
    mean = jnp.einsum("li,ijq,jq->lq", H, A, m)
    HA = jnp.einsum("li,ijq->ljq", H, A)
    p = jnp.einsum("ijq,jkq,lkq->ilq", A, P, HA) + jnp.einsum("ijq,lj->ilq", Q, H)

    back = steps(steps.prepare((t, jnp.maximum(following - t, 0.0))))
    w = jnp.einsum("ijq,jlq->ilq", dense(back.A), p)
    r = jnp.where(early, found.r0[:, None], found.r[:, here])
    N = jnp.where(early, found.N0[:, :, None], found.N[:, :, here])
    mean = mean + jnp.einsum("ilq,iq->lq", w, r)
    var = jnp.einsum("li,imq->lmq", H, p) - jnp.einsum("ilq,ijq,jmq->lmq", w, N, w)
    return Outputs(mean, _no_negative_variance(0.5 * (var + jnp.swapaxes(var, 0, 1))))


def _no_negative_variance(var: Float[Array, "l l q"]) -> Float[Array, "l l q"]:
    """Rounding may leave a variance of −1e-17 where f is known exactly."""
    index = jnp.arange(var.shape[0])
    return var.at[index, index].max(0.0)
