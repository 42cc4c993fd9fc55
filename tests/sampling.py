"""Posteriors and marginal likelihoods by sampling: exact but for a Monte Carlo error that comes with them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import gammaln, logsumexp

from thiele import dense_sites as dense
from thiele.energies import Data, each_datum
from thiele.rules import Site
from thiele.rules.latents import log_prob


class Truth(NamedTuple):
    """Mean and standard deviation of each f, and the standard errors of both as shares of the standard deviation."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


class Evidence(NamedTuple):
    """log p(y), and how many independent draws the weighted ones are worth."""

    log_likelihood: float
    draws: float


def log_likelihood(likelihood: Any, data: Data, f: jax.Array) -> jax.Array:
    """log p(y | f) of all observed data, f of shape (n, L)."""
    terms = each_datum(lambda model, y, f: log_prob(model, y, f), likelihood, data, f)
    return jnp.sum(jnp.where(data.mask, terms, 0.0))


def slices(
    likelihood: Any, K: jax.Array, data: Data, sites: Site, chains: int = 512, steps: int = 3000, burn_in: int = 500
) -> Truth:
    """Elliptical slice sampling (Murray, Adams and MacKay, 2010), many chains at once, each begun at the prior.

    The Gaussian that the ellipses follow is the prior times the square root of the sites, and the rest, p(y | f)/√t(f),
    makes the slices: for any sites the target is the posterior (Nishihara, Murray and Adams, 2014), and good ones make
    draws nearly independent. The chains know nothing of one another, so the spread of their averages is the error.
    """
    shape = sites.shift.shape
    half = jax.tree.map(lambda x: 0.5 * x, sites)
    mean, cov, h, Lam = dense.joint(K, data, half)
    root = jnp.linalg.cholesky(cov + 1e-12 * jnp.eye(cov.shape[0]))
    prior_root = jnp.linalg.cholesky(K + 1e-10 * jnp.eye(K.shape[0]))

    def rest(f: jax.Array) -> jax.Array:
        return log_likelihood(likelihood, data, f.reshape(shape)) - h @ f + 0.5 * f @ Lam @ f

    def draw(f: jax.Array, key: jax.Array) -> jax.Array:
        normal, height, angle = jax.random.split(key, 3)
        other = root @ jax.random.normal(normal, f.shape)
        level = rest(f) + jnp.log(jax.random.uniform(height))

        def at(theta: jax.Array) -> jax.Array:
            return mean + (f - mean) * jnp.cos(theta) + other * jnp.sin(theta)

        def shrink(state: tuple) -> tuple:
            theta, low, high, key = state
            low, high = jnp.where(theta < 0, theta, low), jnp.where(theta < 0, high, theta)
            key, now = jax.random.split(key)
            return jax.random.uniform(now, minval=low, maxval=high), low, high, key

        first, again = jax.random.split(angle)
        theta = jax.random.uniform(first, maxval=2 * jnp.pi)
        state = (theta, theta - 2 * jnp.pi, theta, again)
        theta, *_ = lax.while_loop(lambda s: ~(rest(at(s[0])) > level), shrink, state)
        return at(theta)

    def chain(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, key = jax.random.split(key)
        keys = jax.random.split(key, burn_in + steps)
        f = prior_root @ jax.random.normal(start, mean.shape)
        f, _ = lax.scan(lambda f, key: (draw(f, key), None), f, keys[:burn_in])

        def add(state: tuple, key: jax.Array) -> tuple[tuple, None]:
            f, first, second = state
            f = draw(f, key)
            # Squares about the centre of the ellipses lose no digits.
            return (f, first + (f - mean) / steps, second + jnp.square(f - mean) / steps), None

        (_, first, second), _ = lax.scan(add, (f, jnp.zeros_like(f), jnp.zeros_like(f)), keys[burn_in:])
        return first, second

    first, second = (np.asarray(x) for x in jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), chains)))
    centre = first.mean(axis=0)
    sd = np.sqrt(second.mean(axis=0) - centre**2)
    by_chain = second - 2 * centre * first + centre**2  # each chain's estimate of the variance
    return Truth(
        np.asarray(mean) + centre,
        sd,
        first.std(axis=0) / np.sqrt(chains) / sd,
        0.5 * by_chain.std(axis=0) / np.sqrt(chains) / sd**2,
    )


def importance(likelihood: Any, K: jax.Array, data: Data, sites: Site, draws: int = 1_000_000) -> Evidence:
    """log p(y) by weighted draws from q, widened in the tails to a multivariate t."""
    rng = np.random.default_rng(3)
    mean, cov, _, _ = (np.asarray(x) for x in dense.joint(K, data, sites))
    size, df = mean.size, 10.0
    factor, root = (np.linalg.cholesky(np.asarray(x) + 1e-12 * np.eye(size)) for x in (K, cov))
    z = rng.standard_normal((draws, size)) / np.sqrt(rng.chisquare(df, draws) / df)[:, None]
    f = mean + z @ root.T
    each = jax.jit(jax.vmap(lambda f: log_likelihood(likelihood, data, f.reshape(sites.shift.shape))))
    whitened = np.linalg.solve(factor, f.T)
    log_prior = -0.5 * np.sum(whitened**2, axis=0) - np.linalg.slogdet(factor)[1] - 0.5 * size * np.log(2 * np.pi)
    constant = gammaln(0.5 * (df + size)) - gammaln(0.5 * df) - 0.5 * size * np.log(df * np.pi)
    log_q = constant - np.linalg.slogdet(root)[1] - 0.5 * (df + size) * np.log1p(np.sum(z**2, axis=1) / df)
    weights = np.asarray(each(f)) + log_prior - log_q
    total = logsumexp(weights)
    return Evidence(total - np.log(draws), np.exp(2 * total - logsumexp(2 * weights)))
