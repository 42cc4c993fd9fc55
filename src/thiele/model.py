"""`GP`: a model. Wiring and validation; the algorithms are elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele import training
from thiele.axes import separated
from thiele.fit import Fit
from thiele.inducing import Inducing, Places, as_inducing
from thiele.kernels import AbstractKernel
from thiele.learn import Learnt
from thiele.likelihoods import AbstractLikelihood, ByOutput, Gaussian, Shifted
from thiele.mean import ConstantMean, as_mean
from thiele.own_sites import Grouped
from thiele.parameters import Default, Parametric, constrain, parameters, settled, unconstrain
from thiele.placement import enough_places
from thiele.posterior import InducedPosterior
from thiele.precision import double_precision
from thiele.rules import CVI, AbstractRule
from thiele.schedules import SCHEDULES, Options
from thiele.search import Search, tied
from thiele.series import Clock, Order, Series, clock_for, columns, is_traced, series, traced_series
from thiele.starts import natural_scales, starting_points
from thiele.tied import Tied

# How often "auto" may add inducing times and learn again, and how many it has at least while hyperparameters are
# learnt: too few cannot show a wiggle that the starting values do not expect.
REFINEMENTS = 3
LEAST_WHILE_LEARNING = 48


class Notes(tuple):
    """Sentences about a model. They compare equal whatever they say, so that words never cause a compilation."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notes)

    def __hash__(self) -> int:
        return hash(Notes)


