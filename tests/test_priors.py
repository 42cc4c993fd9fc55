import jax
import numpy as np
import pytest
from scipy import stats

from thiele.priors import Gamma, HalfNormal, InverseGamma, LogNormal, Normal

CASES = {
    "LogNormal": (LogNormal(median=2.0, sigma=0.7), stats.lognorm(s=0.7, scale=2.0)),
    "Gamma": (Gamma(concentration=2.5, rate=3.0), stats.gamma(2.5, scale=1.0 / 3.0)),
    "InverseGamma": (InverseGamma(concentration=2.5, scale=3.0), stats.invgamma(2.5, scale=3.0)),
    "HalfNormal": (HalfNormal(scale=1.5), stats.halfnorm(scale=1.5)),
    "Normal": (Normal(mean=-0.5, scale=1.5), stats.norm(-0.5, 1.5)),
}
every_prior = pytest.mark.parametrize(("prior", "reference"), CASES.values(), ids=CASES)


@every_prior
def test_log_densities_agree_with_scipy(prior, reference):
    x = np.array([1e-3, 0.4, 1.0, 7.0])
    np.testing.assert_allclose(prior.log_prob(x), reference.logpdf(x), rtol=1e-13)


@every_prior
def test_priors_are_hashable_equal_by_value_and_readable(prior, reference):
    again = eval(repr(prior))
    assert again == prior
    assert hash(again) == hash(prior)


@every_prior
def test_log_densities_are_double_and_differentiable(prior, reference):
    assert prior.log_prob(1.0).dtype == np.float64
    assert np.isfinite(jax.grad(prior.log_prob)(0.7))


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: LogNormal(0.0, 1.0), ValueError, "`median` of LogNormal must be a positive number, got 0.0"),
        (lambda: Gamma(1.0, "fast"), TypeError, "`rate` of Gamma must be a positive number, got 'fast'"),
        (lambda: Normal(np.nan, 1.0), ValueError, "`mean` of Normal must be a finite number, got nan"),
        (lambda: HalfNormal(-1), ValueError, "`scale` of HalfNormal must be a positive number, got -1"),
    ],
)
def test_bad_arguments_are_refused_by_name(build, error, words):
    with pytest.raises(error, match=words):
        build()
