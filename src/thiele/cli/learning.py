"""From a file to a fit, or to a panel of fits where a column of keys tells series apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import thiele as th
from thiele import reading
from thiele.cli.options import Stated
from thiele.cli.showing import remark
from thiele.reading import Chosen, Problem

KINDS = (
    *("Gaussian", "StudentT", "LaplaceNoise", "Bernoulli", "Poisson", "NegativeBinomial", "ZeroInflatedPoisson"),
    *("Gamma", "Exponential", "LogNormal", "Weibull", "Beta"),
)
LIKELIHOODS: dict[str, Callable[[], Any]] = {name.lower(): getattr(th, name) for name in KINDS}
UNLIKE = 10.0  # spreads of series that differ by more than this do not start from the same values


def loaded_or_learnt(file: Path, stated: Stated, quiet: bool) -> th.Fit | th.Panel:
    """A saved fit or panel, or one of a file of data."""
    if file.suffix == ".thiele" and file.exists():
        if stated.key is not None:
            raise Problem(f"{file} is a saved fit: --key is for files of data")
        return th.load(file)
    return learnt(file, stated, quiet)


def learnt(file: Path, stated: Stated, quiet: bool) -> th.Fit | th.Panel:
    """A model for the series of a file, chosen and fitted."""
    table = reading.read(file)
    data = reading.choose(table, stated.time, stated.value, stated.date_format, stated.key)
    remark(quiet, f"{file}: {len(data.y)} rows, times from {data.time!r}, values from {data.value!r}")
    for words in data.remarks:
        remark(quiet, f"  {words}")
    how = _choices(stated)
    name = stated.exposure
    covariates = {} if name is None else {"exposure": reading.numbers(table, name, "exposures")}
    if data.keys is None:
        if stated.share:
            raise Problem("--share needs --key, the column that tells series apart")
        model = th.GP.auto(data.t, data.y, **how, **covariates)
        for words in model.notes:
            remark(quiet, f"  {words}")
        return model.fit(data.t, data.y, progress=False if quiet else None, **covariates)
    # One model for all: chosen for the series that has the most to say about it.
    longest, rows = data.longest()
    model = th.GP.auto(data.t[rows], data.y[rows], **how, inducing=None, **{k: v[rows] for k, v in covariates.items()})
    remark(quiet, f"  {len(set(data.keys))} series by {stated.key!r}; one model, chosen for the longest, {longest!r}:")
    for words in (*model.notes, *_unlike(data)):
        remark(quiet, f"  {words}")
    panel = th.fit_panel(model, data.t, data.y, data.keys, share=stated.share, **covariates)
    return th.Panel(dict(panel), str(stated.key))


def _choices(stated: Stated) -> dict[str, Any]:
    how: dict[str, Any] = {}
    if stated.likelihood is not None:
        if stated.likelihood.lower() not in LIKELIHOODS:
            raise Problem(f"--likelihood must be one of {', '.join(LIKELIHOODS)}; got {stated.likelihood!r}")
        how["likelihood"] = LIKELIHOODS[stated.likelihood.lower()]()
    if stated.season:
        how["seasons"] = [] if stated.season == ["none"] else [length(words) for words in stated.season]
    return how


def _unlike(data: Chosen) -> list[str]:
    """A word of caution where one set of starting values cannot suit all series."""
    assert data.keys is not None
    spreads = {name: float(np.nanstd(data.y[data.keys == name])) for name in dict.fromkeys(data.keys.tolist())}
    most, least = max(spreads, key=spreads.__getitem__), min(spreads, key=spreads.__getitem__)
    if spreads[most] <= UNLIKE * spreads[least]:
        return []
    caution = f"the values of series {most!r} vary more than {UNLIKE:g} times as much as those of {least!r}"
    return [f"{caution}: scale series alike, or fit them one by one"]


def length(words: str) -> Any:
    """A number, or a duration as it stands."""
    try:
        return float(words)
    except ValueError:
        return words
