"""Each rule on one datum, against brute force on a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS, jit
from tests.rules.registry import RULES
from thiele import likelihoods as th
from thiele.rules import CVI, EKS, PL, Laplace, Marginal, PowerEP, Site
from thiele.rules.base import gradient_matched, semidefinite
from thiele.rules.cavity import cavity, combined

Q = Marginal(np.array([0.4]), np.array([[0.6]]))
SITE = Site(np.array([0.5]), np.array([[0.7]]))
CASES = {"poisson exp": 3.0, "bernoulli logit": 1.0, "gamma": 0.7, "binomial probit": 2.0}
ONE_DATUM = {name: RULES[name] for name in ("eks", "pl", "ep", "power ep 0.5", "cvi", "laplace")}


def grid(likelihood, y, mean, var, power):
    """Points around q, normalised weights of p^power N(mean, var), and log p."""
    f = np.linspace(mean - 14.0 * np.sqrt(var), mean + 14.0 * np.sqrt(var), 100_001)
    log_p = np.asarray(likelihood.log_prob(y, jnp.asarray(f)))
    w = np.exp(power * log_p - 0.5 * (f - mean) ** 2 / var)
    return f, w / w.sum(), log_p


def updated(rule, likelihood, y, q=Q, site=SITE):
    return jit(lambda y, q, site: rule(likelihood, y, q, site))(jnp.asarray(y), q, site)


@pytest.mark.parametrize("power", [1.0, 0.3])
@pytest.mark.parametrize("name", CASES)
def test_the_cavity_times_an_ep_site_has_the_moments_of_the_tilted_density(name, power):
    likelihood, y = LIKELIHOODS[name].likelihood, CASES[name]
    site, repaired = updated(PowerEP(power), likelihood, y)
    (mean, var), proper, _ = cavity(Q, SITE, power)
    f, w, _ = grid(likelihood, y, float(mean[0]), float(var[0, 0]), power)
    tilted_mean = w @ f
    tilted_var = w @ (f - tilted_mean) ** 2
    precision = 1.0 / var[0, 0] + power * site.precision[0, 0]
    np.testing.assert_allclose(1.0 / precision, tilted_var, rtol=1e-8)
    np.testing.assert_allclose((mean[0] / var[0, 0] + power * site.shift[0]) / precision, tilted_mean, rtol=1e-8)
    assert proper
    assert not repaired


@pytest.mark.parametrize("name", CASES)
def test_a_cvi_site_holds_the_expected_slope_and_curvature(name):
    likelihood, y = LIKELIHOODS[name].likelihood, CASES[name]
    site, _ = updated(CVI(), likelihood, y)
    m, v = float(Q.mean[0]), float(Q.var[0, 0])
    f, w, log_p = grid(likelihood, y, m, v, 0.0)
    slope, curvature = (w * log_p) @ (f - m) / v, (w * log_p) @ (((f - m) / v) ** 2 - 1.0 / v)
    np.testing.assert_allclose(site.precision[0, 0], -curvature, rtol=1e-6)
    np.testing.assert_allclose(site.shift[0], slope - curvature * m, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_pl_site_is_the_regression_of_the_mean_of_y_on_f(name):
    likelihood, y = LIKELIHOODS[name].likelihood, CASES[name]
    site, _ = updated(PL(), likelihood, y)
    m, v = float(Q.mean[0]), float(Q.var[0, 0])
    f, w, _ = grid(likelihood, y, m, v, 0.0)
    mean, noise = (np.asarray(jax.vmap(g)(f)) for g in (likelihood.conditional_mean, likelihood.conditional_variance))
    omega, slope = w @ mean, (w * mean) @ (f - m) / v
    left = w @ (noise + (mean - omega - slope * (f - m)) ** 2)
    np.testing.assert_allclose(site.precision[0, 0], slope**2 / left, rtol=1e-6)
    np.testing.assert_allclose(site.shift[0], slope * (y - omega) / left + slope**2 / left * m, rtol=1e-6)


def test_eks_and_laplace_agree_where_the_link_is_canonical():
    for likelihood, y in ((th.Poisson(), 3.0), (th.Bernoulli(), 1.0)):
        for a, b in zip(*(updated(rule, likelihood, y).site for rule in (EKS(), Laplace())), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_putting_a_site_back_into_its_cavity_restores_q():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 3))
    precision = b @ b.T
    var = np.linalg.inv(np.linalg.inv(a @ a.T) + precision)
    q, site = Marginal(jnp.asarray(rng.standard_normal(3)), jnp.asarray(var)), Site(jnp.ones(3), jnp.asarray(precision))
    (mean, left), proper, _ = cavity(q, site, 0.8)
    restored = np.linalg.inv(np.linalg.inv(left) + 0.8 * precision)
    np.testing.assert_allclose(restored, var, rtol=1e-9)
    np.testing.assert_allclose(restored @ (np.linalg.solve(left, mean) + 0.8 * site.shift), q.mean, rtol=1e-9)
    assert proper


@pytest.mark.parametrize("power", [0.7, -0.2])
@pytest.mark.parametrize("size", [1, 3])
def test_a_site_put_in_or_taken_out_has_the_derivatives_of_the_plain_formula(size, power):
    def plain(var, precision, power):
        spread = jnp.eye(size) + power * var @ precision
        return jnp.linalg.solve(spread, var), jnp.linalg.slogdet(spread)[1]

    # Directions that keep symmetric what is symmetric.
    rng = np.random.default_rng(4)
    at, along = ([jnp.asarray(x @ x.T) for x in rng.standard_normal((2, size, size))] for _ in range(2))
    at, along = (*at, jnp.asarray(power)), (*along, jnp.asarray(0.6))
    for a, b in zip(*(jax.tree.leaves(jax.jvp(f, at, along)) for f in (combined, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_cavity_that_would_have_no_variance_is_refused_and_the_site_kept():
    sharp = Site(jnp.array([1.0]), jnp.array([[5.0]]))
    (mean, var), proper, _ = cavity(Q, sharp, 1.0)
    assert not proper
    np.testing.assert_array_equal((mean, var[0]), (Q.mean, Q.var[0]))
    site, repaired = updated(PowerEP(), th.Poisson(), 3.0, site=sharp)
    assert repaired
    np.testing.assert_array_equal(site.precision, sharp.precision)


@pytest.mark.parametrize("name", ["ep", "cvi", "laplace"])
def test_an_outlier_widens_q_within_bounds_and_pulls_the_mean(name):
    none = Site(jnp.zeros(1), jnp.zeros((1, 1)))
    site, repaired = updated(RULES[name], th.StudentT(4.0, 0.3), 6.0, site=none)
    assert -0.5 / 0.6 < site.precision[0, 0] < 0.0
    assert not repaired
    assert 0.0 < site.shift[0] - site.precision[0, 0] * Q.mean[0] < 5.0


def test_negative_precision_stops_at_half_that_of_the_rest():
    at = jnp.array([[-9.0]]), jnp.ones(1), jnp.array([2.0])
    site, repaired, usable, _ = gradient_matched(*at, rest=jnp.array([[0.5]]))
    assert repaired
    assert usable
    np.testing.assert_allclose((site.precision[0, 0], site.shift[0]), (-1.0, -1.0))
    # Ten data that share a site may all ask for it, and the sum must leave a density too.
    shared, *_ = gradient_matched(*at, rest=jnp.array([[0.5]]), tied=10.0)
    np.testing.assert_allclose(shared.precision[0, 0], -0.1)


def test_semidefinite_keeps_what_is_and_clips_what_is_not():
    kept, changed = semidefinite(jnp.array([[2.0, 1.0], [1.0, 0.5]]))
    np.testing.assert_array_equal(kept, [[2.0, 1.0], [1.0, 0.5]])
    assert not changed
    clipped, changed = semidefinite(jnp.array([[1.0, 2.0], [2.0, 1.0]]))
    np.testing.assert_allclose(clipped, [[1.5, 1.5], [1.5, 1.5]])
    assert changed


@pytest.mark.parametrize("rule", ["eks", "pl"])
def test_linearising_rules_name_what_a_likelihood_lacks(rule):
    with pytest.raises(ValueError, match="conditional_mean"):
        RULES[rule](th.Custom(lambda y, f: -jnp.square(y - f)), jnp.array(1.0), Q, SITE)


def test_a_power_outside_its_range_is_refused():
    with pytest.raises(ValueError, match="`power` of PowerEP must be greater than 0 and at most 1, got 0"):
        PowerEP(0.0)


@pytest.mark.parametrize("name", ["poisson exp", "student-t", "heteroscedastic"])
def test_sites_are_finite_and_within_bounds_wherever_q_may_be(name):
    likelihood, ys = LIKELIHOODS[name]
    size = likelihood.latents
    means = jnp.asarray(np.array([0.0, -40.0, 40.0, 3.0])[:, None] * np.ones(size))
    variances = jnp.asarray(np.array([0.0, 1.0, 1.0, 100.0])[:, None, None] * np.eye(size))
    none = Site(jnp.zeros(size), jnp.zeros((size, size)))

    def all_rules(y, mean, var):
        return [rule(likelihood, y, Marginal(mean, var), none).site for rule in ONE_DATUM.values()]

    each = jax.vmap(jax.vmap(all_rules, (None, 0, 0)), (0, None, None))
    for shift, precision in jit(each)(jnp.asarray(ys), means, variances):
        assert np.all(np.isfinite(shift))
        assert np.all(np.isfinite(precision))
        lowest = np.linalg.eigvalsh(precision)[..., 0]
        room = 0.5 / np.maximum(variances[:, 0, 0], 1e-300) if size == 1 else 1e-9 * np.abs(precision).max()
        assert np.all(lowest >= -room)
