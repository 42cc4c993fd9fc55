"""What the loaders return: numbers with their name, unit and source."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Series(NamedTuple):
    """One value at each time."""

    time: np.ndarray
    value: np.ndarray
    name: str
    units: tuple[str, str]
    source: str


class Events(NamedTuple):
    """Moments at which something happened, in order."""

    time: np.ndarray
    name: str
    units: str
    source: str


class Counts(NamedTuple):
    """How many events fell into each bin; `exposure` is the width of a bin, in the unit of time."""

    time: np.ndarray
    value: np.ndarray
    exposure: float
    name: str
    units: str
    source: str


class Labels(NamedTuple):
    """A label, 0 or 1, at each point of the plane."""

    inputs: np.ndarray
    label: np.ndarray
    name: str
    source: str
