"""What a user sees: constructors, covariates, refusals, and likelihoods from a function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import LIKELIHOODS
from thiele import likelihoods as th
from thiele.parameters import Parametric, positive, unconstrain

REFUSED = [
    (th.Gaussian(), [1.0, np.inf], "`y` of Gaussian must be a number, got inf at row 1"),
    (th.Bernoulli(), [1.0, np.nan, -1.0], r"`y` of Bernoulli must be 0 or 1, got -1 at row 2; .*\(y \+ 1\) / 2"),
    (th.Binomial(5), [5.0, 6.0], "`y` of Binomial must be an integer from 0 up to 5, got 6 at row 1"),
    (th.Binomial(2.5), [1.0], "`trials` of Binomial must be an integer from 1, got 2.5 at row 0"),
    (th.Binomial().at(trials=np.array([3.0, 1.0])), [3.0, 2.0], "up to `trials`, got 2 at row 1"),
    (th.Poisson(), [0.0, 2.5], "`y` of Poisson must be an integer from 0, got 2.5 at row 1"),
    (th.Poisson(exposure=-1.0), [0.0], "`exposure` of Poisson must be positive, got -1 at row 0"),
    (th.Gamma(), [0.0], "`y` of Gamma must be a number above 0, got 0 at row 0"),
    (th.Exponential(), [-1.0], "`y` of Exponential must be a number of at least 0"),
    (th.Beta(), [0.5, 1.0], "`y` of Beta must be a number strictly between 0 and 1, got 1 at row 1"),
    (th.Ordinal([0.0, 1.0]), [3.0], "`y` of Ordinal must be an integer from 0 up to 2, got 3 at row 0"),
    (th.Categorical(3), [3.0], "`y` of Categorical must be an integer from 0 to 2, got 3 at row 0"),
    (th.Gaussian(), np.zeros((2, 2)), r"`y` of Gaussian must have shape \(n,\), got \(2, 2\)"),
]


@pytest.mark.parametrize(("likelihood", "y", "message"), REFUSED)
def test_check_names_the_first_value_that_cannot_be(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(np.asarray(y))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_check_accepts_own_values_and_missing_ones(name):
    likelihood, ys = LIKELIHOODS[name]
    likelihood.check(np.append(ys, np.nan))


@pytest.mark.parametrize("make", [th.Bernoulli, lambda link: th.Poisson(link), lambda link: th.Ordinal([0.0], link)])
def test_an_unknown_link_is_refused_with_the_choices(make):
    with pytest.raises(ValueError, match=r"`link` of \w+ must be one of '\w+', '\w+', got 'cloglog'"):
        make("cloglog")


def test_sizes_must_be_whole():
    with pytest.raises(ValueError, match="`classes` of Categorical must be an integer from 2, got 1"):
        th.Categorical(1)
    with pytest.raises(ValueError, match="`subbands` of SubbandProduct must be a positive integer, got 0"):
        th.SubbandProduct(0)


def test_positional_arguments_come_in_the_usual_order():
    assert (
        repr(th.NegativeBinomial(2.0, "softplus", 3.0))
        == "NegativeBinomial(dispersion=2., link='softplus', exposure=3.)"
    )
    assert repr(th.ZeroInflatedPoisson(0.3)) == "ZeroInflatedPoisson(inflation=0.3, link='exp', exposure=1.)"
    assert repr(th.Binomial(4, "probit")) == "Binomial(trials=4., link='probit')"


def test_covariates_are_given_per_datum():
    y, f, exposure = jnp.array([1.0, 2.0]), jnp.array([0.3, 0.4]), jnp.array([1.0, 5.0])
    each = jax.jit(jax.vmap(lambda y, f, e: th.Poisson().at(exposure=e).log_prob(y, f)))(y, f, exposure)
    np.testing.assert_allclose(each, th.Poisson().log_prob(y, f + jnp.log(exposure)), rtol=1e-13)
    assert th.Poisson().at() == th.Poisson()


def test_unknown_covariates_are_refused():
    with pytest.raises(ValueError, match="Poisson has no covariate `trials`; it has `exposure`"):
        th.Poisson().at(trials=3.0)
    with pytest.raises(ValueError, match="Gaussian has no covariate `exposure`; it has none"):
        th.Gaussian().at(exposure=3.0)


def test_likelihoods_are_arguments_of_jitted_functions():
    value = jax.jit(lambda entries: [lik.log_prob(y, jnp.zeros(lik.latents)[() if lik.latents > 1 else 0])
                                     for lik, y in entries])  # fmt: skip
    assert np.all(np.isfinite(value([(likelihood, ys[0]) for likelihood, ys in LIKELIHOODS.values()])))


def test_a_bare_density_is_enough_for_inference_and_says_what_else_it_lacks():
    cauchy = th.Custom(lambda y, f: -jnp.log1p((y - f) ** 2) - jnp.log(jnp.pi))
    reference = th.StudentT(df=1.0)
    args = jnp.array(1.0), jnp.array(0.2), jnp.array(0.5)
    np.testing.assert_allclose(cauchy.expected_log_prob(*args), reference.expected_log_prob(*args), rtol=1e-12)
    np.testing.assert_allclose(cauchy.log_predictive(*args), reference.log_predictive(*args), rtol=1e-12)
    for piece, ask in (
        ("conditional_mean", lambda: cauchy.predict_mean_var(*args[1:])),
        ("cdf", lambda: cauchy.predictive_cdf(*args)),
        ("sampler", lambda: cauchy.sample(jax.random.key(0), args[1])),
    ):
        with pytest.raises(ValueError, match=rf"has no `{piece}`.* pass {piece}="):
            ask()


def test_a_custom_count_has_integer_quantiles():
    poisson = th.Poisson()
    custom = th.Custom(
        poisson.log_prob,
        conditional_mean=poisson.conditional_mean,
        conditional_variance=poisson.conditional_variance,
        cdf=poisson.cdf,
        support="counts",
    )
    args = jnp.array(0.9), jnp.array(1.0), jnp.array(0.3)
    quantile = jax.jit(lambda likelihood: likelihood.predictive_quantile(*args))
    assert quantile(custom) == quantile(poisson)
    with pytest.raises(ValueError, match=r"`y` of Custom must be an integer from 0, got 0\.5"):
        custom.check([0.5])
    with pytest.raises(ValueError, match="`support` of Custom must be one of 'real', 'positive', 'unit', 'counts'"):
        th.Custom(poisson.log_prob, support="integers")


def test_a_custom_density_may_have_parameters_to_learn():
    class Noise(Parametric):
        scale: jax.Array = positive(default=1.0)

        def __call__(self, y, f):
            return -0.5 * ((y - f) / self.scale) ** 2 - jnp.log(self.scale)

    assert unconstrain(th.Custom(Noise(2.0))).shape == (1,)


def test_classes_without_an_order_have_no_quantiles():
    with pytest.raises(ValueError, match="see Ordinal"):
        th.Categorical(3).predictive_quantile(jnp.array(0.5), jnp.zeros(3), jnp.eye(3))
    with pytest.raises(ValueError, match="see Ordinal"):
        th.Categorical(3).cdf(jnp.array(0.0), jnp.zeros(3))
