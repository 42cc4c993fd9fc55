r"""How many inducing times are enough: `inducing="auto"`.

Inducing times lose about ½ Σ Λ_n ν_n nats of log p(y), the conditional variance ν of f between two of them times the
curvature Λ of the likelihood. Averaged over a gap, ν depends on the width of the gap alone, so one curve of it tells
the widest gap whose loss per observation stays below the tolerance.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.bridges import bridges
from thiele.energies import Data, each_datum
from thiele.inducing import Places
from thiele.kernels import AbstractKernel
from thiele.likelihoods import AbstractLikelihood, Shifted
from thiele.mixtures import mixing
from thiele.parameters import fixed
from thiele.programs import compiled
from thiele.rules import CVI, Marginal, PowerEP
from thiele.rules.cavity import Cavity
from thiele.sequence import with_site
from thiele.series import Series
from thiele.weights import weights

WIDTHS = 96
PLACES_IN_A_GAP = 8
SAMPLED = 2000


def enough_places(model: Any, series: Series, tolerance: float, least: int = 2) -> Places | None:
    """Evenly spaced times, at least `least`, that lose at most `tolerance` nats per observation; None where the data's
    own are as few.
    """
    seen = np.asarray(series.time)[series.observed]
    distinct = len(np.unique(seen))
    span = float(seen[-1] - seen[0])
    if distinct < 3:
        return None
    rows = np.flatnonzero(series.observed)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED)).astype(int)]
    some = Series(
        series.time[rows],
        series.y[rows],
        series.observed[rows],
        {k: v[rows] for k, v in series.covariates.items()},
        space=None if series.space is None else series.space[rows],
    )
    widths = np.geomspace(span / (4 * distinct), span, WIDTHS)
    lost = np.asarray(loss_per_datum(model, some, jnp.asarray(widths), float(seen[0])))
    allowed = np.flatnonzero(lost <= tolerance)
    width = widths[allowed[-1]] if len(allowed) and np.all(np.isfinite(lost)) else widths[0]
    count = max(int(np.ceil(span / width)) + 1, least)
    if count >= distinct:
        return None
    return Places(fixed(np.linspace(seen[0], seen[-1], count)))


@compiled
def loss_per_datum(model: Any, series: Series, widths: Float[Array, " k"], origin: float | Array) -> Float[Array, " k"]:
    """½ mean(Λ ν) for gaps of each width, with the curvature of every datum where the prior expects it."""
    likelihood = Shifted(model.likelihood, model.mean.value, model.kernel.outputs_observed)
    data = Data(series.y, series.observed, series.covariates)
    var, shares = prior_and_shares(model.kernel, series)
    quadrature = model.rule.quadrature

    def curvature_of(likelihood: AbstractLikelihood, y: Array, var: Array) -> Array:
        """Λ under the prior as this datum alone would change it: a count of 100 has more than the prior expects."""
        prior = Marginal(jnp.zeros(var.shape[0]), var)
        whole = Cavity(prior, jnp.array(True))
        seen = with_site(prior, PowerEP(quadrature=quadrature).propose(likelihood, y, prior, whole).site)
        found = CVI(quadrature=quadrature).propose(likelihood, y, seen, Cavity(seen, jnp.array(True)))
        return jnp.maximum(jnp.diagonal(found.site.precision), 0.0)

    curvature = jnp.mean(each_datum(curvature_of, likelihood, data, var), axis=0)
    spread = jax.vmap(lambda width: mean_spread(model.kernel, origin, width))(widths)
    return 0.5 * spread @ shares.T @ curvature


def prior_and_shares(
    kernel: AbstractKernel, series: Series
) -> tuple[Float[Array, "n L L"], Float[Array, "latents outputs"]]:
    """The prior covariance of the latent values at each datum, and how much of the variance of each function of time a
    latent function has on average: 1 of its own in time alone, |w|² of those that it mixes in space.
    """
    times = jnp.asarray(series.time)
    sde = kernel.sde()
    if series.space is None:
        H = jnp.asarray(sde.H)
        return jnp.einsum("li,ijn,mj->nlm", H, sde.dense(sde.covariance(times)), H), jnp.eye(kernel.latents)
    places = jnp.asarray(series.space)
    inputs = jnp.concatenate([times[:, None], places], axis=1)
    var = jnp.reshape(kernel.covariance(inputs, inputs), (kernel.latents, -1))
    w, _ = mixing(kernel, times, places)
    first = np.concatenate([[0], np.cumsum([output.copies for output in sde.outputs])])
    squares = jnp.mean(w**2, axis=0)
    shares = [jnp.sum(squares[:, a:b], axis=1) for a, b in itertools.pairwise(first)]
    return jnp.einsum("ln,lm->nlm", var, jnp.eye(kernel.latents)), jnp.stack(shares, axis=1)


def mean_spread(kernel: AbstractKernel, origin: Array | float, width: Float[Array, ""]) -> Float[Array, " outputs"]:
    """ν of every function of time, averaged over a gap."""
    at = bridges(kernel, origin + jnp.array([0.0, 1.0]) * width)
    x = origin + width * (jnp.arange(PLACES_IN_A_GAP) + 0.5) / PLACES_IN_A_GAP
    return jnp.mean(weights(at.sde, at.z, at.L, jnp.array([1]), x[None]).nu[0], axis=0)
