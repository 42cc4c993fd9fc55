r"""Is the uncertainty honest? Where each datum fell in the distribution that was predicted for it.

The probability integral transform u = P(Y ≤ y) is uniform if predictions are right. An integer y has a step there: it
is spread evenly from P(Y < y) to P(Y ≤ y) (Czado, Gneiting and Held, 2009). Calibration is that of each datum given
all others. What is left over from one time to the next is judged by predictions one step ahead, because errors of data
given all others hang together even under a true model, and errors one step ahead do not.
"""

from __future__ import annotations

import itertools
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import chdtrc, ndtri

from thiele.chain.matrices import dense
from thiele.fit import Fit
from thiele.kernels import AbstractKernel
from thiele.left_out import Tails, left_out, tails
from thiele.posterior import ChainPosterior
from thiele.precision import double_precision
from thiele.prediction import Prediction
from thiele.programs import compiled
from thiele.steps import Steps

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
BINS = 10
LAGS = 20
SUSPICIOUS = 0.01  # a test speaks up below this probability
FEW = 30  # data below which nothing can be said


class Check(NamedTuple):
    """Calibration of a fit. `print` it, or draw it with `thiele.plot.plot_check`."""

    n: int
    histogram: Float[np.ndarray, " bins"]
    """The share of data in each bin of P(Y ≤ y); all equal if predictions are right."""
    levels: Float[np.ndarray, " k"]
    coverage: Float[np.ndarray, " k"]
    """The share of data inside the central interval of each level."""
    calibration_p: float
    """How probable a histogram as uneven as this is under right predictions."""
    autocorrelation: Float[np.ndarray, " lags"]
    """Of normal scores one step ahead (`ahead`), or of each datum in the posterior of all."""
    autocorrelation_p: float
    ahead: bool
    density: float
    """The mean leave-one-out log density."""
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.n} observations, each predicted from all others; mean log density {self.density:.3f}"]
        shares = (f"{100 * a:g} %: {100 * b:.1f} %" for a, b in zip(self.levels, self.coverage, strict=True))
        lines.append("  coverage         " + ",  ".join(shares))
        lines.append("  PIT histogram    " + " ".join(f"{share:.2f}" for share in self.histogram))
        lines.append(f"                   a histogram as uneven has probability {_shown(self.calibration_p)}")
        of = "one step ahead" if self.ahead else "about the curve"
        first = " ".join(f"{r:.2f}" for r in self.autocorrelation[:5])
        lines.append(f"  autocorrelation  {first} … of errors {of}, probability {_shown(self.autocorrelation_p)}")
        return "\n".join([*lines, *(f"  warning: {text}" for text in self.warnings)])

    __repr__ = __str__


def _shown(p: float) -> str:
    return "unknown" if np.isnan(p) else f"{p:.2g}"


