r"""Inducing states with dense algebra, O(n (Md)³), as a textbook would write it: the truth for tests.

The features are the states u at times z, stacked into one vector of M d entries. With Kuu their covariance and Kfu that
of the latent values with them, f_n | u ~ N(W_n u, ν_n), W = Kfu Kuu⁻¹, ν = diag (Kff − Kfu Kuu⁻¹ Kuf), and

    q(u) ∝ p(u) Π_m t_m(u),    t_m(u) = exp(h_m·u − ½ u′ J_m u),

with a whole vector and a whole matrix for each site: nothing is local, no noise is whitened, no chain is run. Sites
belong to segments, or each to a datum by itself. Updates follow the paper (section 4 and appendix C) as corrected in
docs/paper-notes.md (1, 2, 3, 5 and 13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thiele.energies import Data, each_datum
from thiele.kernels import AbstractKernel, SpaceTime
from thiele.likelihoods import AbstractLikelihood
from thiele.rules import AbstractLocalRule, AbstractRule, Marginal, Site
from thiele.rules.latents import conditional_moments, expected_log_prob, log_expected_power, log_prob, predict_mean_var
from thiele.sde import SDE


class Features(NamedTuple):
    """Inducing states and data: p(u), p(f_n | u), and which site each datum contributes to."""

    Kuu: Float[Array, "Md Md"]
    W: Float[Array, "n L Md"]
    nu: Float[Array, "n L L"]
    data: Data
    owner: Int[Array, " n"]
    shared: Float[Array, " n"]
    """N_m of the site that each datum contributes to."""
    sites: int

    def empty(self) -> Site:
        """Sites that say nothing."""
        size = self.Kuu.shape[0]
        return Site(jnp.zeros((self.sites, size)), jnp.zeros((self.sites, size, size)))

    def project(self, mean: Array, cov: Array) -> Marginal:
        """q(f_n) of every datum for u ~ N(mean, cov)."""
        return Marginal(self.W @ mean, jnp.einsum("nld,de,nme->nlm", self.W, cov, self.W) + self.nu)


def features(kernel: AbstractKernel, z: Array, times: Array, data: Data, tied: bool = True) -> Features:
    """Data at `times` and states at `z`, sorted; tied by the segments [z_m, z_{m+1}), or one site for each datum."""
    owner = jnp.searchsorted(z, times, side="right") if tied else jnp.arange(times.shape[0])
    sites = z.shape[0] + 1 if tied else times.shape[0]
    shared = jnp.zeros(sites).at[owner].add(jnp.where(data.mask, 1.0, 0.0))
    return Features(*conditional(kernel.sde(), z, times), data, owner, jnp.maximum(shared, 1.0)[owner], sites)


def features_in_space(
    kernel: AbstractKernel, z: Array, inputs: Float[Array, "n dims"], data: Data, tied: bool = True
) -> Features:
    """The same for a sum of separable kernels and inputs (t, r): the features are the states at all inducing points in
    space, Kuu = K_space ⊗ K_states for each summand.
    """
    times, r = inputs[:, 0], inputs[:, 1:]
    Kuu, Kfu, prior = [], [], jnp.zeros(times.shape)
    for part in kernel.parts():
        if not isinstance(part, SpaceTime):
            raise TypeError(f"`kernel` must be a sum of separable kernels, got {type(part).__name__} in it")
        sde, points = part.time.sde(), part.points()
        H, size = jnp.asarray(sde.H), z.shape[0] * sde.dim
        states = state_covariance(sde, z, z).reshape(size, size)
        with_states = jnp.einsum("i,aibk->abk", H[0], state_covariance(sde, times, z)).reshape(-1, size)
        Kuu.append(jnp.kron(part.space(points[:, None], points[None]), states))
        Kfu.append((part.space(r[:, None], points[None])[:, :, None] * with_states[:, None]).reshape(len(times), -1))
        prior = prior + part(inputs, inputs)
    K, C = jax.scipy.linalg.block_diag(*Kuu), jnp.concatenate(Kfu, axis=1)
    W = jnp.linalg.solve(K, C.T).T
    nu = prior - jnp.sum(W * C, axis=1)
    owner = jnp.searchsorted(z, times, side="right") if tied else jnp.arange(times.shape[0])
    sites = z.shape[0] + 1 if tied else times.shape[0]
    shared = jnp.zeros(sites).at[owner].add(jnp.where(data.mask, 1.0, 0.0))
    return Features(K, W[:, None], nu[:, None, None], data, owner, jnp.maximum(shared, 1.0)[owner], sites)


def state_covariance(sde: SDE, s: Float[Array, " a"], t: Float[Array, " b"]) -> Float[Array, "a d b d"]:
    """Cov(x(s), x(t)): P(s) A′ for s ≤ t, with A the transition from s to t, and A P(t) otherwise."""
    first, last = jnp.minimum(s[:, None], t), jnp.maximum(s[:, None], t)
    A = sde.dense([a for a, _ in sde.transition(first, last - first)])
    P = sde.dense(sde.covariance(first))
    forward = jnp.einsum("ijab,kjab->aibk", P, A)
    backward = jnp.einsum("ijab,jkab->aibk", A, P)
    return jnp.where((s[:, None] <= t)[:, None, :, None], forward, backward)


def conditional(
    sde: SDE, z: Float[Array, " M"], times: Float[Array, " n"]
) -> tuple[Float[Array, "Md Md"], Float[Array, "n L Md"], Float[Array, "n L L"]]:
    """Kuu, W = Kfu Kuu⁻¹ and ν = diag (Kff − Kfu Kuu⁻¹ Kuf), with a block for several latents."""
    H, size = jnp.asarray(sde.H), z.shape[0] * sde.dim
    Kuu = state_covariance(sde, z, z).reshape(size, size)
    Kfu = jnp.einsum("li,aibk->albk", H, state_covariance(sde, times, z)).reshape(*times.shape, -1, size)
    W = jnp.einsum("nld,de->nle", Kfu, jnp.linalg.inv(Kuu))
    prior = jnp.einsum("li,ijn,mj->nlm", H, sde.dense(sde.covariance(times)), H)
    return Kuu, W, prior - jnp.einsum("nld,nmd->nlm", W, Kfu)


def predict(
    sde: SDE, z: Float[Array, " M"], times: Float[Array, " n"], mean: Array, cov: Array
) -> tuple[Float[Array, "n L"], Float[Array, "n L n L"]]:
    """Mean W m and joint covariance Kff − W Kuu W′ + W S W′ of f at `times`, for u ~ N(m, S)."""
    H = jnp.asarray(sde.H)
    Kuu, W, _ = conditional(sde, z, times)
    Kff = jnp.einsum("li,aibk,mk->albm", H, state_covariance(sde, times, times), H)
    return W @ mean, Kff + jnp.einsum("ald,de,bme->albm", W, cov - Kuu, W)


def from_states(sde: SDE, z: Float[Array, " M"]) -> Float[Array, "S 2d Md"]:
    """T with (u_m, e_m) = T u, e_m = L⁻¹ (u_{m+1} − A u_m): what the sites of `thiele.tied` are about.

    Before the first state e = L⁻¹ u_1 with L L′ = P(z_1); after the last there is no e.
    """
    M, d = z.shape[0], sde.dim
    moves = sde.transition(z[:-1], jnp.diff(z))
    A = jnp.moveaxis(sde.dense([a for a, _ in moves]), -1, 0)
    Q = jnp.moveaxis(sde.dense([q for _, q in moves]), -1, 0)
    back = jnp.linalg.inv(jnp.linalg.cholesky(jnp.concatenate([sde.dense(sde.covariance(z[0]))[None], Q])))
    T = jnp.zeros((M + 1, 2, d, M, d))
    T = T.at[jnp.arange(1, M + 1), 0, :, jnp.arange(M)].set(jnp.eye(d))
    T = T.at[jnp.arange(M), 1, :, jnp.arange(M)].set(back)
    T = T.at[jnp.arange(1, M), 1, :, jnp.arange(M - 1)].set(-back[1:] @ A)
    return T.reshape(M + 1, 2 * d, M * d)


def on_states(sde: SDE, z: Float[Array, " M"], sites: Site) -> Site:
    """Sites about (u_m, e_m) as sites about all of u."""
    T = from_states(sde, z)
    return Site(jnp.einsum("sij,si->sj", T, sites.shift), jnp.einsum("sik,sij,sjl->skl", T, sites.precision, T))


def posterior(at: Features, sites: Site) -> tuple[Array, Array]:
    """Mean and covariance of q(u) ∝ p(u) Π t_m(u)."""
    h, J = jnp.sum(sites.shift, axis=0), jnp.sum(sites.precision, axis=0)
    cov = jnp.linalg.solve(jnp.eye(at.Kuu.shape[0]) + at.Kuu @ J, at.Kuu)
    return cov @ h, 0.5 * (cov + cov.T)


def marginals(at: Features, sites: Site) -> Marginal:
    """q(f_n) of every datum."""
    return at.project(*posterior(at, sites))


def infer(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    at: Features,
    sites: Site,
    sweeps: int = 200,
    step: float = 0.7,
) -> Site:
    """`sweeps` damped updates of all sites at once, without safeguards."""

    def sweep(_: Array, sites: Site) -> Site:
        target = update(rule, likelihood, at, sites)
        return jax.tree.map(lambda old, new: old + step * (new - old), sites, target)

    return jax.lax.fori_loop(0, sweeps, sweep, sites)


def update(rule: AbstractLocalRule, likelihood: AbstractLikelihood, at: Features, sites: Site) -> Site:
    """What a full step of the rule puts in place of every site: the product of what its data ask for."""
    mean, cov = posterior(at, sites)
    name = type(rule).__name__

    def of_q(model: AbstractLikelihood, y: Array, q: Marginal, W: Array) -> Site:
        # log t has the gradient `slope` at u = mean and the curvature −W′ precision W.
        precision, slope = LOCAL[name](rule, model, y, q)
        J = W.T @ precision @ W
        return Site(W.T @ slope + J @ mean, J)

    if name == "PowerEP":
        new = each_datum(_moment_matching(rule), likelihood, at.data, *_cavities(rule, at, sites), at.W, at.nu)
    else:
        new = each_datum(of_q, likelihood, at.data, at.project(mean, cov), at.W)
    new = Site(
        jnp.where(at.data.mask[:, None], new.shift, 0.0), jnp.where(at.data.mask[:, None, None], new.precision, 0.0)
    )
    return jax.tree.map(lambda old, x: jnp.zeros_like(old).at[at.owner].add(x), sites, new)


# Sites made for q: the precision and the slope of log t as a function of f, at the mean of q.


def cvi(rule: AbstractLocalRule, model: AbstractLikelihood, y: Array, q: Marginal) -> tuple[Array, Array]:
    """Gradients of E_q log p in the moments of q(f_n) (section 4.1; notes, 2)."""
    slope, by_var = jax.grad(lambda m, v: expected_log_prob(model, y, m, v, rule.quadrature), (0, 1))(*q)
    return semidefinite(-2.0 * by_var), slope


def laplace(rule: AbstractLocalRule, model: AbstractLikelihood, y: Array, q: Marginal) -> tuple[Array, Array]:
    """Taylor's parabola of log p at the mean."""
    of_f = lambda f: log_prob(model, y, f)  # noqa: E731
    return semidefinite(-jax.hessian(of_f)(q.mean)), jax.grad(of_f)(q.mean)


