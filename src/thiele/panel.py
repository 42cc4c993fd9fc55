"""Many series with one model, told apart by a key: fitted together in one batched program, each a fit of its own.

Series are padded to one length with times that carry no information, so that one compilation serves all of them.
Hyperparameters are learnt for each series, or shared by all.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thiele import training
from thiele.axes import Table, plain
from thiele.fit import Fit
from thiele.learn import Evaluation, Learnt, maximise
from thiele.mean import ConstantMean
from thiele.model import GP
from thiele.parameters import constrain, log_prior, settled, unconstrain
from thiele.precision import double_precision
from thiele.programs import compiled
from thiele.rules import Site
from thiele.series import Clock, Order, Series, clock_for, series
from thiele.starts import natural_scales, starting_points
from thiele.together import Evaluations, maximise_together


class Panel(Mapping[Any, Fit]):
    """A fit for each key: `panel["Copenhagen"].predict(...)`; tables of all at once have a column `name` of keys."""

    def __init__(self, fits: dict[Any, Fit], name: str = "key") -> None:
        self._fits, self.name = fits, name

    def __getitem__(self, key: Any) -> Fit:
        if key not in self._fits:
            raise KeyError(f"no series {key!r}; there are {len(self._fits)}, the first is {next(iter(self._fits))!r}")
        return self._fits[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fits)

    def __len__(self) -> int:
        return len(self._fits)

    def __repr__(self) -> str:
        done = sum(fit.converged for fit in self._fits.values())
        total = sum(fit.objective for fit in self._fits.values())
        return f"Panel of {len(self)} series, {done} converged; objective {total:.4f} in all"

    def forecast(self, horizon: Any, **options: Any) -> Any:
        """The forecasts of all series in one table, with a column (in pandas a level of the index) of keys."""
        return self._joined({key: fit.forecast(horizon, **options) for key, fit in self.items()})

    def table(self, t_new: Any = None, level: float = 0.95) -> Any:
        """Predictions of all series at `t_new`, or of each at its own times, in one table: see `Prediction.table`."""
        return self._joined({key: fit.predict(t_new).table(level) for key, fit in self.items()})

    def impute(self, level: float = 0.95) -> Any:
        """All series with what is missing filled in, in one table."""
        return self._joined({key: fit.impute(level) for key, fit in self.items()})

    def anomalies(self, rate: float = 0.05, level: float = 0.95) -> Any:
        """What is out of place in any series, in one table."""
        return self._joined({key: fit.anomalies(rate, level) for key, fit in self.items()})

    def save(self, path: Any) -> Any:
        """Write one file that `th.load` reads; atomically, and without pickle. See `thiele.panel_store.save`."""
        from thiele.panel_store import save

        return save(self, path)

    def _joined(self, tables: dict[Any, Any]) -> Any:
        library = next(iter(self.values())).clock.axis.library
        if library == "pandas":
            return importlib.import_module("pandas").concat(tables, names=[self.name])
        if library == "polars":
            pl = importlib.import_module("polars")
            return pl.concat([t.select(pl.lit(key).alias(self.name), pl.all()) for key, t in tables.items()])
        if library == "xarray":
            xr = importlib.import_module("xarray")
            pd = importlib.import_module("pandas")
            return xr.concat(list(tables.values()), dim=pd.Index(list(tables), name=self.name))
        keys = np.concatenate([np.full(table.rows, key) for key, table in tables.items()])
        first = next(iter(tables.values()))
        return Table({self.name: keys} | {c: np.concatenate([table[c] for table in tables.values()]) for c in first})


@double_precision
def fit_panel(
    model: GP,
    t: Any,
    y: Any,
    key: Any,
    *,
    share: bool = False,
    tolerance: float = 1e-3,
    max_steps: int = 200,
    **covariates: Any,
) -> Panel:
    """Fit one model to each of the series that `key`, one entry for each row, tells apart; all in one batch.

    With `share=True` all series have the same hyperparameters, learnt from all of them: few data each are then enough.
    Times of all series are on one clock. Covariates are columns like `y`.
    """
    if model.inducing is not None:
        raise ValueError("`model` must have no inducing times in a panel: its series are fitted one state per datum")
    if model.kernel.in_space:
        raise ValueError("`model` must be of time alone in a panel: a kernel in space has all places in one model")
    keys = plain(key)
    if keys.ndim != 1 or len(keys) != len(plain(y)):
        raise ValueError(f"`key` must have one entry for each row of `y`, got shapes {keys.shape} and {plain(y).shape}")
    clock = clock_for(t)
    times, values = clock.numbers(t), plain(y)
    names = list(dict.fromkeys(keys.tolist()))
    extra = {name: np.broadcast_to(plain(value), len(keys)) for name, value in covariates.items()}
    parts: list[tuple[Series, Order]] = []
    for name in names:
        rows = keys == name
        try:
            parts.append(series(times[rows], values[rows], Clock(), {k: v[rows] for k, v in extra.items()}, False))
            data = parts[-1][0]
            model.likelihood.at(**data.covariates).check(np.where(data.observed, data.y, np.nan))
        except (ValueError, TypeError) as problem:
            raise type(problem)(f"series {name!r}: {problem}") from None
    if not model.mean.decided and training.has_gaussian_noise(model):
        model = eqx.tree_at(lambda m: m.mean, model, ConstantMean())
    batch = _Batch(model, [data for data, _ in parts])
    learnt = batch.shared(tolerance, max_steps) if share else batch.each(tolerance, max_steps)
    fits = batch.fits(learnt, [order for _, order in parts], clock)
    return Panel(dict(zip(names, fits, strict=True)), str(getattr(key, "name", None) or "key"))


class _Batch:
    """Series of one length, side by side, and their objectives."""

    def __init__(self, model: GP, data: list[Series]) -> None:
        self.model, self.data = model, data
        longest = max(len(one.time) for one in data)
        stacked = [padded(one, longest) for one in data]
        self.all: Series = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *stacked)
        self.location = training.has_gaussian_noise(model)
        self.exact = training.is_exact(model)
        self.scales = np.stack([natural_scales(model, one, self.location) for one in data])
        self.sites: Site | None = None

    def evaluate(self, scaled: np.ndarray) -> Evaluations:
        """The objective of every series and its gradient, from the last sites that converged."""
        vectors = jnp.asarray(scaled * self.scales)
        if self.sites is None and not self.exact:
            self.sites = _first(self.model, vectors, self.all)
        value, gradient, sites, unconverged = _evaluate(self.model, vectors, self.all, self.sites)
        if not self.exact:
            bad = np.asarray(unconverged) | ~np.isfinite(np.asarray(value))
            keep = lambda old, new: jnp.where(jnp.reshape(bad, (-1,) + (1,) * (old.ndim - 1)), old, new)  # noqa: E731
            self.sites = jax.tree.map(keep, self.sites, sites)
            # Far out, where sites find no rest, their energy may be any number: such a step is taken back.
            value = np.where(np.asarray(unconverged), np.nan, np.asarray(value))
        return Evaluations(np.asarray(value), np.asarray(gradient) * self.scales)

    def start(self) -> np.ndarray:
        """The best of the starting points of each series."""
        candidates = [
            [np.asarray(unconstrain(c)) for c in starting_points(self.model, d, self.location)] for d in self.data
        ]
        most = max(len(one) for one in candidates)
        tried = np.array([one + [one[0]] * (most - len(one)) for one in candidates]) / self.scales[:, None, :]
        if most == 1 or tried.shape[-1] == 0:
            return tried[:, 0]
        values = np.stack([self.evaluate(tried[:, c]).value for c in range(most)], axis=1)
        self.sites = None
        best = np.argmax(np.where(np.isfinite(values), values, -np.inf), axis=1)
        return tried[np.arange(len(best)), best]

    def each(self, tolerance: float, max_steps: int) -> list[Learnt]:
        """Hyperparameters of its own for every series."""
        return maximise_together(self.evaluate, self.start(), tolerance=tolerance, max_steps=max_steps)

    def shared(self, tolerance: float, max_steps: int) -> list[Learnt]:
        """The same for all: the sum of the objectives, with the priors once."""
        K = len(self.data)
        self.scales = np.broadcast_to(np.median(self.scales, axis=0), self.scales.shape)
        start = np.median(self.start(), axis=0)

        def evaluate(scaled: np.ndarray) -> Evaluation:
            found = self.evaluate(np.broadcast_to(scaled, (K, len(scaled))))
            vector = jnp.asarray(scaled * self.scales[0])
            prior, slope = jax.value_and_grad(lambda v: log_prior(constrain(self.model, v)))(vector)
            value = float(np.sum(found.value)) - (K - 1) * float(prior)
            return Evaluation(value, np.sum(found.gradient, axis=0) - (K - 1) * np.asarray(slope) * self.scales[0])

        found = maximise(evaluate, start, tolerance=tolerance, max_steps=max_steps, progress=False)
        return [found] * K

    def fits(self, learnt: list[Learnt], orders: list[Order], clock: Clock) -> list[Fit]:
        """The posterior of every series at what was learnt."""
        scaled = np.stack([one.vector for one in learnt])
        vectors = jnp.asarray(scaled * self.scales)
        self.evaluate(scaled)
        value, posterior = _condition(self.model, vectors, self.all, self.sites)
        _, _, _, unconverged = _evaluate(self.model, vectors, self.all, self.sites)
        fits = []
        for k, (data, order) in enumerate(zip(self.data, orders, strict=True)):
            model = settled(constrain(self.model, vectors[k]))
            sites = None if self.exact else jax.tree.map(lambda x: x[k, : len(data.time)], self.sites)  # noqa: B023
            states = jax.tree.map(lambda x: x[k], posterior)  # noqa: B023 - padded: all series share what is compiled
            report = None if self.exact else training.Report(0, 0, int(unconverged[k]))
            if not np.isfinite(float(value[k])):
                raise FloatingPointError(f"the log likelihood of series {k} is not finite: check the scale of `y`")
            fits.append(Fit(model, data, order, clock, states, float(value[k]), sites, learnt[k], report))
        return fits


def padded(data: Series, length: int) -> Series:
    """The series with times at its end that carry no information."""
    room = (0, length - len(data.time))
    filled = lambda x: np.pad(x, room, mode="edge")  # noqa: E731
    columns = {name: filled(value) for name, value in data.covariates.items()}
    return Series(filled(data.time), filled(data.y), np.pad(data.observed, room), columns)


@compiled
def _evaluate(model: Any, vectors: Any, data: Series, sites: Site | None) -> Any:
    def one(vector: Any, data: Series, sites: Site | None) -> Any:
        (value, found), gradient = training.objective_and_gradient(model, vector, data, sites)
        return value, gradient, found.sites, found.report.unconverged > 0

    return jax.vmap(one)(vectors, data, sites)


@compiled
def _first(model: Any, vectors: Any, data: Series) -> Site:
    return jax.vmap(lambda vector, data: training.first_sites(constrain(model, vector), data))(vectors, data)


@compiled
def _condition(model: Any, vectors: Any, data: Series, sites: Site | None) -> Any:
    def one(vector: Any, data: Series, sites: Site | None) -> Any:
        at = constrain(model, vector)
        posterior, exact = training.condition(at, data, sites)
        value = exact if exact is not None else training.objective_and_gradient(model, vector, data, sites)[0][0]
        return value - (0.0 if exact is not None else log_prior(at)), posterior

    return jax.vmap(one)(vectors, data, sites)
