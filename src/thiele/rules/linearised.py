"""The site of a datum that is taken to be linear in f with Gaussian noise: common ground of PL and EKS."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele import small
from thiele.rules.base import Proposal, Site, if_finite


def linear_gaussian_site(
    at: Float[Array, " L"], slope: Float[Array, "k L"], noise: Float[Array, "k k"], residual: Float[Array, " k"]
) -> Proposal:
    """precision = Ω′ Σ⁻¹ Ω,  shift = precision m + Ω′ Σ⁻¹ r  for y ≈ ω + Ω (f − m) + N(0, Σ) (paper, appendix C.5).

    Positive semidefinite as it stands. Directions in which the noise vanishes are left out: there a label's residual
    and slope vanish too. Infinite noise means that the datum says nothing.
    """
    k = noise.shape[0]
    if k == 1:
        weight = 1.0 / jnp.maximum(noise, jnp.finfo(noise.dtype).tiny)
        half = jnp.sqrt(weight) * slope
        pull = weight[0, 0] * residual
    else:
        values, vectors = small.eigh(0.5 * (noise + noise.T))
        kept = values > 1e2 * jnp.finfo(noise.dtype).eps * values[-1]
        root = jnp.where(kept, 1.0 / jnp.sqrt(jnp.where(kept, values, 1.0)), 0.0)[:, None] * vectors.T
        half = root @ slope
        pull = root.T @ (root @ residual)
    precision = half.T @ half
    return if_finite(Site(precision @ at + slope.T @ pull, precision), jnp.array(False))


def as_matrices(
    slope: Array, noise: Array, residual: Array, latents: int
) -> tuple[Float[Array, "k L"], Float[Array, "k k"], Float[Array, " k"]]:
    """Ω, Σ and r with both axes, for a statistic that is one number or a vector."""
    k = max(jnp.size(residual), 1)
    return jnp.reshape(slope, (k, latents)), jnp.reshape(noise, (k, k)), jnp.reshape(residual, (k,))
