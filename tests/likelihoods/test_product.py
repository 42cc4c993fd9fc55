"""Derivatives that are written by hand for the product of subbands equal those that automatic differentiation finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.likelihoods import AbstractConditionallyGaussian, SubbandProduct
from thiele.quadrature import GaussHermite, Unscented5

QUADRATURES = [pytest.param(None, id="default"), pytest.param(GaussHermite(4), id="hermite")]
POWERS = [1.0, 0.5, 0.01]


def moments(subbands, singular=False):
    rng = np.random.default_rng(subbands)
    root = rng.standard_normal((2 * subbands, 2 * subbands))
    if singular:
        root[:, -2:] = 0.0
    return jnp.asarray(rng.standard_normal(2 * subbands)), jnp.asarray(0.3 * root @ root.T)


def plain(name):
    """The method that knows only of loadings and noise, differentiated automatically."""
    return getattr(AbstractConditionallyGaussian, name)


def close(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.max(np.abs(a - b)) <= 1e-10 * (1.0 + np.max(np.abs(b)))


@pytest.mark.parametrize("quadrature", QUADRATURES)
@pytest.mark.parametrize("subbands", [1, 3])
def test_the_expected_log_density_has_the_slopes_of_the_plain_sum(subbands, quadrature):
    mean, var = moments(subbands)

    def of(method):
        def value(y, mean, var, noise):
            return method(SubbandProduct(subbands, noise), y, mean, var, quadrature)

        return jax.value_and_grad(value, argnums=(0, 1, 2, 3))(0.7, mean, var, 0.3)

    close(of(SubbandProduct.expected_log_prob), of(plain("expected_log_prob")))


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("quadrature", QUADRATURES)
@pytest.mark.parametrize("subbands", [1, 3])
def test_the_tilted_normaliser_has_the_slopes_of_the_plain_sum(subbands, quadrature, power):
    mean, var = moments(subbands)

    def of(method):
        def value(y, mean, var, noise, power):
            return method(SubbandProduct(subbands, noise), y, mean, var, power, quadrature)

        return jax.value_and_grad(value, argnums=(0, 1, 2, 3, 4))(0.7, mean, var, 0.3, power)

    close(of(SubbandProduct.log_expected_power), of(plain("log_expected_power")))


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("subbands", [1, 3])
def test_both_tilted_slopes_are_those_of_the_plain_sum(subbands, power):
    mean, var = moments(subbands)
    likelihood = SubbandProduct(subbands, 0.2)
    value = lambda m: plain("log_expected_power")(likelihood, -1.3, m, var, power)  # noqa: E731
    close(
        likelihood.tilted_moments(-1.3, mean, var, power),
        (value(mean), jax.grad(value)(mean), jax.hessian(value)(mean)),
    )


def test_weights_of_either_sign_have_the_same_slopes():
    mean, var = moments(5)
    assert np.any(Unscented5().nodes(5).weights < 0)
    likelihood = SubbandProduct(5, 0.4)
    value = lambda m: plain("log_expected_power")(likelihood, 2.0, m, var, 1.0)  # noqa: E731
    close(
        likelihood.tilted_moments(2.0, mean, var, 1.0), (value(mean), jax.grad(value)(mean), jax.hessian(value)(mean))
    )


def test_a_singular_covariance_has_finite_slopes():
    mean, var = moments(3, singular=True)
    likelihood = SubbandProduct(3, 0.3)
    found = jax.grad(lambda m, v: likelihood.expected_log_prob(0.7, m, v), argnums=(0, 1))(mean, var)
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in (*found, *likelihood.tilted_moments(0.7, mean, var, 1.0)))
