"""`Fit`: a model that has seen data. It predicts; the algorithms are elsewhere."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thiele import training
from thiele.axes import axis_of
from thiele.kernels import AbstractKernel, Stack
from thiele.learn import Learnt, Trace
from thiele.likelihoods import AbstractLikelihood, ByOutput
from thiele.mean import mean_at
from thiele.posterior import ChainPosterior, InducedPosterior
from thiele.precision import double_precision
from thiele.prediction import Prediction
from thiele.rules import Site
from thiele.series import Clock, Order, Series, columns, covariate_arrays
from thiele.training import Report


class Component(NamedTuple):
    """One summand of the kernel: f_k ~ N(mean, var) at each time."""

    kernel: AbstractKernel
    mean: np.ndarray
    var: np.ndarray


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """A model that has seen data: its posterior, and how it got there.

    `data` is in the order of time: it holds the rows [order] of what the user gave.
    """

    model: Any
    data: Series
    order: Order
    clock: Clock
    posterior: ChainPosterior | InducedPosterior
    objective: float
    """log p(y) under the model where it is exact, else what the rule's energy makes of it."""
    sites: Site | None = None
    """What the rule made of the data; None where the posterior is exact."""
    learnt: Learnt | None = None
    inference: Report | None = None

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel, as learnt. Its values are numpy arrays: arithmetic with them keeps all digits."""
        return jax.tree.map(np.asarray, self.model.kernel)

    @property
    def likelihood(self) -> AbstractLikelihood:
        """The likelihood, as learnt. Its values are numpy arrays."""
        return jax.tree.map(np.asarray, self.model.likelihood)

    @property
    def mean(self) -> np.ndarray:
        """The constant mean of the latent function, as learnt."""
        return np.asarray(self.model.mean.value)

    @property
    def inducing(self) -> np.ndarray | None:
        """The inducing times, as numbers of the data's clock; None where each datum has a site of its own."""
        return None if self.model.inducing is None else np.asarray(self.model.inducing.times)

    @property
    def trace(self) -> Trace | None:
        """What happened at every step of learning; None after `condition`."""
        return None if self.learnt is None else self.learnt.trace

    @property
    def converged(self) -> bool:
        """Whether learning reached its tolerance and the sites theirs."""
        learnt = self.learnt is None or self.learnt.converged
        return learnt and (self.inference is None or not bool(self.inference.unconverged))

    def __repr__(self) -> str:
        n, observed = len(self.data.time), int(np.sum(self.data.observed))
        how, end = "conditioned", ""
        if self.learnt is not None:
            how = f"fitted in {max(len(self.learnt.trace.objective) - 1, 0)} steps"
            end = "" if self.learnt.converged else f"; did not converge: {self.learnt.message}"
        if self.inference is not None and bool(self.inference.unconverged):
            end += "; the sites did not converge"
        sparse = "" if self.inducing is None else f", {len(self.inducing)} inducing times"
        return (
            f"Fit of {n} points ({observed} observed){sparse}, {how}{end}\n"
            f"  objective  {self.objective:.4f}\n"
            f"  kernel     {self.kernel}\n"
            f"  likelihood {self.likelihood}\n"
            f"  mean       {np.array2string(self.mean, precision=6)}"
        )

    def __getstate__(self) -> dict[str, Any]:
        # A copy or a pickle of a JAX array would come back in single precision outside of the library's own scope.
        as_numpy = lambda x: np.asarray(x) if isinstance(x, jax.Array) else x  # noqa: E731
        return {name: jax.tree.map(as_numpy, value) for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @double_precision
    def predict(self, t_new: Any = None, **covariates: Any) -> Prediction:
        """The posterior of f and of y at `t_new`, or at the data's own times in their order if it is not given.

        Covariates of the likelihood (`exposure`, `trials`) are those of the observations to be predicted.
        """
        times, places = self._inputs(t_new)
        given = t_new is not None and places is None
        shown, axis = (t_new, axis_of(t_new)) if given else (self.clock.times(times), self.clock.axis)
        extra = covariate_arrays(covariates, len(times))
        if isinstance(self.model.likelihood, ByOutput) and places is not None:
            extra = {**extra, "output": places[:, -1]}
        self.model.likelihood.at(**extra)
        found = self.posterior.latent(self.model.kernel, _padded(times), _padded(places))
        n = len(times)
        mean = found.mean[..., :n] + mean_at(self.model.mean, self.model.kernel.outputs_observed, places)
        return Prediction.of(mean, found.var[..., :n], self.model.likelihood, extra, shown, axis)

    @double_precision
    def log_density(self, t_test: Any, y_test: Any, **covariates: Any) -> np.ndarray:
        """log p(y_test | data), one for each point on its own; NaN where `y_test` is missing."""
        p = self.predict(t_test, **covariates)
        return p.log_density(y_test, name="y_test")

    @double_precision
    def sample(self, t_new: Any, n: int, key: Any = 0) -> np.ndarray:
        """`n` joint draws of the latent function at `t_new`: (n, len(t_new)), and an axis for several latents.

        `key` is a seed or a JAX key.
        """
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"`n` must be an integer of at least 1, got {n!r}")
        times, places = self._inputs(t_new)
        key = jax.random.key(key) if isinstance(key, (int, np.integer)) else key
        new = jax.tree.map(jnp.asarray, (times, places))
        draws = self.posterior.draw(self.model.kernel, new[0], key, n, new[1])
        draws = draws + mean_at(self.model.mean, self.model.kernel.outputs_observed, places)
        return np.asarray(draws[:, 0] if draws.shape[1] == 1 else jnp.moveaxis(draws, 1, 2))

    @double_precision
    def loo(self) -> np.ndarray:
        """log p(y_n | all other data), one for each datum in the order given; NaN where `y` is missing.

        From the posterior without what the datum itself contributed: nothing is fitted again. Exact for Gaussian noise;
        otherwise as good as the sites. Hyperparameters stay as they are.
        """
        found = np.asarray(training.leave_one_out(self.model, self._tied(), self.sites))
        values = np.empty_like(found)
        values[self.order] = np.where(self.data.observed, found, np.nan)
        return values

    @double_precision
    def components(self, t_new: Any = None) -> tuple[Component, ...]:
        """The posterior of every summand of the kernel at `t_new`, or at the data's own times if it is not given.

        They add up to the latent function less its constant mean; summands of several latents come in their order.
        """
        if self.model.inducing is not None and self.model.inducing.of == "values":
            raise ValueError("components need inducing states: inducing values hold the sum alone")
        times, places = self._inputs(t_new)
        parts = self.model.kernel.parts()
        found = self.posterior.latent(Stack(*parts), _padded(times), _padded(places))
        mean, var = np.asarray(found.mean)[:, : len(times)], np.asarray(found.var)[..., : len(times)]
        shown = jax.tree.map(np.asarray, parts)
        return tuple(Component(kernel, mean[i], var[i, i]) for i, kernel in enumerate(shown))

    @cached_property
    @double_precision
    def slack(self) -> float:
        """About how many nats of log p(y) the inducing times lose, ½ Σ curvature × conditional variance; 0 if none."""
        return 0.0 if self.inducing is None else float(training.slack(self.model, self._tied(), self.sites))

    def _tied(self) -> Any:
        if self.model.inducing is None:
            return self.data
        return self.model.inducing.tie(self.data)

    def _inputs(self, new: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Times and places of new inputs, or those of the data in the order given."""
        if new is None:
            return self._unsorted(self.data.time), None if self.data.space is None else self._unsorted(self.data.space)
        times, places = columns(new, self.model.kernel.in_space, "t_new")
        if places is not None:
            self.model.kernel.placed(places)
        return self.clock.numbers(times, "t_new"), places

    def _require_time_alone(self, what: str) -> None:
        """Refuse what is a picture or a table along one axis of time."""
        if self.model.kernel.in_space:
            raise ValueError(
                f"`{what}` is for models of time alone, and this one is in space or of several outputs: `predict` at "
                "the inputs of interest (`th.grid` makes a grid of them)"
            )

    def _unsorted(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty_like(rows)
        found[self.order] = rows
        return found

    def forecast(self, horizon: Any, *, step: Any = None, level: float = 0.95, **covariates: Any) -> Any:
        """A table of what comes after the last datum. See `thiele.forecast.forecast`."""
        from thiele.forecast import forecast

        self._require_time_alone("forecast")
        return forecast(self, horizon, step, level, covariates)

    def impute(self, level: float = 0.95) -> Any:
        """A table of the data with what is missing filled in. See `thiele.forecast.impute`."""
        from thiele.forecast import impute

        self._require_time_alone("impute")
        return impute(self, level)

    def anomalies(self, rate: float = 0.05, level: float = 0.95) -> Any:
        """A table of the data that the others make unlikely. See `thiele.left_out.anomalies`."""
        from thiele.left_out import anomalies

        self._require_time_alone("anomalies")
        return anomalies(self, rate, level)

    def check(self) -> Any:
        """Whether the uncertainty is honest: calibration and what is left over. See `thiele.checks.check`."""
        from thiele.checks import check

        self._require_time_alone("check")
        return check(self)

    def summary(self, level: float = 0.95) -> Any:
        """What was learnt, how sure that is, what was chosen, and warnings. See `thiele.summary.summary`."""
        from thiele.summary import summary

        return summary(self, level)

    def update(self, t_more: Any, y_more: Any = None, **covariates: Any) -> Fit:
        """The fit with more data, at the same hyperparameters. See `thiele.streaming.update`."""
        from thiele.streaming import update

        self._require_time_alone("update")
        return update(self, t_more, y_more, covariates)

    def save(self, path: Any) -> Any:
        """Write one file that `th.load` reads; atomically, and without pickle. See `thiele.store.save`."""
        from thiele.store import save

        return save(self, path)

    def report(self, path: Any, **options: Any) -> Any:
        """An interactive page about this fit, one HTML file that needs no network. See `thiele.report.report`."""
        from thiele.report import report

        self._require_time_alone("report")
        return report(self, path, **options)

    def plot(self, t: Any = None, **options: Any) -> Any:
        """Data, posterior mean and bands, with matplotlib; in space, a map.

        See `thiele.plot.plot` and `thiele.plot.plot_map`.
        """
        from thiele.plot import plot, plot_map

        draw = plot_map if self.model.kernel.in_space else plot
        return draw(self, t, **options)


def _padded(rows: np.ndarray | None) -> Array | None:
    """Rows up to the next power of two, so that predictions of many lengths share few compilations."""
    if rows is None:
        return None
    room = max(64, 1 << max(len(rows) - 1, 0).bit_length()) - len(rows)
    last = rows[-1:] if len(rows) else np.zeros((1, *rows.shape[1:]))
    return jnp.asarray(np.concatenate([rows, np.repeat(last, room, axis=0)]))
