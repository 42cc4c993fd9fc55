r"""How many inducing times are enough: `inducing="auto"`.

Inducing times lose about ½ Σ Λ_n ν_n nats of log p(y), the conditional variance ν of f between two of them times the
curvature Λ of the likelihood. Averaged over a gap, ν depends on the width of the gap alone, so one curve of it tells
the widest gap whose loss per observation stays below the tolerance.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.approximate import setting
from thiele.bridges import bridges
from thiele.energies import each_datum
from thiele.inducing import Places
from thiele.kernels import AbstractKernel
from thiele.parameters import fixed
from thiele.rules import CVI, Marginal
from thiele.rules.cavity import Cavity
from thiele.series import Series

WIDTHS = 96
PLACES_IN_A_GAP = 8
SAMPLED = 2000


def enough_places(model: Any, series: Series, tolerance: float) -> Places | None:
    """Evenly spaced times that lose at most `tolerance` nats per observation; None where the data's own are as few."""
    seen = np.asarray(series.time)[series.observed]
    distinct = len(np.unique(seen))
    span = float(seen[-1] - seen[0])
    if distinct < 3:
        return None
    rows = np.flatnonzero(series.observed)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED)).astype(int)]
    some = Series(
        series.time[rows], series.y[rows], series.observed[rows], {k: v[rows] for k, v in series.covariates.items()}
    )
    widths = np.geomspace(span / (4 * distinct), span, WIDTHS)
    lost = np.asarray(loss_per_datum(model, some, jnp.asarray(widths), float(seen[0])))
    allowed = np.flatnonzero(lost <= tolerance)
    width = widths[allowed[-1]] if len(allowed) and np.all(np.isfinite(lost)) else widths[0]
    count = int(np.ceil(span / width)) + 1
    if count >= distinct:
        return None
    return Places(fixed(np.linspace(seen[0], seen[-1], count)))


@eqx.filter_jit
def loss_per_datum(model: Any, series: Series, widths: Float[Array, " k"], origin: float | Array) -> Float[Array, " k"]:
    """½ mean(Λ ν) for gaps of each width, with the curvature of every datum where the prior expects it."""
    at = setting(eqx.tree_at(lambda m: m.inducing, model, None, is_leaf=lambda x: x is None), series)
    prior = at.chain.moves.sde.covariance(jnp.asarray(series.time))
    H = jnp.asarray(at.chain.moves.sde.H)
    var = jnp.einsum("li,ijn,mj->nlm", H, at.chain.moves.sde.dense(prior), H)
    q = Marginal(jnp.zeros(var.shape[:2]), var)
    rest = Cavity(q, jnp.ones(len(series.time), bool), jnp.ones(len(series.time)))
    found = each_datum(CVI(quadrature=model.rule.quadrature).propose, at.likelihood, at.data, q, rest)
    curvature = jnp.mean(jnp.maximum(jnp.diagonal(found.site.precision, axis1=1, axis2=2), 0.0), axis=0)
    spread = jax.vmap(lambda width: mean_spread(model.kernel, origin, width))(widths)
    return 0.5 * spread @ curvature


def mean_spread(kernel: AbstractKernel, origin: Array | float, width: Float[Array, ""]) -> Float[Array, " latents"]:
    """ν of every latent function, averaged over a gap."""
    at = bridges(kernel.sde(), origin + jnp.array([0.0, 1.0]) * width)
    x = origin + width * (jnp.arange(PLACES_IN_A_GAP) + 0.5) / PLACES_IN_A_GAP
    return jnp.mean(at.project(jnp.array([1]), x[None]).nu[0], axis=-1)
