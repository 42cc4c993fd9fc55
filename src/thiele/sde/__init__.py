"""Linear stochastic differential equations and their exact discretisation at any time step."""

from thiele.sde.block import SDE, AbstractBlock, Output
from thiele.sde.damped import DampedOscillator, damped_waves
from thiele.sde.ladder import Ladder, ladder_drift
from thiele.sde.linear import discretise
from thiele.sde.matern import Cascade
from thiele.sde.oscillator import Level, Rotation
from thiele.sde.product import Product, product
from thiele.sde.wiener import IntegratedRandomWalk, RandomWalk

__all__ = [
    "SDE",
    "AbstractBlock",
    "Cascade",
    "DampedOscillator",
    "IntegratedRandomWalk",
    "Ladder",
    "Level",
    "Output",
    "Product",
    "RandomWalk",
    "Rotation",
    "damped_waves",
    "discretise",
    "ladder_drift",
    "product",
]
