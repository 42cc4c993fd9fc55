"""Kernels: a covariance k(t, s) and its linear SDE twin; one family per file."""

from thiele.kernels.constant import Constant
from thiele.kernels.coregional import Coregional
from thiele.kernels.cosine import Cosine, Subband
from thiele.kernels.kernel import AbstractKernel, AbstractOneLatent, AbstractScalarKernel, Emission, Product, Scale, Sum
from thiele.kernels.matern import Matern12, Matern32, Matern52, Matern72
from thiele.kernels.periodic import Periodic, QuasiPeriodic
from thiele.kernels.rbf import RBF
from thiele.kernels.sho import SHO
from thiele.kernels.space_time import SpaceTime, grid
from thiele.kernels.stack import Stack, Stacked
from thiele.kernels.wiener import IntegratedWiener, Wiener

__all__ = [
    "RBF",
    "SHO",
    "AbstractKernel",
    "AbstractOneLatent",
    "AbstractScalarKernel",
    "Constant",
    "Coregional",
    "Cosine",
    "Emission",
    "IntegratedWiener",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matern72",
    "Periodic",
    "Product",
    "QuasiPeriodic",
    "Scale",
    "SpaceTime",
    "Stack",
    "Stacked",
    "Subband",
    "Sum",
    "Wiener",
    "grid",
]
