"""Every kernel that the tests run over: a new entry inherits all of them."""

import pytest

from thiele.kernels import (
    RBF,
    SHO,
    Constant,
    Cosine,
    IntegratedWiener,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    QuasiPeriodic,
    Scale,
    Stack,
    Subband,
    Wiener,
)

KERNELS = {
    "Matern12": Matern12(variance=1.3, lengthscale=0.7),
    "Matern32": Matern32(variance=0.8, lengthscale=1.9),
    "Matern52": Matern52(variance=2.1, lengthscale=0.6),
    "Matern72": Matern72(variance=0.5, lengthscale=1.4),
    "Constant": Constant(variance=1.7),
    "Cosine": Cosine(variance=0.9, frequency=2.3),
    "Periodic": Periodic(variance=1.2, lengthscale=0.9, period=1.6),
    "Periodic, smooth": Periodic(variance=1.2, lengthscale=8.0, period=3.1),
    "QuasiPeriodic": QuasiPeriodic(variance=1.2, lengthscale=1.1, period=1.6, decay=4.0),
    "QuasiPeriodic, Matern32": QuasiPeriodic(1.2, 1.5, 2.6, 3.0, order=1.5, harmonics=3),
    "Subband": Subband(variance=0.7, lengthscale=1.5, frequency=3.0),
    "Subband, Matern52": Subband(variance=0.7, lengthscale=1.5, frequency=3.0, order=2.5),
    "SHO, ringing": SHO(variance=1.1, frequency=2.0, quality=8.0),
    "SHO, critical": SHO(variance=1.1, frequency=2.0, quality=0.5),
    "SHO, overdamped": SHO(variance=1.1, frequency=2.0, quality=0.2),
    "Wiener": Wiener(variance=0.6, initial_variance=0.3, origin=0.4),
    "IntegratedWiener": IntegratedWiener(0.6, initial_variance=0.3, initial_slope_variance=0.2, origin=0.4),
    "RBF": RBF(variance=1.4, lengthscale=0.8),
    "RBF, order 3": RBF(variance=1.4, lengthscale=0.8, order=3),
    "sum": Matern32(1.0, 2.0) + Matern12(0.3, 0.2) + Constant(0.5),
    "scaled sum": 0.7 * (Matern52(1.0, 2.0) + Cosine(0.3, 4.0)),
    "scale": Scale(Matern52(1.0, 3.0), 1.8),
    "Matern32 * Matern12": Matern32(1.0, 2.0) * Matern12(0.8, 3.0),
    "Cosine * SHO": Cosine(1.0, 2.0) * SHO(0.8, 1.0, 0.7),
    "Constant * Periodic": Constant(0.4) * Periodic(1.0, 2.0, 1.5),
    "Wiener * Matern32": Wiener(0.6, 0.3, origin=0.4) * Matern32(1.0, 2.0),
    "IntegratedWiener * Cosine": IntegratedWiener(0.6, 0.3, 0.2) * Cosine(1.0, 2.0),
    "(Matern32 + Periodic) * Matern12": (Matern32(1.0, 2.0) + Periodic(0.5, 2.0, 1.5)) * Matern12(0.8, 3.0),
}

# Kernels that are put together like another one in the list: a claim that takes seconds to compile for each kernel
# leaves them to the slow tests.
VARIANTS = (
    "Matern12",
    "Periodic, smooth",
    "QuasiPeriodic, Matern32",
    "Subband, Matern52",
    "SHO, critical",
    "SHO, overdamped",
    "RBF",
    "scaled sum",
    "scale",
    "Matern32 * Matern12",
    "Constant * Periodic",
    "IntegratedWiener * Cosine",
    "(Matern32 + Periodic) * Matern12",
)
LONG = [pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else []) for name in KERNELS]

STACKS = {
    "two": Stack(Matern32(1.0, 2.0), Matern52(0.5, 1.0)),
    "mixed": Stack(Matern12(1.0, 2.0) + Periodic(0.5, 2.0, 1.5), 2.0 * Wiener(), Cosine() * Matern32()),
    "nested": Stack(Stack(Matern32(), Constant()), SHO()),
}

STATIONARY = [name for name in KERNELS if "Wiener" not in name]
