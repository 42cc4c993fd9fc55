r"""Each datum as the others predict it, without a refit: moments, tail probabilities, and the data that do not fit.

The posterior at a datum less the datum's own site is the posterior of the others there. With a site at each datum it is
taken from the fit. With inducing times it is the site that the datum itself asks for at q(f) = N(m, V),

    Λ = −∂²/∂m² E log p(y | f),    h = ∂/∂m E log p(y | f) + Λ m,

exact for Gaussian noise and where CVI has converged, up to the variance that inducing times leave unexplained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.axes import table
from thiele.fit import Fit
from thiele.likelihoods import AbstractLikelihood
from thiele.model import conditioned
from thiele.precision import double_precision
from thiele.prediction import Prediction
from thiele.programs import compiled
from thiele.rules import Site
from thiele.rules.cavity import Marginal, cavity

ROUNDS = 20  # of taking anomalies out and looking again; each costs one `condition`


class Tails(NamedTuple):
    """P(Y < y) and P(Y ≤ y) of each datum in the order of time; NaN where it is missing."""

    below: Float[np.ndarray, " n"]
    upto: Float[np.ndarray, " n"]

    @property
    def two_sided(self) -> np.ndarray:
        """The probability of a value at least as far out on either side: 2 min(P(Y ≤ y), P(Y ≥ y)), at most 1."""
        return np.minimum(1.0, 2.0 * np.minimum(self.upto, 1.0 - self.below))


@double_precision
def left_out(fit: Fit) -> Prediction:
    """What all other data say about each datum, in the order of time."""
    covariates = {name: np.asarray(value) for name, value in fit.data.covariates.items()}
    q = fit.predict(fit.clock.times(np.asarray(fit.data.time)), **covariates)
    mean, cov = np.reshape(q.mean, (len(q.mean), -1)), q.cov
    offset = np.broadcast_to(np.reshape(fit.mean, -1), (mean.shape[1],))
    if fit.inducing is None and fit.sites is not None:
        shift = np.asarray(fit.sites.shift) + np.einsum("nij,j->ni", np.asarray(fit.sites.precision), offset)
        site = Site(jnp.asarray(shift), jnp.asarray(fit.sites.precision))
    else:
        site = _own_sites(
            fit.model.likelihood, covariates, jnp.asarray(fit.data.y), jnp.asarray(mean), jnp.asarray(cov)
        )
    m, V = _without(jnp.asarray(mean), jnp.asarray(cov), site, jnp.asarray(fit.data.observed))
    return Prediction.of(
        jnp.moveaxis(m, 0, -1), jnp.moveaxis(V, 0, -1), fit.model.likelihood, covariates, q.times, q.axis
    )


@double_precision
def tails(fit: Fit, p: Prediction, seen: np.ndarray | None = None) -> Tails:
    """Where each datum lies in the distribution `p` has for it; both are in the order of time."""
    m, V = p._latent()
    y = jnp.asarray(fit.data.y)
    below, upto = _tails(fit.model.likelihood, p.covariates, y, m, V)
    seen = np.asarray(fit.data.observed) if seen is None else seen
    return Tails(*(np.where(seen, np.clip(np.asarray(x), 0.0, 1.0), np.nan) for x in (below, upto)))


@double_precision
def anomalies(fit: Fit, rate: float = 0.05, level: float = 0.95) -> Any:
    """The data that the others make unlikely, with what these expect instead, in the order of time.

    Columns: `value`, `mean`, `lower` and `upper` (which hold an observation with probability `level`), the two-sided
    `probability` of a value as far out, and the `log_density`, all given the data that are not reported themselves: a
    value far out would make its neighbours look wrong. Reported are as many of the least probable as keep the expected
    share of false alarms among them at `rate` (Benjamini and Hochberg, 1995).
    """
    if not isinstance(rate, (int, float)) or not 0.0 < rate < 1.0:
        raise ValueError(f"`rate` must be a number between 0 and 1, got {rate!r}")
    seen = np.asarray(fit.data.observed)
    p, found, out = left_out(fit), fit, np.zeros(len(seen), bool)
    if p.y_mean.ndim > 1:
        raise ValueError(f"`anomalies` needs values in an order; {type(fit.likelihood).__name__} has categories")
    for _ in range(ROUNDS):
        probability = tails(found, p, seen).two_sided
        wrong = np.zeros(len(seen), bool)
        wrong[surprising(probability, rate)] = True
        # Those that are out stay out while they are unlikely; of a run of new ones only the worst goes.
        new = (out & wrong) | _worst_of_runs(wrong & ~out, probability)
        if np.array_equal(new, out) or np.all(new[seen]):
            break
        out = new
        found = _conditioned_without(fit, out)
        p = left_out(found)
    return _reported(fit, p, out, probability, level)


def _conditioned_without(fit: Fit, out: np.ndarray) -> Fit:
    data = fit.data._replace(observed=np.asarray(fit.data.observed) & ~out)
    return conditioned(fit.model, data, fit.order, fit.clock)


def _worst_of_runs(wrong: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The least probable of each run of neighbours in time."""
    chosen = np.zeros_like(wrong)
    rows = np.flatnonzero(wrong)
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else ():
        chosen[run[np.argmin(probability[run])]] = True
    return chosen


