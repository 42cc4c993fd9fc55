"""Gaussian Markov chains with information attached to their states and to neighbouring pairs."""

from thiele.chain.forms import choose_form, log_normaliser, marginals, outputs, posterior
from thiele.chain.pairs import PairInformation, absorb
from thiele.chain.sampling import sample, sample_prior
from thiele.chain.smoothing import Marginals, Outputs
from thiele.chain.types import Chain, Information, Move, Noise, Posterior, Tabulated

__all__ = [
    "Chain",
    "Information",
    "Marginals",
    "Move",
    "Noise",
    "Outputs",
    "PairInformation",
    "Posterior",
    "Tabulated",
    "absorb",
    "choose_form",
    "log_normaliser",
    "marginals",
    "outputs",
    "posterior",
    "sample",
    "sample_prior",
]