def pl(rule: AbstractLocalRule, model: AbstractLikelihood, y: Array, q: Marginal) -> tuple[Array, Array]:
    """Statistical linear regression under q (appendix C.5; notes, 3)."""
    omega, B = predict_mean_var(model, *q, rule.quadrature)
    Omega = jax.jacfwd(lambda m: predict_mean_var(model, m, q.var, rule.quadrature)[0])(q.mean)
    Omega = Omega.reshape(-1, q.mean.shape[0])
    return _regression(Omega, B.reshape(2 * Omega.shape[:1]) - Omega @ q.var @ Omega.T, model.statistic(y) - omega)


def eks(rule: AbstractLocalRule, model: AbstractLikelihood, y: Array, q: Marginal) -> tuple[Array, Array]:
    """Taylor's line through E[y | f] at the mean (appendix C.5)."""
    omega, noise = conditional_moments(model, q.mean)
    Omega = jax.jacfwd(lambda f: conditional_moments(model, f)[0])(q.mean).reshape(-1, q.mean.shape[0])
    return _regression(Omega, noise.reshape(2 * Omega.shape[:1]), model.statistic(y) - omega)


def _regression(Omega: Array, noise: Array, residual: Array) -> tuple[Array, Array]:
    pulled = Omega.T @ jnp.linalg.pinv(noise, rtol=1e-13, hermitian=True)
    return pulled @ Omega, pulled @ residual.reshape(-1)


