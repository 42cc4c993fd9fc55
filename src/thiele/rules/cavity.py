"""What is left of q when a datum's site, or a part of it, is taken out (paper, section 4.2)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from thiele.quadrature import semidefinite_cholesky
from thiele.rules.base import Marginal, Site

# A cavity is trusted while this share of q's precision is left in every direction; below, rounding decides.
SMALLEST_SHARE = 1e-10


class Cavity(NamedTuple):
    """q with a fraction of one site taken out, and whether that was possible."""

    marginal: Marginal
    proper: Bool[Array, ""]


def cavity(q: Marginal, site: Site, fraction: float) -> Cavity:
    """q(f) / t(f)^fraction, normalised; q itself where the quotient would have no positive variance.

    v₋ = (I − α v Λ)⁻¹ v and m₋ = m + α v₋ (Λ m − h), which hold for a singular v too.
    """
    remaining = _smallest_share(q, site, fraction)
    proper = remaining > SMALLEST_SHARE
    alpha = jnp.where(proper, fraction, 0.0)
    share = jnp.eye(q.mean.shape[0], dtype=q.var.dtype) - alpha * q.var @ site.precision
    var = q.var / share if q.mean.shape[0] == 1 else jnp.linalg.solve(share, q.var)
    var = 0.5 * (var + var.T)
    return Cavity(Marginal(q.mean + alpha * var @ (site.precision @ q.mean - site.shift), var), proper)


def _smallest_share(q: Marginal, site: Site, fraction: float) -> Array:
    """The smallest eigenvalue of I − α C′ Λ C, C C′ = v: the share of q's precision that the cavity keeps."""
    var, precision = jax.lax.stop_gradient((q.var, site.precision))
    if q.mean.shape[0] == 1:
        return 1.0 - fraction * (var @ precision)[0, 0]
    factor = semidefinite_cholesky(var)
    return 1.0 - fraction * jnp.linalg.eigvalsh(factor.T @ precision @ factor)[-1]
