"""The floor of one training iteration: the operations that it cannot do without, at the rate of a large product.

An iteration smooths once, for the sites and for the gradient of the energy, and takes the gradient of log Z, which is
about half a smoother again. What is counted, in multiplications and additions:

- full, for each datum: predictions A P Aᵀ with blocks of b rows cost 4 b d², an update by L outputs 4 L d², forward and
  as much backward: 8 (b + L) d²;
- sparse, for each segment: 21 products of d x d matrices, 42 d³: 4 integrate the noise out, 6 filter, 4 go back, 7 make
  the covariance of (u, e); and for each datum W Σ Wᵀ and its share of the site, each entry of (u, e) bearing on one
  latent: 2 (2 d)² each;
- for each datum 20 nodes of 10 operations.

The rate is that of one product of large matrices in this process. Small products never reach it: the floor is what no
program can beat, not what one can expect.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SMOOTHERS = 1.5
OF_NODES = 20 * 10
SIDE, REPEATS = 1500, 5


class Sizes(NamedTuple):
    """Data, inducing times (0: a site for each datum), states, latent functions, rows of the largest block."""

    n: int
    m: int
    d: int
    latents: int
    block: int


def operations(sizes: Sizes) -> float:
    """Of one iteration at the least."""
    n, m, d, latents, block = sizes
    likelihood = n * OF_NODES
    if not m:
        return SMOOTHERS * n * 8.0 * (block + latents) * d**2 + likelihood
    # To the data and back for the update of the sites, and back once more for the gradient.
    data = n * 3.0 * 2.0 * (2.0 * d) ** 2
    return SMOOTHERS * (m + 1) * 42.0 * d**3 + data + likelihood


def rate() -> float:
    """Operations a second of one large product in double precision, on all cores."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).standard_normal((SIDE, SIDE)))
        product = jax.jit(jnp.matmul)
        jax.block_until_ready(product(x, x))
        taken = []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            jax.block_until_ready(product(x, x))
            taken.append(time.perf_counter() - begun)
    return 2.0 * SIDE**3 / min(taken)


def seconds(sizes: Sizes) -> float:
    """The floor."""
    return operations(sizes) / rate()
