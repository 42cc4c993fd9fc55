"""Every rule, and a small problem for any likelihood; an entry here inherits the tests of energies and inference."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tests.likelihoods.registry import LIKELIHOODS
from thiele import kernels as th
from thiele.energies import Data, observed
from thiele.rules import CVI, EKS, PL, Laplace, PowerEP
from thiele.steps import prior_chain

RULES = {
    "eks": EKS(),
    "pl": PL(),
    "ep": PowerEP(),
    "power ep 0.5": PowerEP(0.5),
    "cvi": CVI(),
    "laplace": Laplace(),
}

# The kink of |y - f| has no curvature: Newton's method has no parabola to use, and moves on for ever.
NO_FIXED_POINT = [("laplace", "laplace")]

_KERNELS = (th.Matern32(1.2, 2.0), th.Matern12(0.8, 1.5), th.Matern32(0.6, 3.0), th.Matern12(0.5, 2.0))


class Problem(NamedTuple):
    likelihood: Any
    kernel: Any
    times: np.ndarray
    data: Data

    def chain(self, kernel=None):
        return prior_chain((kernel or self.kernel).sde(), jnp.asarray(self.times))


def problem(name: str, n: int = 9) -> Problem:
    """Irregular times, two of them equal, one value missing."""
    likelihood, values = LIKELIHOODS[name]
    rng = np.random.default_rng(7)
    times = np.sort(rng.uniform(0.0, 6.0, n))
    times[5] = times[4]
    y = rng.choice(values, n)
    y[2] = np.nan
    kernel = _KERNELS[0] if likelihood.latents == 1 else th.Stack(*_KERNELS[: likelihood.latents])
    return Problem(likelihood, kernel, times, observed(y))