class GP(Parametric):
    """f ~ GP(mean, kernel),  y_n ~ likelihood(f(t_n)).

    `fit` learns the hyperparameters and returns a `Fit`; `condition` takes them as they are. With Gaussian noise the
    posterior is exact; for any other likelihood `rule` says how it is approximated. `inducing` states summarise the
    data: a number of times, evenly spaced, an array of times, or `th.Inducing(...)`; None: a state at each datum.

    >>> import numpy as np, thiele as th
    >>> t = np.linspace(0.0, 10.0, 50)
    >>> fit = th.GP(th.Matern52(lengthscale=2.0), th.Gaussian(variance=0.1)).condition(t, np.sin(t))
    >>> fit.predict(np.array([2.5, 12.0])).mean.shape
    (2,)
    """

    kernel: AbstractKernel
    likelihood: AbstractLikelihood = dataclasses.field(default_factory=Gaussian)
    inducing: Inducing | Places | None = eqx.field(converter=as_inducing, default=None, kw_only=True)
    rule: AbstractRule = dataclasses.field(default_factory=CVI, kw_only=True)
    mean: ConstantMean = eqx.field(converter=as_mean, default=None, kw_only=True)
    notes: Notes = eqx.field(converter=Notes, static=True, default=(), kw_only=True, repr=False)
    """What was chosen automatically, in words."""

    @classmethod
    def auto(cls, t: Any, y: Any = None, **stated: Any) -> GP:
        """A model chosen for these data: likelihood, trend, seasons, starting values, inducing times; `notes` says why.

        What is `stated` is kept: kernel, likelihood, seasons (`["1 week"]`, or `[]` for none), inducing, rule, mean.
        """
        from thiele.automatic import choose

        return choose(t, y, **stated)

    def __check_init__(self) -> None:
        if not isinstance(self.kernel, AbstractKernel):
            raise TypeError(f"`kernel` must be a kernel such as th.Matern32(), got {self.kernel!r}")
        if not isinstance(self.likelihood, AbstractLikelihood):
            raise TypeError(f"`likelihood` must be a likelihood such as th.Gaussian(), got {self.likelihood!r}")
        if not isinstance(self.rule, AbstractRule):
            raise TypeError(f"`rule` must be a rule such as th.CVI(), got {self.rule!r}")
        if self.kernel.latents != self.likelihood.latents:
            raise ValueError(
                f"`kernel` must give {self.likelihood.latents} latent function(s) for "
                f"{type(self.likelihood).__name__}, got {self.kernel.latents}; th.Stack puts kernels side by side"
            )
        several = self.kernel.outputs_observed or self.kernel.latents
        if self.mean.value.shape not in ((), (several,)):
            what = "outputs" if self.kernel.outputs_observed else "latent functions"
            raise ValueError(f"`mean` must be one number, or {several} for as many {what}, got {self.mean.value.shape}")
        parts = len(self.likelihood.likelihoods) if isinstance(self.likelihood, ByOutput) else 0
        if parts and parts != self.kernel.outputs_observed:
            raise ValueError(
                f"EachOutput must hold a likelihood for each of the {self.kernel.outputs_observed} output(s) of "
                f"`kernel`, got {parts}"
            )

    @double_precision
    def log_likelihood(self, t: Any, y: Any = None, **covariates: Any) -> Float[Array, ""]:
        """log p(y): a pure JAX function of the model (and of `t` and `y`, which may be traced too).

        Exact for Gaussian noise; otherwise the energy of the model's rule at converged sites.
        """
        if is_traced(t, y, covariates):
            if self.inducing is not None or self.kernel.in_space:
                raise TypeError("`t` and `y` must be concrete with inducing times or a kernel in space, got a tracer")
            return training.log_likelihood(self, traced_series(t, y, covariates))
        model, data, _, _ = self._prepared(t, y, covariates)
        return training.log_likelihood(model, jax.tree.map(jnp.asarray, tied(model, data)))

    @double_precision
    def condition(self, t: Any, y: Any = None, **covariates: Any) -> Fit:
        """The posterior given the data, with hyperparameters as they are. What has an index needs no `y`."""
        return conditioned(*self._prepared(t, y, covariates))

    @double_precision
    def fit(
        self,
        t: Any,
        y: Any = None,
        *,
        schedule: Literal["best", "paper"] = "best",
        tolerance: float = 1e-3,
        max_steps: int = 200,
        learning_rate: float = 0.1,
        batch_size: int | None = None,
        settle: bool = True,
        progress: bool | None = None,
        **covariates: Any,
    ) -> Fit:
        """Learn the hyperparameters that are not fixed, by maximising log p(y) plus the log priors, then condition.

        Values that were given are the starting point; those left at their defaults start from the data. `schedule`
        "best" brings the sites to convergence at every step of a quasi-Newton search, which stops when no component of
        the gradient exceeds `tolerance` (nats per e-fold), or after `max_steps`; where the sites do not converge at the
        starting values, or too slowly, it begins with rounds of the other schedule, five for each of `max_steps`, while
        these gain anything. "paper" alternates one sweep of the sites with one step of Adam of size `learning_rate`,
        `max_steps` times; with inducing times, on a random sample of about `batch_size` data each time, if given.
        Then the sites are brought to convergence, or with `settle=False` moved by one more sweep. An interrupt returns
        the best so far.
        `progress` shows a line on a terminal; None: only where there is one. Covariates of the likelihood, one value
        per datum, go by their names: `exposure=...`, `trials=...`. A pandas Series, or a DataArray of xarray with a
        coordinate, is `t` and `y` in one.
        """
        if schedule not in SCHEDULES:
            raise ValueError(f'`schedule` must be "best" or "paper", got {schedule!r}')
        for name, number in [("tolerance", tolerance), ("max_steps", max_steps), ("learning_rate", learning_rate)]:
            if not isinstance(number, (int, float)) or not number > 0:
                raise ValueError(f"`{name}` must be a positive number, got {number!r}")
        if batch_size is not None:
            if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool) or batch_size < 1:
                raise ValueError(f"`batch_size` must be a positive integer or None, got {batch_size!r}")
            if schedule != "paper" or self.inducing is None:
                raise ValueError(
                    '`batch_size` needs inducing times and `schedule="paper"`: converged sites need all data'
                )
        model, data, order, clock = self._prepared(t, y, covariates)
        if not self.mean.decided and training.has_gaussian_noise(model):
            several = model.kernel.outputs_observed
            model = eqx.tree_at(lambda m: m.mean, model, ConstantMean(Default(np.zeros(several or ()))))
        options = Options(tolerance, max_steps, learning_rate, settle, progress)

        def learn(model: GP) -> Fit:
            location = training.has_gaussian_noise(model)
            candidates: list[Any] = list(starting_points(model, data, location))
            model = candidates[0]
            if unconstrain(model).size == 0:
                return conditioned(model, data, order, clock)
            if np.sum(data.observed) < 2:
                # One value says nothing about how values vary: the likelihood would grow for ever as variances shrink.
                return conditioned(settled(model), data, order, clock)
            search = Search(model, data, natural_scales(model, data, location), batch_size)
            if len(candidates) > 1:
                search.start = search.best_of(candidates)
            way = SCHEDULES["best" if training.is_exact(model) else schedule]
            learnt, objective, found = way(search, options)
            best = settled(constrain(model, jnp.asarray(learnt.vector * search.scales)))
            seen = tied(best, data) if search.moving else search.plain
            del search  # and what only learning needs: a posterior of many states may be as large
            return _fit(best, data, order, clock, learnt, objective, found, seen)

        if not isinstance(self.inducing, Inducing) or self.inducing.count != "auto":
            return learn(model)
        enough = lambda model: enough_places(model, data, allowed, LEAST_WHILE_LEARNING)  # noqa: E731
        allowed = self.inducing.tolerance
        fit = learn(_placed(model, enough(model)))
        for _ in range(REFINEMENTS):
            # What was enough for the starting values may be too little for those that were learnt.
            places = enough(fit.model)
            if fit.inducing is None or (places is not None and len(places.times) <= len(fit.inducing)):
                break
            fit = learn(_placed(fit.model, places))
        return fit

    def _prepared(self, t: Any, y: Any, covariates: dict[str, Any]) -> tuple[GP, Series, Order, Clock]:
        """The data, checked and in order, and the model with inducing times for them."""
        in_space = self.kernel.in_space
        t, y = separated(t, y)
        clock = clock_for(columns(t, in_space)[0])
        _refuse_durations(self, clock)
        data, order = series(t, y, clock, covariates, find_repeated=self.inducing is None, in_space=in_space)
        if in_space:
            self = dataclasses.replace(self, kernel=self.kernel.placed(data.space))
            if self.kernel.outputs_observed and data.space is not None:
                data = data._replace(covariates={**data.covariates, "output": data.space[:, -1]})
        with jax.ensure_compile_time_eval():  # the data are concrete, also where a caller's jit traces the model
            seen = data.y if np.all(data.observed) else np.where(data.observed, data.y, np.nan)
            shifted = Shifted(self.likelihood, self.mean.value, self.kernel.outputs_observed)
            shifted.at(**data.covariates).check(seen)
        if not isinstance(self.inducing, Inducing):
            return self, data, order, clock
        if self.inducing.count == "auto":
            places = enough_places(self, data, self.inducing.tolerance)
        else:
            with jax.ensure_compile_time_eval():
                places = self.inducing.place(data, clock)
        return _placed(self, places), data, order, clock


