"""A site, a marginal, and what is left of q when a site, or a part of it, is taken out (paper, section 4.2)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thiele import small

# A cavity is trusted while this share of q's precision is left in every direction; below, rounding decides.
SMALLEST_SHARE = 1e-10


class Site(NamedTuple):
    """t(f) = exp(shift·f − ½ f′ precision f): what the data say about some values, up to scale."""

    shift: Float[Array, " L"]
    precision: Float[Array, "L L"]


class Marginal(NamedTuple):
    """q(f) = N(mean, var) of the latent values at one datum, or of whatever a site is about."""

    mean: Float[Array, " L"]
    var: Float[Array, "L L"]


class Cavity(NamedTuple):
    """q with a fraction of one site taken out, whether that was possible, and how many data share that site."""

    marginal: Marginal
    proper: Bool[Array, ""]
    tied: Array | float = 1.0


class Left(NamedTuple):
    """What is left of q(w) of a segment without one datum's share of its site: `cavity`, or for rules that ask only how
    wide it is, None and by how much wider than q it is.
    """

    cavity: Marginal | None
    proper: Bool[Array, ""]
    tied: Array
    widening: Array


def widened(q: Marginal, nu: Float[Array, " L"] | None) -> Marginal:
    """The marginal of f = a + N(0, ν), given that of a; None: f is a."""
    return q if nu is None else Marginal(q.mean, q.var + jnp.diag(nu))


def through_noise(site: Site, nu: Float[Array, "*data L L"], power: float) -> Site:
    """∫ N(f; a, ν) t(f)^α df to the power 1/α: a site on f as one on a, (I + α Λ ν)⁻¹ times its parameters."""
    size = nu.shape[-1]
    spread = jnp.eye(size, dtype=nu.dtype) + power * site.precision @ nu
    if size == 1:
        return Site(site.shift / spread[..., 0], site.precision / spread)
    # One call, not two: two at a time can block a pool of two threads for ever (jaxlib 0.10).
    found = jnp.linalg.solve(spread, jnp.concatenate([site.precision, site.shift[..., None]], axis=-1))
    precision, shift = found[..., :size], found[..., size]
    return Site(shift, 0.5 * (precision + jnp.swapaxes(precision, -1, -2)))


def cavity(q: Marginal, site: Site, fraction: Array | float) -> Cavity:
    """q(f) / t(f)^fraction, normalised; q itself where the quotient would have no positive variance.

    v₋ = (I − α v Λ)⁻¹ v and m₋ = m + α v₋ (Λ m − h), which hold for a singular v too.
    """
    remaining = _smallest_share(q, site, fraction)
    proper = remaining > SMALLEST_SHARE
    alpha = jnp.where(proper, fraction, 0.0)
    var, _ = combined(q.var, site.precision, -alpha)
    return Cavity(Marginal(q.mean + alpha * var @ (site.precision @ q.mean - site.shift), var), proper)


class Combined(NamedTuple):
    """(I + α v Λ)⁻¹ v and log det(I + α v Λ): what a site to the power α makes of a covariance v."""

    var: Float[Array, "L L"]
    log_det: Float[Array, ""]


@jax.custom_jvp
def combined(var: Float[Array, "L L"], precision: Float[Array, "L L"], power: Float[Array, ""]) -> Combined:
    """A covariance and a precision together, without an inverse of either; both symmetric, α of either sign."""
    spread = jnp.eye(var.shape[0], dtype=var.dtype) + power * var @ precision
    if var.shape[0] == 1:
        return Combined(var / spread, jnp.log(spread[0, 0]))
    found, log_det = small.solve(spread, var)
    return Combined(0.5 * (found + found.T), log_det)


@combined.defjvp
def _combined_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Combined, Combined]:
    """By products alone. Derivatives of a factorisation are more of them, and several at a time, as a gradient has
    them, can block a pool of two threads for ever (jaxlib 0.10).
    """
    (_, precision, power), (dv, dL, dp) = primals, tangents
    found = combined(*primals)
    v = found.var
    # E = (I + α v Λ)⁻¹ = I − α v₊ Λ for the new v₊.
    vL = v @ precision
    E = jnp.eye(v.shape[0], dtype=v.dtype) - power * vL
    d_precision = power * dL + dp * precision
    return found, Combined(
        E @ dv @ E.T - v @ d_precision @ v,
        power * jnp.sum((precision @ E) * dv) + jnp.sum(v * d_precision),
    )


def _smallest_share(q: Marginal, site: Site, fraction: Array | float) -> Array:
    """The smallest pivot of I − α C′ Λ C, C C′ = v: about the least share of q's precision that the cavity keeps."""
    var, precision = jax.lax.stop_gradient((q.var, site.precision))
    size, eps = q.mean.shape[0], jnp.finfo(var.dtype).eps
    if size == 1:
        return 1.0 - fraction * (var @ precision)[0, 0]
    # A singular v has a factor too once rounding is added to its diagonal.
    factor = small.cholesky(var + jnp.diag(1e2 * eps * jnp.diagonal(var) + eps**1.5))
    share = jnp.eye(size, dtype=var.dtype) - fraction * factor.T @ precision @ factor
    pivots = jnp.diagonal(small.cholesky(share))
    return jnp.where(jnp.all(jnp.isfinite(pivots)), jnp.square(jnp.min(pivots)), -1.0)
