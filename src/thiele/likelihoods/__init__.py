"""Likelihoods: log p(y | f), the moments of y given f, and the distribution of y when f is Gaussian."""

from thiele.likelihoods.base import AbstractContinuous, AbstractInteger, AbstractLikelihood
from thiele.likelihoods.bernoulli import Bernoulli, Binomial
from thiele.likelihoods.beta import Beta
from thiele.likelihoods.by_output import ByOutput, EachOutput, has_gaussian_noise
from thiele.likelihoods.categorical import Categorical
from thiele.likelihoods.conditional import AbstractConditionallyGaussian
from thiele.likelihoods.counts import NegativeBinomial, Poisson, ZeroInflatedPoisson
from thiele.likelihoods.custom import Custom
from thiele.likelihoods.gaussian import Gaussian
from thiele.likelihoods.heteroscedastic import HeteroscedasticGaussian
from thiele.likelihoods.ordinal import Ordinal
from thiele.likelihoods.positive import Exponential, Gamma, LogNormal, Weibull
from thiele.likelihoods.product import SubbandProduct
from thiele.likelihoods.robust import LaplaceNoise, StudentT
from thiele.likelihoods.shifted import Shifted

__all__ = [
    "AbstractConditionallyGaussian",
    "AbstractContinuous",
    "AbstractInteger",
    "AbstractLikelihood",
    "Bernoulli",
    "Beta",
    "Binomial",
    "ByOutput",
    "Categorical",
    "Custom",
    "EachOutput",
    "Exponential",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "LaplaceNoise",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Shifted",
    "StudentT",
    "SubbandProduct",
    "Weibull",
    "ZeroInflatedPoisson",
    "has_gaussian_noise",
]