LOCAL: dict[str, Callable[..., tuple[Array, Array]]] = {"CVI": cvi, "Laplace": laplace, "PL": pl, "EKS": eks}


def semidefinite(precision: Array) -> Array:
    """What the library allows: a site of several latents has no negative direction; one latent may, within bounds."""
    if precision.shape[0] == 1:
        return precision
    values, vectors = jnp.linalg.eigh(0.5 * (precision + precision.T))
    return (vectors * jnp.maximum(values, 0.0)) @ vectors.T


# Sites made for the cavity of a datum (section 4.2, appendix C.3).


def _cavities(rule: AbstractRule, at: Features, sites: Site) -> tuple[Array, Array]:
    """Mean and covariance of q(u) / t_m(u)^(α/N_m), for every datum."""
    mean, cov = posterior(at, sites)
    precision = jnp.linalg.inv(cov)

    def one(owner: Array, shared: Array) -> tuple[Array, Array]:
        k = rule.power / shared
        left = jnp.linalg.inv(precision - k * sites.precision[owner])
        return left @ (precision @ mean - k * sites.shift[owner]), left

    return jax.vmap(one)(at.owner, at.shared)


def _moment_matching(rule: AbstractLocalRule) -> Callable[..., Site]:
    def match(model: AbstractLikelihood, y: Array, mu: Array, Sigma: Array, W: Array, nu: Array) -> Site:
        """(q*/q₋)^(1/α), where q* has the moments of q₋(u) E[p(y | f)^α | u] (notes, 1 and 13)."""
        m, v = W @ mu, W @ Sigma @ W.T + nu
        log_z = lambda m: log_expected_power(model, y, m, v, rule.power, rule.quadrature)  # noqa: E731
        d1, d2 = jax.grad(log_z)(m), jax.hessian(log_z)(m)
        if m.shape[0] > 1:
            # Where the factor of f would have a negative direction: the moments with the one that is allowed instead.
            eye = jnp.eye(m.shape[0])
            allowed = semidefinite(-jnp.linalg.solve(eye + d2 @ v, d2))
            d2 = -jnp.linalg.solve(eye + allowed @ v, allowed)
            d1 = jnp.linalg.solve(eye + allowed @ v, d1 + allowed @ v @ d1)
        tilted = mu + Sigma @ W.T @ d1
        precision, old = jnp.linalg.inv(Sigma + Sigma @ W.T @ d2 @ W @ Sigma), jnp.linalg.inv(Sigma)
        return Site((precision @ tilted - old @ mu) / rule.power, (precision - old) / rule.power)

    return match


