"""BayesNewton 1.3.4, as its own demos use it: one compiled step of inference, gradient and Adam, called in a loop.

    {"do": "prepare", "data": FILE, "settings": {...}}   -> {"first": seconds}     builds, and takes the first iteration
    {"do": "iterate", "count": n}                        -> {"seconds": [...]}     the next n of the same schedule
    {"do": "score"}                                      -> {"nlpd": x}            on the rows to test
    {"do": "memory"}                                     -> {"peak": bytes}

The data have `time`, `value`, `test_time`, `test_value` and `inducing`; `benchmarks.settings` says what the settings
are. An energy that is no number ends the schedule, and the answer says at which iteration. The library fits no current
JAX, so it has an environment of its own, and nothing of thiele is imported here.

One thing is mended, without which sparse models of several latent functions cannot be scored: their predictions keep
the diagonal of the covariance alone where the density asks for all of it, as the full models return.
"""

from __future__ import annotations

import math
import time
from typing import Any

import bayesnewton as bn
import jax
import numpy as np
import objax

from benchmarks.workers.answering import Unable, answer_requests, memory_peak

MODELS = {
    ("sparse", "CVI"): bn.models.SparseMarkovVariationalGP,
    ("sparse", "PEP"): bn.models.SparseMarkovExpectationPropagationGP,
    ("full", "CVI"): bn.models.MarkovVariationalGP,
    ("full", "PEP"): bn.models.MarkovExpectationPropagationGP,
}
MATERNS = ("Matern12", "Matern32", "Matern52", "Matern72")


def kernel_of(settings: dict[str, Any]) -> Any:
    name, held = settings["name"], settings.get("held", [])
    values = {key: float(x) for key, x in settings.get("values", {}).items()}
    if name in MATERNS:
        return getattr(bn.kernels, name)(**values, **{f"fix_{key}": True for key in held})
    if name == "Stack":
        return bn.kernels.Independent([kernel_of(part) for part in settings["parts"]])
    if name == "Sum":
        return bn.kernels.Sum([kernel_of(part) for part in settings["parts"]])
    if name == "SpaceTime":
        time, space = (kernel_of(part) for part in settings["parts"])
        points = np.asarray(settings["points"])
        return bn.kernels.SpatioTemporalKernel(time, space, z=points, conditional="Full", sparse=True, opt_z=False)
    if name == "Subband" and settings["order"] == 0.5:
        frequency = values.pop("frequency")
        fixed = {f"fix_{key.replace('frequency', 'radial_frequency')}": True for key in held}
        return bn.kernels.SubbandMatern12(**values, radial_frequency=frequency, **fixed)
    if name == "QuasiPeriodic" and settings["order"] == 0.5 and not held:
        decay, lengthscale = values.pop("decay"), values.pop("lengthscale")
        return bn.kernels.QuasiPeriodicMatern12(**values, lengthscale_periodic=lengthscale, lengthscale_matern=decay)
    raise Unable(f"BayesNewton has no kernel like this {name}")


def likelihood_of(settings: dict[str, Any]) -> Any:
    name, values = settings["name"], settings.get("values", {})
    if name == "HeteroscedasticGaussian":
        return bn.likelihoods.HeteroscedasticNoise()
    if name == "Bernoulli":
        return bn.likelihoods.Bernoulli(link=settings["link"])
    if name == "Poisson":
        return bn.likelihoods.Poisson(binsize=settings["exposure"])
    if name == "Gaussian":
        return bn.likelihoods.Gaussian(variance=values["variance"])
    if name == "SubbandProduct":
        return bn.likelihoods.AudioAmplitudeDemodulation(settings["subbands"], variance=values["variance"])
    raise Unable(f"BayesNewton has no likelihood like this {name}")


def require_finite(kernel: Any) -> None:
    """Starting values of more than about 709 overflow the library's softplus, and every number after them is NaN."""
    for name, variable in kernel.vars().items():
        if not np.all(np.isfinite(variable.value)):
            raise Unable(f"its softplus overflows: {name} starts at {variable.value}")


class Schedule:
    """The published schedule on one fold, one iteration at a time."""

    def __init__(self, settings: dict[str, Any], data: dict[str, np.ndarray]):
        self.data = data
        # The published script of the only likelihood of several products takes the unscented transform of fifth order.
        product = settings["likelihood"]["name"] == "SubbandProduct"
        self.cubature = {"cubature": bn.cubature.Unscented(dim=None)} if product else {}
        sparse = {"Z": data["inducing"]} if settings["kind"] == "sparse" else {}
        power = {"power": 1.0} if settings["rule"] == "PEP" else {}
        kernel = kernel_of(settings["kernel"])
        require_finite(kernel)
        self.model = MODELS[settings["kind"], settings["rule"]](
            kernel=kernel,
            likelihood=likelihood_of(settings["likelihood"]),
            **self.inputs("time", "value"),
            **sparse,
            **power,
        )
        optimiser = objax.optimizer.Adam(self.model.vars())
        energy = objax.GradValues(self.model.energy, self.model.vars())

        @objax.Function.with_vars(self.model.vars() + optimiser.vars())
        def step():
            self.model.inference(lr=settings["newton"], **self.cubature)
            slope, value = energy(**self.cubature)
            optimiser(settings["adam"], slope)
            return value

        self.step = objax.Jit(step)
        self.done = 0

    def inputs(self, times: str, values: str) -> dict[str, Any]:
        """Time, space where there is any, and values, as the models take them."""
        x = self.data[times].reshape(len(self.data[times]), -1)
        places = {"R": x[:, 1:]} if x.shape[1] > 1 else {}
        return {"X": x[:, :1], "Y": self.data[values].reshape(-1, 1).astype(float), **places}

    def iterate(self) -> float:
        start = time.perf_counter()
        (energy,) = self.step()
        # A number on the host: the iteration is over.
        energy = float(energy)
        self.done += 1
        if not math.isfinite(energy):
            raise Unable(f"its energy is {energy} at iteration {self.done}")
        return time.perf_counter() - start

    def nlpd(self) -> float:
        inputs = self.inputs("test_time", "test_value")
        if self.model.func_dim > 1 and "R" not in inputs:
            bn.basemodels.diag = lambda covariance: covariance
        found = float(self.model.negative_log_predictive_density(**inputs, **self.cubature))
        if not math.isfinite(found):
            raise Unable(f"its NLPD is {found} after {self.done} iterations")
        return found


class Reference:
    def __init__(self) -> None:
        self.schedule: Schedule | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "versions":
            return {"versions": {"bayesnewton": "1.3.4", "jax": jax.__version__, "objax": objax.__version__}}
        if request["do"] == "memory":
            return {"peak": memory_peak()}
        if request["do"] == "prepare":
            start = time.perf_counter()
            self.schedule = Schedule(request["settings"], dict(np.load(request["data"])))
            self.schedule.iterate()
            return {"first": time.perf_counter() - start}
        if self.schedule is None:
            raise RuntimeError(f"`{request['do']}` was asked for before `prepare`")
        if request["do"] == "iterate":
            return {"seconds": [self.schedule.iterate() for _ in range(request["count"])]}
        if request["do"] == "score":
            return {"nlpd": self.schedule.nlpd()}
        raise ValueError(f"`do` must be versions, prepare, iterate, score or memory, got {request['do']!r}")


if __name__ == "__main__":
    answer_requests(Reference().answer)