def _reported(fit: Fit, p: Prediction, out: np.ndarray, probability: np.ndarray, level: float) -> Any:
    rows = np.flatnonzero(out)
    lower, upper = p.interval(level)
    y = np.where(fit.data.observed, fit.data.y, np.nan)
    columns = {"value": y, "mean": p.y_mean, "lower": lower, "upper": upper}
    columns |= {"probability": probability, "log_density": p.log_density(y)}
    times = fit.clock.times(np.asarray(fit.data.time)[rows])
    return table(fit.clock.axis, times, {name: column[rows] for name, column in columns.items()})


def surprising(probability: np.ndarray, rate: float) -> np.ndarray:
    """The places, in order, of the least probable values such that at most a share `rate` of them is false alarms."""
    seen = np.flatnonzero(~np.isnan(probability))
    order = seen[np.argsort(probability[seen], kind="stable")]
    allowed = rate * np.arange(1, len(order) + 1) / max(len(order), 1)
    passing = np.flatnonzero(probability[order] <= allowed)
    return np.sort(order[: passing[-1] + 1]) if len(passing) else np.zeros(0, int)


@compiled
def _own_sites(likelihood: AbstractLikelihood, extra: dict, y: Array, mean: Array, cov: Array) -> Site:
    def one(extra: dict, y: Array, m: Array, V: Array) -> Site:
        here = likelihood.at(**extra)

        def expected(m: Array) -> Array:
            flat = (m[0], V[0, 0]) if m.shape[0] == 1 else (m, V)
            return here.expected_log_prob(y, *flat)

        slope, curvature = jax.grad(expected)(m), -jax.hessian(expected)(m)
        return Site(slope + curvature @ m, curvature)

    return jax.vmap(one)(extra, y, mean, cov)


@compiled
def _without(mean: Array, cov: Array, site: Site, seen: Array) -> tuple[Array, Array]:
    def one(m: Array, V: Array, site: Site, seen: Array) -> tuple[Array, Array]:
        left = cavity(Marginal(m, V), site, 1.0).marginal
        return jnp.where(seen, left.mean, m), jnp.where(seen, left.var, V)

    return jax.vmap(one)(mean, cov, site, seen)


@compiled
def _tails(likelihood: AbstractLikelihood, extra: dict, y: Array, m: Array, V: Array) -> tuple[Array, Array]:
    def one(extra: dict, y: Array, m: Array, V: Array) -> tuple[Array, Array]:
        here = likelihood.at(**extra)
        upto = here.predictive_cdf(y, m, V)
        # Of a continuous value the two agree; the density of an integer one is its probability.
        return upto - _mass(here, y, m, V), upto

    return jax.vmap(one)(extra, y, m, V)


def _mass(likelihood: AbstractLikelihood, y: Array, m: Array, V: Array) -> Array:
    """P(Y = y): zero where y has a density."""
    return jnp.exp(likelihood.log_predictive(y, m, V)) if is_discrete(likelihood) else jnp.zeros(())


def is_discrete(likelihood: AbstractLikelihood) -> bool:
    """Whether y takes whole numbers only."""
    return not hasattr(likelihood, "support") or getattr(likelihood, "support", None) == "counts"
