r"""Site-based inference with a dense Gram matrix, O(n³), as a textbook would write it: the truth for tests.

The rules are those of `thiele.rules`, which know nothing of the prior. All else is another derivation: q from the Gram
matrix, cavities by inverse covariances, the ELBO as an expectation minus a divergence, the EP energy from the
log-normalisers of Gaussians, Laplace's from a determinant.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.energies import Data, each_datum
from thiele.kernels import AbstractKernel
from thiele.likelihoods import AbstractLikelihood
from thiele.rules.base import AbstractLocalRule, AbstractRule, Marginal, Site
from thiele.rules.latents import expected_log_prob, log_expected_power, log_prob


def gram(kernel: AbstractKernel, times: Float[Array, " n"]) -> Float[Array, "m m"]:
    """K of all latent values, m = n L, datum by datum and within a datum latent by latent."""
    n, latents = times.shape[0], kernel.latents
    blocks = jnp.reshape(kernel(times[:, None], times[None, :]), (latents, n, n))
    return jnp.einsum("lij,lk->iljk", blocks, jnp.eye(latents)).reshape(n * latents, n * latents)


def joint(K: Float[Array, "m m"], data: Data, sites: Site) -> tuple[Array, Array, Array, Array]:
    """Mean and covariance of q(f), and the observed sites as h (m,) and Λ (m, m)."""
    n, latents = sites.shift.shape
    h = jnp.where(data.mask[:, None], sites.shift, 0.0).ravel()
    blocks = jnp.where(data.mask[:, None, None], sites.precision, 0.0)
    Lam = jnp.einsum("nij,nk->nikj", blocks, jnp.eye(n)).reshape(n * latents, n * latents)
    cov = jnp.linalg.solve(jnp.eye(n * latents) + K @ Lam, K)
    return cov @ h, 0.5 * (cov + cov.T), h, Lam


def marginals(K: Float[Array, "m m"], data: Data, sites: Site) -> Marginal:
    """q(f_n) of every datum."""
    n, latents = sites.shift.shape
    mean, cov, _, _ = joint(K, data, sites)
    blocks = cov.reshape(n, latents, n, latents)[jnp.arange(n), :, jnp.arange(n), :]
    return Marginal(mean.reshape(n, latents), blocks)


def infer(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    K: Float[Array, "m m"],
    data: Data,
    sites: Site,
    sweeps: int = 200,
    step: float = 0.7,
) -> Site:
    """`sweeps` damped updates of all sites, without safeguards."""

    def sweep(_: Array, sites: Site) -> Site:
        target, _ = each_datum(rule, likelihood, data, marginals(K, data, sites), sites)
        return jax.tree.map(lambda old, new: old + step * (new - old), sites, target)

    return jax.lax.fori_loop(0, sweeps, sweep, sites)


def energy(
    rule: AbstractRule, likelihood: AbstractLikelihood, K: Float[Array, "m m"], data: Data, sites: Site
) -> Float[Array, ""]:
    """The rule's approximation of log p(y) with the sites held."""
    return ENERGIES[rule.energy](rule, likelihood, K, data, sites)


def elbo(rule: AbstractRule, likelihood: AbstractLikelihood, K: Array, data: Data, sites: Site) -> Array:
    """Σ E_q log p(y_n | f_n) − KL[q(f) ‖ p(f)]."""
    mean, _, h, Lam = joint(K, data, sites)
    q = marginals(K, data, sites)
    terms = each_datum(lambda model, y, q: expected_log_prob(model, y, *q, rule.quadrature), likelihood, data, q)
    # log det cov − log det K = −log det (I + K Λ), which has no trouble with a Gram matrix that is nearly singular.
    log_ratio = -jnp.linalg.slogdet(jnp.eye(K.shape[0]) + K @ Lam)[1]
    trace = jnp.trace(jnp.linalg.solve(jnp.eye(K.shape[0]) + Lam @ K, jnp.eye(K.shape[0])))
    # K⁻¹ mean = h − Λ mean, which holds for a singular K too, as two data at one time make it.
    divergence = 0.5 * (trace - K.shape[0] + mean @ (h - Lam @ mean) - log_ratio)
    return jnp.sum(jnp.where(data.mask, terms, 0.0)) - divergence


def power_ep_energy(rule: AbstractRule, likelihood: AbstractLikelihood, K: Array, data: Data, sites: Site) -> Array:
    """log ∫ p(f) Π z_n t_n(f_n) df,  z_n^α ∫ q₋ t_n^α df = ∫ q₋ p(y_n | f_n)^α df."""
    alpha = rule.power

    def log_z(model: AbstractLikelihood, y: Array, q: Marginal, site: Site) -> Array:
        precision = jnp.linalg.inv(q.var)
        var = jnp.linalg.inv(precision - alpha * site.precision)
        left = Marginal(var @ (precision @ q.mean - alpha * site.shift), var)
        tilted = log_expected_power(model, y, *left, alpha, rule.quadrature)
        return (tilted - log_normaliser(q) + log_normaliser(left)) / alpha

    constants = each_datum(log_z, likelihood, data, marginals(K, data, sites), sites)
    mean, _, h, Lam = joint(K, data, sites)
    log_det = jnp.linalg.slogdet(jnp.eye(K.shape[0]) + K @ Lam)[1]
    return jnp.sum(jnp.where(data.mask, constants, 0.0)) + 0.5 * h @ mean - 0.5 * log_det


def log_normaliser(q: Marginal) -> Float[Array, ""]:
    """log ∫ exp(η·f − ½ f′ v⁻¹ f) df for η = v⁻¹ m."""
    size = q.mean.shape[0]
    quadratic = q.mean @ jnp.linalg.solve(q.var, q.mean)
    return 0.5 * (quadratic + jnp.linalg.slogdet(q.var)[1] + size * jnp.log(2.0 * jnp.pi))


def laplace_energy(rule: AbstractRule, likelihood: AbstractLikelihood, K: Array, data: Data, sites: Site) -> Array:
    """log p(y | f̂) − ½ f̂′ K⁻¹ f̂ − ½ log det (I + K W), at sites that are the parabola of log p at f̂.

    Away from the mode f̂ the parabola's own maximum takes its place in the first two terms.
    """
    mean, _, h, Lam = joint(K, data, sites)
    f = mean.reshape(sites.shift.shape)
    terms = each_datum(lambda model, y, f: log_prob(model, y, f), likelihood, data, f)
    log_det = jnp.linalg.slogdet(jnp.eye(K.shape[0]) + K @ Lam)[1]
    return jnp.sum(jnp.where(data.mask, terms, 0.0)) - 0.5 * mean @ (h - Lam @ mean) - 0.5 * log_det


ENERGIES = {"elbo": elbo, "power_ep": power_ep_energy, "laplace": laplace_energy}
