r"""Tied sites updated one segment after the other, each in the light of those before it (paper, section 4.4).

The backward filter holds what the old sites of later segments say about each inducing state. On the way forward every
segment meets it with the prediction from the new sites before: that is q of the segment, from which its data make a new
site. One pass costs as much as a parallel sweep, but its M steps follow one another.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.bridges import Bridges
from thiele.chain.matrices import dense
from thiele.chain.two_filters import backward_information
from thiele.likelihoods import AbstractLikelihood
from thiele.rules.base import AbstractLocalRule
from thiele.rules.cavity import Marginal, Site
from thiele.segments import absorb
from thiele.tied import Tied, tile_sums
from thiele.tiles import Cut


def sweep_in_sequence(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    chain: Bridges,
    data: Tied,
    sites: Site,
    step: Array | float | None = None,
) -> Site:
    """New sites of all segments, from the first to the last. `data` holds one tile for each segment, in their order."""
    if data.segment.shape != (1, chain.segments):
        raise ValueError(
            f"`data` must hold one tile for each of the {chain.segments} segments, got {data.segment.shape[-1]} tiles "
            f"in {data.segment.shape[0]} groups; `inducing.tie(..., whole=True)` makes them"
        )
    share = rule.step if step is None else step
    d = chain.sde.dim
    absorbed = absorb(chain.steps, sites)
    later = backward_information(absorbed.chain, absorbed.information)
    # Segment m is followed by state m + 1; the last by nothing.
    J_later = jnp.pad(jnp.moveaxis(later.J, -1, 0), [(0, 1), (0, 0), (0, 0)])
    h_later = jnp.pad(later.h.T, [(0, 1), (0, 0)])
    to_next = jnp.moveaxis(jnp.concatenate([dense(chain.A), dense(chain.L)], axis=1), -1, 0)
    tiles = data.tiles(chain, Cut(data.segment[0], data.start[0], data.length[0]))

    def advance(before: Marginal, row: tuple) -> tuple[Marginal, Site]:
        B, J_after, h_after, tile, site, tied = row
        prior = Marginal(jnp.pad(before.mean, (0, d)), jax.scipy.linalg.block_diag(before.var, jnp.eye(d)))
        q = with_site(with_site(prior, site), Site(B.T @ h_after, B.T @ J_after @ B))
        one = lambda x: jax.tree.map(lambda leaf: leaf[None], x)  # noqa: E731
        own = Tied.left_of(rule, *one((q, site, tied)))
        seen = chain.project(*one((tile.segment, tile.time, tile.space)))
        _, wanted, _ = tile_sums(rule, likelihood, one(tile), seen, one(q), own, one(site))
        new = jax.tree.map(lambda old, x: jnp.where(tied > 0, old + share * (x[0] - old), old), site, wanted)
        known = with_site(prior, new)
        return Marginal(B @ known.mean, B @ known.var @ B.T), new

    nothing = Marginal(jnp.zeros(d), jnp.zeros((d, d)))
    _, new = jax.lax.scan(advance, nothing, (to_next, J_later, h_later, tiles, sites, data.tied))
    return new


def with_site(q: Marginal, site: Site) -> Marginal:
    """q(w) t(w), normalised: (I + Σ J)⁻¹ Σ and (I + Σ J)⁻¹ (μ + Σ h), for a Σ that may be singular."""
    size = q.mean.shape[0]
    widened = jnp.eye(size, dtype=q.var.dtype) + q.var @ site.precision
    solved = jnp.linalg.solve(widened, jnp.concatenate([q.var, (q.mean + q.var @ site.shift)[:, None]], axis=1))
    var: Float[Array, "D D"] = solved[:, :size]
    return Marginal(solved[:, size], 0.5 * (var + var.T))
