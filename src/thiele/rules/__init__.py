"""Rules: from the moments of one datum's latent values to a Gaussian site."""

from thiele.rules.base import AbstractLocalRule, AbstractRule, Marginal, Site, Update
from thiele.rules.cvi import CVI
from thiele.rules.extended import EKS
from thiele.rules.laplace import Laplace
from thiele.rules.posterior_linearisation import PL
from thiele.rules.power_ep import PowerEP
from thiele.rules.vgp import VGP

RULES = (EKS, PL, PowerEP, CVI, Laplace, VGP)

__all__ = [
    "CVI",
    "EKS",
    "PL",
    "RULES",
    "VGP",
    "AbstractLocalRule",
    "AbstractRule",
    "Laplace",
    "Marginal",
    "PowerEP",
    "Site",
    "Update",
]
