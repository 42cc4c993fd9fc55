"""A model for a series that nobody has said anything about: kind of values, trend, seasons, starting values, method.

Every choice is a rule of thumb on the data, and comes with a sentence that says what was chosen and why; each can be
stated instead. What is chosen is a model like any other, to be learnt by `fit`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from thiele.axes import separated
from thiele.kernels import AbstractKernel, IntegratedWiener, Matern12, Matern32, QuasiPeriodic
from thiele.likelihoods import (
    AbstractLikelihood,
    Bernoulli,
    Beta,
    Binomial,
    Gamma,
    Gaussian,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from thiele.model import GP
from thiele.parameters import Default, fixed, param, parameters, replace
from thiele.priors import LogNormal as LogNormalPrior
from thiele.seasons import Season, find_seasons, seasonal_variance_ratio, stated
from thiele.series import Clock, Series, clock_for, series

LONG = 20_000  # data beyond which a model that is not exact gets inducing times
OVERDISPERSED = 1.5  # variance of neighbours' differences over that of Poisson counts
FAR, MANY_FAR = 5.0, 0.004  # robust standard deviations; the share of data beyond them that means heavy tails
LARGE = 50.0  # counts beyond this are not held to the noise of counts
SKEWED = 1.0
TREND = 0.5  # share of the variance that a straight line explains


class Latent(NamedTuple):
    """Values on the scale of the latent function, roughly: for seeing trends and seasons, and for starting values."""

    values: Float[np.ndarray, " n"]
    centre: float
    spread: float


def choose(
    t: Any,
    y: Any = None,
    *,
    kernel: AbstractKernel | None = None,
    likelihood: AbstractLikelihood | None = None,
    seasons: Any = None,
    inducing: Any = "choose",
    rule: Any = None,
    mean: Any = None,
    **covariates: Any,
) -> GP:
    """A model for these data; what is given is kept, and `notes` says how the rest was chosen.

    `seasons` may be stated as durations or numbers, `["1 week", "1 year"]`; an empty list means that there are none.
    """
    t, y = separated(t, y)
    clock = clock_for(t)
    data, _ = series(t, y, clock, covariates, find_repeated=False)
    seen = np.asarray(data.observed)
    time, values = np.asarray(data.time)[seen], np.asarray(data.y)[seen]
    exposure = np.asarray(data.covariates.get("exposure", np.ones(len(seen))))[seen]
    notes: list[str] = []
    if likelihood is None:
        likelihood, why = kind_of_values(values, exposure, "trials" in data.covariates)
        if isinstance(likelihood, NegativeBinomial) and kernel is None and seasons is None:
            likelihood, why = _counts_with_seasons(likelihood, why, time, values, exposure, clock)
        notes.append(f"likelihood {type(likelihood).__name__}: {why}")
    likelihood.at(**data.covariates).check(np.where(seen, data.y, np.nan))
    latent = _latent(likelihood, values, exposure, data, seen)
    if kernel is None:
        kernel = _kernel(time, latent, clock, seasons, isinstance(likelihood, Gaussian), notes)
    elif seasons is not None:
        raise ValueError("`seasons` must be left out where `kernel` is given: they are part of it")
    guesses = {name: np.asarray(value) for name, value in likelihood.initial_guess(values).items()}
    automatic = {p.name for p in parameters(likelihood) if p.automatic}
    if not isinstance(likelihood, Gaussian):  # its noise is tried on a grid by `fit`
        likelihood = replace(likelihood, {name: value for name, value in guesses.items() if name in automatic})
    if mean is None and not isinstance(likelihood, Gaussian) and likelihood.latents == 1:
        mean = param(latent.centre)
        notes.append("mean learnt: the level of the latent function is not known")
    if isinstance(inducing, str) and inducing == "choose":
        long = len(time) > LONG and not isinstance(likelihood, Gaussian)
        inducing = "auto" if long else None
        if long:
            notes.append(f'inducing "auto": more than {LONG:,} data of a kind that needs an approximation')
    settings = {} if rule is None else {"rule": rule}
    return GP(kernel, likelihood, inducing=inducing, mean=mean, notes=tuple(notes), **settings)


# The kind of values.


def kind_of_values(
    y: Float[np.ndarray, " n"], exposure: Float[np.ndarray, " n"] | None = None, trials: bool = False
) -> tuple[AbstractLikelihood, str]:
    """A likelihood for values in the order of time, and why this one."""
    if trials:
        return Binomial(), "the number of trials is given"
    whole = bool(np.all(y == np.floor(y))) and float(np.min(y)) >= 0.0
    if whole and float(np.max(y)) <= 1.0 and len(y) > 1 and np.ptp(y) > 0.0:
        return Bernoulli(), "every value is 0 or 1"
    if whole and float(np.quantile(y, 0.05)) >= LARGE:
        return (
            LogNormal(),
            f"whole numbers so large (5 % are below {np.quantile(y, 0.05):.0f}) that any noise is possible",
        )
    if whole and np.ptp(y) > 0.0:
        ratio = _dispersion(y, np.ones_like(y) if exposure is None else exposure)
        if ratio > OVERDISPERSED:
            return NegativeBinomial(), f"whole numbers from 0, {ratio:.1f} times as variable as Poisson counts"
        return Poisson(), "whole numbers from 0, about as variable as Poisson counts"
    if float(np.min(y)) > 0.0 and float(np.max(y)) < 1.0 and (np.min(y) < 0.1 or np.max(y) > 0.9):
        return Beta(), "every value lies between 0 and 1, some near the ends"
    if float(np.min(y)) > 0.0 and _skewness(y) > SKEWED and abs(_skewness(np.log(y))) < 0.7 * _skewness(y):
        return Gamma(), f"positive and skewed (skewness {_skewness(y):.1f}, of logarithms {_skewness(np.log(y)):.1f})"
    far = _share_far_out(y)
    if far > MANY_FAR:
        return StudentT(), f"{100 * far:.1f} % of the values jump further than Gaussian noise would"
    return Gaussian(), "real numbers without many far out"


def _counts_with_seasons(
    likelihood: AbstractLikelihood, why: str, time: np.ndarray, y: np.ndarray, exposure: np.ndarray, clock: Clock
) -> tuple[AbstractLikelihood, str]:
    """A season makes neighbours differ: counts are judged again by what it leaves."""
    found = find_seasons(time, np.log((y + 0.5) / exposure), clock.origin is not None)
    if not found or np.ptp(exposure) > 0.0:  # counts of unequal exposures have no common mean to compare with
        return likelihood, why
    ratio = seasonal_variance_ratio(time, y, found)
    if ratio > OVERDISPERSED:
        return likelihood, f"whole numbers from 0, {ratio:.1f} times as variable about their seasons as Poisson counts"
    return Poisson(), "whole numbers from 0, about as variable about their seasons as Poisson counts"


def _dispersion(y: np.ndarray, exposure: np.ndarray) -> float:
    """The variance of differences between neighbours over what Poisson counts of the same rate would have."""
    if len(y) < 3:
        return 1.0
    rate, width = y / exposure, 1.0 / exposure
    # Of y[i]/e[i] − y[i+1]/e[i+1]: λ (1/e[i] + 1/e[i+1]), with λ from both. Each pair is divided by its own, so that a
    # rate that changes by orders of magnitude is not judged by its peak alone.
    shared = (y[1:] + y[:-1]) / (exposure[1:] + exposure[:-1])
    expected = shared * (width[1:] + width[:-1])
    counted = expected > 0.0
    return float(np.mean(np.diff(rate)[counted] ** 2 / expected[counted])) if np.any(counted) else 1.0


def _skewness(x: np.ndarray) -> float:
    centred = x - np.mean(x)
    scale = float(np.std(x))
    return float(np.mean(centred**3)) / scale**3 if scale > 0.0 else 0.0


def _share_far_out(y: np.ndarray) -> float:
    """The share of values that are far from the mean of their neighbours, in robust standard deviations."""
    if len(y) < 20:
        return 0.0
    bend = y[1:-1] - 0.5 * (y[2:] + y[:-2])
    scale = 1.4826 * float(np.median(np.abs(bend - np.median(bend))))
    # A value far out bends three times: once up, and its neighbours down by half.
    return float(np.mean(np.abs(bend) > FAR * scale)) / 2.0 if scale > 0.0 else 0.0


def _latent(
    likelihood: AbstractLikelihood, y: np.ndarray, exposure: np.ndarray, data: Series, seen: np.ndarray
) -> Latent:
    name = type(likelihood).__name__
    if name in ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson"):
        z, centre = np.log((y + 0.5) / exposure), np.log((np.sum(y) + 0.5) / np.sum(exposure))
    elif name in ("Gamma", "LogNormal", "Weibull", "Exponential"):
        z = np.log(np.maximum(y, 1e-300))
        centre = float(np.mean(z))
    elif name in ("Bernoulli", "Binomial", "Beta"):
        trials = np.asarray(data.covariates.get("trials", np.ones(len(seen))))[seen]
        share = (np.sum(y) + 0.5) / (np.sum(trials) + 1.0)
        return Latent(y / trials, float(np.log(share / (1.0 - share))), 1.0)
    else:
        z, centre = y, float(np.median(y))
    return Latent(z, float(centre), float(np.std(z)) or 1.0)


# Trend and seasons.


def _kernel(
    time: np.ndarray, latent: Latent, clock: Clock, seasons: Any, gaussian: bool, notes: list[str]
) -> AbstractKernel:
    distinct = np.unique(time)
    span = float(distinct[-1] - distinct[0]) or 1.0
    step = float(np.median(np.diff(distinct))) if len(distinct) > 1 else 1.0
    dated = clock.origin is not None
    if seasons is None:
        found = find_seasons(time, latent.values, dated)
        notes += [season.words(dated) for season in found] or ["no season: nothing repeats clearly"]
    else:
        found = tuple(stated(clock.span(s, "seasons"), step) for s in seasons)
    # Starting values for what is not Gaussian, where `fit` does not know the scale of the latent function.
    parts = len(found) + 1
    variance = {} if gaussian else {"variance": latent.spread**2 / parts}
    share = _straight(time, latent.values)
    kernel: AbstractKernel
    if share > TREND and len(distinct) > 10:
        notes.append(f"a trend that goes on: a straight line explains {100 * share:.0f} % of the variance")
        kernel = _trend(float(distinct[0]), span, latent.spread) + _wiggles(step, span, latent.spread)
    else:
        kernel = Matern32(**variance, lengthscale=param(Default(1.0), prior=_between(step, span, 0.4)))
        notes.append("wiggles about a constant level: forecasts return to it")
    for season in found:
        kernel = kernel + _season(season, span, variance)
    return kernel


def _straight(time: np.ndarray, z: np.ndarray) -> float:
    """The share of the variance that a straight line explains."""
    if np.ptp(time) == 0.0 or np.std(z) == 0.0:
        return 0.0
    return float(np.corrcoef(time, z)[0, 1] ** 2)


def _trend(start: float, span: float, spread: float) -> AbstractKernel:
    """A level and a slope that may change slowly: over the whole span by about the spread of the data."""
    return IntegratedWiener(
        variance=param(0.1 * spread**2 / span**3),
        initial_variance=fixed((10.0 * spread) ** 2),
        initial_slope_variance=fixed((10.0 * spread / span) ** 2),
        origin=start,
    )


def _wiggles(step: float, span: float, spread: float) -> AbstractKernel:
    """What comes and goes about the trend; the prior keeps it from becoming a second trend, or noise."""
    prior = _between(step, span, 0.25)
    return Matern12(variance=param(0.01 * spread**2), lengthscale=param(prior.median, prior=prior))


def _between(step: float, span: float, width: float) -> LogNormalPrior:
    """A belief that a lengthscale lies between a step and the span of the data; the wider, the weaker."""
    return LogNormalPrior(float(np.sqrt(step * span)), max(width * float(np.log(span / step)), 0.5))


def _season(season: Season, span: float, variance: dict[str, float]) -> AbstractKernel:
    # A period by the calendar is known; one from the spectrum to about a cycle in the span of the data.
    loose = param(season.period, prior=LogNormalPrior(season.period, 0.25 * season.period / span))
    slow = max(span, 5.0 * season.period)
    return QuasiPeriodic(
        **variance,
        lengthscale=param(1.0, prior=LogNormalPrior(1.0, 1.0)),
        period=fixed(season.period) if season.calendar else loose,
        decay=param(slow, prior=LogNormalPrior(slow, 1.0)),
        harmonics=season.harmonics,
    )