# Energies.


def energy(rule: AbstractRule, likelihood: AbstractLikelihood, at: Features, sites: Site) -> Float[Array, ""]:
    """The rule's approximation of log p(y) with the sites held."""
    return ENERGIES[rule.energy](rule, likelihood, at, sites)


def _sum(function: Callable[..., Array], likelihood: AbstractLikelihood, at: Features, *along: Any) -> Array:
    return jnp.sum(jnp.where(at.data.mask, each_datum(function, likelihood, at.data, *along), 0.0))


def _log_det(at: Features, sites: Site) -> Array:
    """log det (I + Kuu Σ J)."""
    return jnp.linalg.slogdet(jnp.eye(at.Kuu.shape[0]) + at.Kuu @ jnp.sum(sites.precision, axis=0))[1]


def elbo(rule: AbstractRule, likelihood: AbstractLikelihood, at: Features, sites: Site) -> Array:
    """Σ E_q log p(y_n | f_n) − KL[q(u) ‖ p(u)] (appendix C.2)."""
    mean, cov = posterior(at, sites)
    expected = lambda model, y, q: expected_log_prob(model, y, *q, rule.quadrature)  # noqa: E731
    inverse = jnp.linalg.inv(at.Kuu)
    log_ratio = jnp.linalg.slogdet(cov)[1] - jnp.linalg.slogdet(at.Kuu)[1]
    divergence = 0.5 * (jnp.trace(inverse @ cov) - mean.shape[0] + mean @ inverse @ mean - log_ratio)
    return _sum(expected, likelihood, at, at.project(mean, cov)) - divergence


def power_ep_energy(rule: AbstractRule, likelihood: AbstractLikelihood, at: Features, sites: Site) -> Array:
    """log Z + (1/α) Σ_n (log E₋ p(y_n | f_n)^α − log E₋ t_m(u)^(α/N_m)) (notes, 5).

    The cavity times t_m^(α/N_m) is q, so its normaliser is that of q over that of the cavity.
    """
    mean, cov = posterior(at, sites)
    of_q = log_normaliser(mean, cov)

    def term(model: AbstractLikelihood, y: Array, mu: Array, Sigma: Array, W: Array, nu: Array) -> Array:
        tilted = log_expected_power(model, y, W @ mu, W @ Sigma @ W.T + nu, rule.power, rule.quadrature)
        return (tilted - (of_q - log_normaliser(mu, Sigma))) / rule.power

    log_z = 0.5 * jnp.sum(sites.shift, axis=0) @ mean - 0.5 * _log_det(at, sites)
    return log_z + _sum(term, likelihood, at, *_cavities(rule, at, sites), at.W, at.nu)


def log_normaliser(mean: Array, cov: Array) -> Float[Array, ""]:
    """log ∫ exp(η·u − ½ u′ cov⁻¹ u) du for η = cov⁻¹ mean, up to a constant."""
    return 0.5 * (mean @ jnp.linalg.solve(cov, mean) + jnp.linalg.slogdet(cov)[1])


def laplace_energy(rule: AbstractRule, likelihood: AbstractLikelihood, at: Features, sites: Site) -> Array:
    """log p(y | W û) − ½ û′ Kuu⁻¹ û − ½ log det (I + Kuu Σ J) at the mean û of q."""
    mean, _ = posterior(at, sites)
    terms = _sum(lambda model, y, f: log_prob(model, y, f), likelihood, at, at.W @ mean)
    return terms - 0.5 * mean @ jnp.linalg.solve(at.Kuu, mean) - 0.5 * _log_det(at, sites)


ENERGIES = {"elbo": elbo, "power_ep": power_ep_energy, "laplace": laplace_energy}