def _refuse_durations(model: GP, clock: Clock) -> None:
    """A lengthscale of "7 days" says nothing about times that are plain numbers."""
    durations = [p.name for p in parameters(model) if p.duration]
    if clock.origin is None and durations:
        raise TypeError(f"`{durations[0]}` was given as a duration, so `t` must be dates; got numbers")


def _placed(model: GP, places: Places | None) -> GP:
    return dataclasses.replace(model, inducing=places)


def conditioned(model: GP, data: Series, order: Order, clock: Clock) -> Fit:
    """The posterior given data that have been checked, with hyperparameters and inducing times as they are."""
    seen = tied(model, data)
    found = (None, None) if training.is_exact(model) else training.find_sites(model, seen)
    return _fit(model, data, order, clock, None, *found, seen)


def _fit(
    model: GP,
    data: Series,
    order: Order,
    clock: Clock,
    learnt: Learnt | None,
    objective: Any,
    found: Any,
    seen: Series | Tied | Grouped,
) -> Fit:
    """`seen`: the data as the sites that were found take them."""
    sites, marginals, report = (None, None, None) if found is None else found
    posterior, log_likelihood = training.condition(model, data if sites is None else seen, sites, marginals)
    if isinstance(posterior, InducedPosterior):
        sites = posterior.sites  # of segments, also where those of the data were learnt with
    value = float(log_likelihood if objective is None else objective)
    if not np.isfinite(value):
        raise FloatingPointError(
            f"the log likelihood of these data is not finite under this model: {value} with {model}; "
            "check the scale of `y` against the variances"
        )
    return Fit(model, data, order, clock, posterior, value, sites, learnt, report)
