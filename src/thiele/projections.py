"""Latent values as linear functions of the state and the noise of their segments, f = W w + N(0, ν), at many data.

Each entry of w bears on one latent function, so W has one number in each column. Products with it are products with
these numbers and sums over the columns of each latent function: of six, five sixths of what a full W would cost.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.rules.cavity import Marginal, Site


class Projection(eqx.Module):
    """The latent values of some tiles; `of` says on which latent function each entry of w bears."""

    w: Float[Array, "tiles width D"]
    nu: Float[Array, "tiles width L"]
    of: tuple[int, ...] = eqx.field(static=True)

    @property
    def owner(self) -> Float[Array, "L D"]:
        """1 where an entry of w bears on a latent function."""
        return jnp.asarray(np.equal(np.arange(self.nu.shape[-1])[:, None], self.of), self.w.dtype)

    @property
    def W(self) -> Float[Array, "tiles width L D"]:  # noqa: N802
        """With its zeros."""
        return self.owner * self.w[:, :, None]

    def marginals(self, of_segment: Marginal) -> Marginal:
        """N(W μ, W Σ W' + ν) of every datum, (tiles, width, L) and (tiles, width, L, L)."""
        mean = (self.w * of_segment.mean[:, None]) @ self.owner.T
        return Marginal(mean, projected_variance(self.owner, self.w, of_segment.var) + self.spread())

    def spread(self) -> Float[Array, "tiles width L L"]:
        """ν as matrices."""
        return jnp.einsum("ktl,lm->ktlm", self.nu, jnp.eye(self.nu.shape[-1], dtype=self.nu.dtype))

    def gathered(self, sites: Site) -> Site:
        """Σ W' h and Σ W' Λ W over the data of each tile, from sites on the latent values."""
        shift, precision = sites
        W = self.W
        h = jnp.einsum("ktld,ktl->kd", W, shift)
        return Site(h, jnp.einsum("ktld,ktle->kde", W, (precision @ self.owner) * self.w[:, :, None]))


@jax.custom_jvp
def projected_variance(
    owner: Float[Array, "L D"], w: Float[Array, "tiles width D"], var: Float[Array, "tiles D D"]
) -> Float[Array, "tiles width L L"]:
    """W Σ W' of every datum."""
    return _between_latents(owner, w, _seen_through(owner, w, var))


@projected_variance.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    # Σ is symmetric: its product with W serves the value and the derivative in W.
    (owner, w, var), (_, dw, dvar) = primals, tangents
    spread = _seen_through(owner, w, var)
    half = _between_latents(owner, dw, spread)
    moved = _between_latents(owner, w, _seen_through(owner, w, dvar))
    return _between_latents(owner, w, spread), half + jnp.swapaxes(half, -1, -2) + moved


def _seen_through(owner: Array, w: Array, var: Array) -> Float[Array, "tiles width L D"]:
    """W Σ."""
    return jnp.einsum("ktle,ked->ktld", owner * w[:, :, None], var)


def _between_latents(owner: Array, w: Array, spread: Float[Array, "tiles width L D"]) -> Array:
    """X W' for some X."""
    return (spread * w[:, :, None]) @ owner.T
