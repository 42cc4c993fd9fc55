"""Every likelihood, with values that it may produce; an entry here inherits every test of this folder."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr
from scipy import stats
from scipy.special import expit

from thiele import likelihoods as th

# The tests compile hundreds of small programs and run each once, so effort spent on optimising them is wasted.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Entry(NamedTuple):
    likelihood: Any
    ys: np.ndarray


_COUNTS = np.array([0.0, 1.0, 3.0, 12.0])
_REALS = np.array([-2.5, 0.0, 0.3, 4.0])
_POSITIVES = np.array([0.02, 0.7, 1.0, 6.0])

LIKELIHOODS = {
    "gaussian": Entry(th.Gaussian(0.4), _REALS),
    "bernoulli logit": Entry(th.Bernoulli(), np.array([0.0, 1.0])),
    "bernoulli probit": Entry(th.Bernoulli("probit"), np.array([0.0, 1.0])),
    "binomial logit": Entry(th.Binomial(7), np.array([0.0, 2.0, 7.0])),
    "binomial probit": Entry(th.Binomial(7, "probit"), np.array([0.0, 2.0, 7.0])),
    "poisson exp": Entry(th.Poisson(exposure=1.3), _COUNTS),
    "poisson softplus": Entry(th.Poisson("softplus"), _COUNTS),
    "negative binomial exp": Entry(th.NegativeBinomial(0.6, exposure=0.8), _COUNTS),
    "negative binomial softplus": Entry(th.NegativeBinomial(1e-5, "softplus"), _COUNTS),
    "zero-inflated poisson": Entry(th.ZeroInflatedPoisson(0.2, exposure=1.5), _COUNTS),
    "student-t": Entry(th.StudentT(df=4.5, scale=0.7), _REALS),
    "laplace": Entry(th.LaplaceNoise(0.6), _REALS),
    "gamma": Entry(th.Gamma(2.5), _POSITIVES),
    "exponential": Entry(th.Exponential(), _POSITIVES),
    "log-normal": Entry(th.LogNormal(0.5), _POSITIVES),
    "weibull": Entry(th.Weibull(1.7), _POSITIVES),
    "beta": Entry(th.Beta(8.0), np.array([0.01, 0.3, 0.5, 0.95])),
    "ordinal logit": Entry(th.Ordinal([-1.0, 0.2, 1.5]), np.arange(4.0)),
    "ordinal probit": Entry(th.Ordinal([-1.0, 0.2, 1.5], "probit"), np.arange(4.0)),
    "categorical": Entry(th.Categorical(3), np.arange(3.0)),
    "heteroscedastic": Entry(th.HeteroscedasticGaussian(), _REALS),
    "product": Entry(th.SubbandProduct(subbands=2, variance=0.3), _REALS),
    "custom": Entry(
        th.Custom(
            lambda y, f: -0.5 * (y - f) ** 2 - 0.5 * jnp.log(2 * jnp.pi),
            conditional_mean=lambda f: f,
            conditional_variance=lambda f: jnp.ones_like(f),
            cdf=lambda y, f: ndtr(y - f),
            sampler=lambda key, f: f + th.Gaussian(1.0).sample(key, jnp.zeros_like(f)),
        ),
        _REALS,
    ),
}

# A second link of the same family, and a density that another entry has too: where a claim takes long to compile, these
# wait for the slow tests.
VARIANTS = (
    "bernoulli probit",
    "binomial probit",
    "poisson softplus",
    "negative binomial softplus",
    "ordinal probit",
    "exponential",
    "custom",
)


def long(names):
    """The same names, for a claim that takes seconds to compile."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else []) for name in names]


ORDERED = {name: entry for name, entry in LIKELIHOODS.items() if name != "categorical"}

# The same distribution as scipy has it, given one latent value.
REFERENCE = {
    "gaussian": lambda f: stats.norm(f, np.sqrt(0.4)),
    "bernoulli logit": lambda f: stats.bernoulli(expit(f)),
    "bernoulli probit": lambda f: stats.bernoulli(stats.norm.cdf(f)),
    "binomial logit": lambda f: stats.binom(7, expit(f)),
    "binomial probit": lambda f: stats.binom(7, stats.norm.cdf(f)),
    "poisson exp": lambda f: stats.poisson(1.3 * np.exp(f)),
    "poisson softplus": lambda f: stats.poisson(np.log1p(np.exp(f))),
    "negative binomial exp": lambda f: stats.nbinom(1 / 0.6, 1 / (1 + 0.6 * 0.8 * np.exp(f))),
    "student-t": lambda f: stats.t(4.5, f, 0.7),
    "laplace": lambda f: stats.laplace(f, 0.6),
    "gamma": lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5),
    "exponential": lambda f: stats.expon(scale=np.exp(f)),
    "log-normal": lambda f: stats.lognorm(np.sqrt(0.5), scale=np.exp(f)),
    "weibull": lambda f: stats.weibull_min(1.7, scale=np.exp(f)),
    "beta": lambda f: stats.beta(8 * expit(f), 8 * expit(-f)),
    "custom": lambda f: stats.norm(f, 1.0),
}


def is_integer(likelihood) -> bool:
    return isinstance(likelihood, th.AbstractInteger | th.Categorical)


def outcomes(likelihood) -> tuple[np.ndarray, np.ndarray]:
    """Values of y and weights such that a weighted sum over them is a sum or an integral over all y."""
    if is_integer(likelihood):
        largest = likelihood.classes - 1 if isinstance(likelihood, th.Categorical) else float(likelihood.largest)
        y = np.arange(0.0, min(largest, 1500.0) + 1.0)
        return y, np.ones_like(y)
    # The trapezoidal rule on a smooth coordinate that spreads the tails converges geometrically.
    u = np.linspace(-1.0, 1.0, 3001)
    support = getattr(likelihood, "support", None)
    words = getattr(support, "words", "a number")
    if words == "a number":
        y, slope = np.sinh(14.0 * u), 14.0 * np.cosh(14.0 * u)
    elif "between" in words:
        y, slope = expit(30.0 * u), 30.0 * expit(30.0 * u) * expit(-30.0 * u)
    else:
        y = np.exp(30.0 * u)
        slope = 30.0 * y
    keep = (y < 1.0) | ("between" not in words)
    return y[keep], (slope * (u[1] - u[0]))[keep]


def latent_points(likelihood, n: int = 5) -> np.ndarray:
    """A few values of f, in the range where models live."""
    shape = (n,) if likelihood.latents == 1 else (n, likelihood.latents)
    return np.random.default_rng(1).uniform(-1.5, 2.0, shape)


def moments(likelihood) -> tuple[np.ndarray, np.ndarray]:
    """A mean and a (co)variance of q(f)."""
    size = likelihood.latents
    rng = np.random.default_rng(2)
    if size == 1:
        return np.array(0.4), np.array(0.6)
    a = rng.standard_normal((size, size))
    return rng.uniform(-0.5, 1.0, size), 0.15 * (a @ a.T) + 0.1 * np.eye(size)