@double_precision
def check(fit: Fit) -> Check:
    """Calibration and what is left over: coverage, the PIT histogram, autocorrelation of errors, and what to do."""
    p = left_out(fit)
    if p.y_mean.ndim > 1:
        raise ValueError(f"`check` needs values in an order; {type(fit.likelihood).__name__} has categories")
    here = _seen(tails(fit, p))
    n = len(here.upto)
    histogram = spread(here, BINS)
    levels = np.array(LEVELS)
    coverage = np.array([_share_between(here, 0.5 - 0.5 * a, 0.5 + 0.5 * a) for a in levels])
    chi2 = n * BINS * float(np.sum((histogram - 1.0 / BINS) ** 2))
    # An integer's share of a bin is spread: the statistic falls short of its distribution, and the test is cautious.
    calibration_p = float(chdtrc(BINS - 1, chi2)) if n >= FEW else np.nan
    chained = isinstance(fit.posterior, ChainPosterior)
    scores = normal_scores(_seen(tails(fit, one_ahead(fit) if chained else _posterior_at_data(fit))))
    correlations = autocorrelation(scores, min(LAGS, max(1, n // 4))) if n > 2 else np.zeros(1)
    box = n * (n + 2) * float(np.sum(correlations**2 / (n - np.arange(1, len(correlations) + 1)))) if n > 2 else 0.0
    autocorrelation_p = float(chdtrc(len(correlations), box)) if n >= FEW else np.nan
    found = Check(
        n,
        histogram,
        levels,
        coverage,
        calibration_p,
        correlations,
        autocorrelation_p,
        chained,
        float(np.nanmean(fit.loo())),
        (),
    )
    return found._replace(warnings=tuple(_warnings(found)))


def _warnings(found: Check) -> list[str]:
    said = []
    if found.n < FEW:
        said.append(f"{found.n} observations are too few to judge calibration")
        return said
    nineties = float(found.coverage[LEVELS.index(0.9)])
    error = 3.0 * np.sqrt(0.09 / found.n)
    if nineties < 0.9 - error:
        said.append(
            f"intervals are too narrow: those of 90 % hold {100 * nineties:.0f} %; the data have heavier tails or "
            "more spread than the likelihood allows (th.StudentT, th.NegativeBinomial, th.HeteroscedasticGaussian)"
        )
    elif nineties > 0.9 + error:
        said.append(
            f"intervals are too wide: those of 90 % hold {100 * nineties:.0f} %; a few values far out may have "
            "widened them (th.StudentT), or the noise changes with time (th.HeteroscedasticGaussian)"
        )
    elif found.calibration_p < SUSPICIOUS:
        said.append(
            "the predicted distribution has another shape than the data: look at the PIT histogram (a slope: values "
            "are skewed; a hump or a trough: too much or too little spread in the middle)"
        )
    if found.autocorrelation_p < SUSPICIOUS:
        lag = int(np.argmax(np.abs(found.autocorrelation))) + 1
        said.append(
            f"errors hang together, most at lag {lag} ({found.autocorrelation[lag - 1]:.2f}): something that repeats "
            "or lasts is not in the kernel (th.Periodic for a season, th.Matern12 for what is short-lived)"
        )
    return said


def _seen(found: Tails) -> Tails:
    there = ~np.isnan(found.upto)
    return Tails(found.below[there], found.upto[there])


def spread(found: Tails, bins: int) -> np.ndarray:
    """The PIT histogram: each datum's one is spread evenly from P(Y < y) to P(Y ≤ y)."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    return np.array([_share_between(found, low, high) for low, high in itertools.pairwise(edges)])


def _share_between(found: Tails, low: float, high: float) -> float:
    width = found.upto - found.below
    continuous = width <= 1e-12
    overlap = np.minimum(found.upto, high) - np.maximum(found.below, low)
    spread_out = np.clip(overlap, 0.0, None) / np.where(continuous, 1.0, width)
    # The last bin has its upper end: P(Y ≤ y) of a value far out is 1 to rounding.
    inside = (found.upto >= low) & ((found.upto < high) | (high >= 1.0))
    return float(np.mean(np.where(continuous, inside, spread_out))) if len(width) else np.nan


def normal_scores(found: Tails) -> np.ndarray:
    """Φ⁻¹ of the middle of each step, kept finite."""
    middle = 0.5 * (found.below + found.upto)
    return ndtri(np.clip(middle, NormalDist().cdf(-8.0), 1.0 - 1e-15))


def autocorrelation(x: np.ndarray, lags: int) -> np.ndarray:
    """The correlation of x with itself 1 to `lags` places later."""
    centred = x - np.mean(x)
    total = float(np.sum(centred**2)) or 1.0
    return np.array([float(np.sum(centred[k:] * centred[:-k])) / total for k in range(1, lags + 1)])


def _posterior_at_data(fit: Fit) -> Prediction:
    covariates = {name: np.asarray(value) for name, value in fit.data.covariates.items()}
    return fit.predict(fit.clock.times(np.asarray(fit.data.time)), **covariates)


@double_precision
def one_ahead(fit: Fit) -> Prediction:
    """Each datum as those before it predict it, in the order of time: the filter, moved one step forward."""
    m, V = _ahead(fit.model.kernel, fit.posterior)
    m = m + jnp.reshape(jnp.asarray(fit.model.mean.value), (-1, 1))
    covariates = {name: np.asarray(value) for name, value in fit.data.covariates.items()}
    return Prediction.of(m, V, fit.model.likelihood, covariates)


@compiled
def _ahead(kernel: AbstractKernel, found: Any) -> tuple[Array, Array]:
    sde, times, states = kernel.sde(), found.times, found.states
    H, steps = jnp.asarray(sde.H), Steps(sde)
    move = steps(steps.prepare((times[:-1], jnp.diff(times))))
    A, Q = dense(move.A), dense(move.Q)
    m = jnp.einsum("ijn,jn->in", A, states.m[:, :-1])
    P = jnp.einsum("ijn,jkn,lkn->iln", A, states.P[..., :-1], A) + Q
    first = dense(sde.covariance(times[:1]))
    m = jnp.concatenate([jnp.zeros_like(m, shape=(m.shape[0], 1)), m], axis=1)
    P = jnp.concatenate([first, P], axis=-1)
    return jnp.einsum("li,in->ln", H, m), jnp.einsum("li,ijn,mj->lmn", H, P, H)
