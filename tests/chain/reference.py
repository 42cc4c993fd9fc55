"""The joint Gaussian of all states, written out: the truth for chains of a few states. Plain JAX, so that its
derivatives are the truth for derivatives."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag

from thiele.chain import Marginals
from thiele.chain.matrices import dense


class Joint(NamedTuple):
    """x = (x_0, …, x_{n-1}) ~ N(mean, cov), with exp(shift·f − ½ (f − centre)ᵀ precision (f − centre)) on f = H x."""

    mean: jax.Array
    cov: jax.Array
    H: jax.Array
    precision: jax.Array
    shift: jax.Array
    centre: jax.Array


def joint(chain, info, pairs=None):
    """`chain` is tabulated; `info` is on its states and `pairs` on its pairs of neighbours."""
    d, n = chain.mean.shape[0], info.precision.shape[-1]
    H = jnp.kron(jnp.eye(n), np.eye(d) if info.H is None else info.H)
    Lam = block_diag(*jnp.moveaxis(info.precision, -1, 0))
    flat = lambda x: jnp.zeros(Lam.shape[0]) if x is None else x.T.ravel()  # noqa: E731
    shift, centre = flat(info.shift), flat(info.centre)
    if pairs is not None:
        J, h = jnp.zeros((n * d, n * d)), jnp.zeros(n * d)
        for i in range(n - 1):
            rows = slice(i * d, (i + 2) * d)
            J, h = J.at[rows, rows].add(pairs.precision[..., i]), h.at[rows].add(pairs.shift[..., i])
        H, Lam = jnp.concatenate([H, jnp.eye(n * d)]), block_diag(Lam, J)
        shift, centre = jnp.concatenate([shift, h]), jnp.concatenate([centre, jnp.zeros_like(h)])
    return Joint(*prior(chain, n), H, Lam, shift, centre)


def prior(chain, n):
    """Mean and covariance of all states."""
    A, Q, b = dense(chain.inputs.A), dense(chain.inputs.Q), chain.inputs.b
    means, covs = [chain.mean], [[dense(chain.cov)]]
    for i in range(n - 1):
        means.append(A[..., i] @ means[-1] + (0.0 if b is None else b[:, i]))
        across = [A[..., i] @ block for block in covs[-1]]
        for row, block in zip(covs, across, strict=True):
            row.append(block.T)
        covs.append([*across, across[-1] @ A[..., i].T + Q[..., i]])
    return jnp.concatenate(means), jnp.block(covs)


def log_normaliser(chain, info, pairs=None):
    at = joint(chain, info, pairs)
    G, mu = at.H @ at.cov @ at.H.T, at.H @ at.mean
    B, v = jnp.eye(len(G)) + at.precision @ G, at.centre - mu
    Mv, Bh = jnp.linalg.solve(B, jnp.stack([at.precision @ v, at.shift], axis=1)).T
    gain = at.shift @ (mu + G @ (Mv + 0.5 * Bh)) - 0.5 * v @ Mv
    return gain - 0.5 * jnp.linalg.slogdet(B)[1]


def moments(chain, info, pairs=None):
    """Posterior moments of the states and of neighbours."""
    at = joint(chain, info, pairs)
    d = chain.mean.shape[0]
    n = len(at.mean) // d
    KH = at.cov @ at.H.T
    B = jnp.eye(KH.shape[1]) + at.precision @ at.H @ KH
    pull = at.precision @ (at.centre - at.H @ at.mean) + at.shift
    mean = (at.mean + KH @ jnp.linalg.solve(B, pull)).reshape(n, d)
    cov = (at.cov - KH @ jnp.linalg.solve(B, at.precision @ KH.T)).reshape(n, d, n, d)
    cross = [cov[i + 1, :, i] for i in range(n - 1)]
    return Marginals(
        mean=mean.T,
        cov=jnp.stack([cov[i, :, i] for i in range(n)], axis=-1),
        cross=jnp.stack(cross, axis=-1) if cross else jnp.zeros((d, d, 0)),
    )
