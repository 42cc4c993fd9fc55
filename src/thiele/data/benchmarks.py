"""The benchmark sets of the literature on Markovian Gaussian processes, as the published experiments prepare them."""

from __future__ import annotations

from datetime import date

import numpy as np

from thiele.data.files import FILES, find
from thiele.data.records import Counts, Events, Labels, Series

# A day number is the proleptic Gregorian ordinal plus this, as in the published experiments.
_DAY_ZERO = 366


def banana() -> Labels:
    """The banana classification set: 5300 points in the plane, both inputs of unit variance."""
    table = np.loadtxt(find("banana.csv"), delimiter=",", skiprows=1)
    label = (table[:, 2] > 0).astype(np.int8)
    return Labels(table[:, :2], label, name="banana", source=FILES["banana.csv"].source)


def binary() -> Series:
    """A synthetic series of 10,000 zeros and ones at irregular times: the sign of a damped wave in noise.

    Made here by the published recipe; no file is needed.

    >>> binary().value.mean().round(3)
    np.float64(0.496)
    """
    time, value, _ = _binary()
    return Series(
        time, value, name="binary", units=("time", "0 or 1"), source="synthetic, legacy generator with seed 99"
    )


def _binary() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # The recipe names numpy's legacy generator; a modern one would give other numbers.
    rng = np.random.RandomState(99)
    n = 10_000
    u = np.sort(70 * rng.rand(n))
    wave = 12 * np.sin(4 * np.pi * u) / (0.25 * np.pi * u + 1)
    value = (wave + np.sqrt(0.01) * rng.randn(n) > 0).astype(np.int8)
    return 100 * u, value, rng.permutation(n)


def airline() -> Events:
    """Days of the 1210 accidents of commercial airliners, 1919 to 2017, as day numbers in order."""
    days = [date.fromisoformat(line).toordinal() for line in find("airline_accidents.csv").read_text().split()[1:]]
    return Events(
        time=np.sort(np.array(days, dtype=np.float64) + _DAY_ZERO),
        name="airline",
        units="day",
        source=FILES["airline_accidents.csv"].source,
    )


def airline_counts(padding: int = 61) -> Counts:
    """Accidents a day, from `padding` days before the first event to the last: 36,020 days by default."""
    events = airline()
    first, last = int(events.time[0]) - padding, int(events.time[-1])
    counts = np.bincount(events.time.astype(np.int64) - first)
    days = np.arange(first, last + 1, dtype=np.float64)
    return Counts(days, counts, 1.0, name="airline", units="day", source=events.source)


def audio() -> Series:
    """Half a second of female speech at 44,100 samples a second, in milliseconds.

    The times run from 0 to the duration inclusive, as in the published experiments.
    """
    with np.load(find("speech_female.npz")) as file:
        samples, rate = file["samples"].astype(np.float64), int(file["sample_rate"])
    time = np.linspace(0.0, 1000 * len(samples) / rate, len(samples))
    source = FILES["speech_female.npz"].source
    return Series(time, samples, name="audio", units=("millisecond", "amplitude"), source=source)


def electricity() -> Series:
    """Power drawn by one household, each minute from 2006-12-16 17:24 to 2007-06-30; NaN where it was not measured."""
    with np.load(find("electricity.npz")) as file:
        minute, power = file["minute"], file["global_active_power"]
    # Three decimals were published; float32 holds them up to rounding.
    value = np.round(power.astype(np.float64), 3)
    source = FILES["electricity.npz"].source
    return Series(minute / 1440, value, name="electricity", units=("day", "kilowatt"), source=source)


_SEEDED = {"banana": (99, 5300), "audio": (123, 22_050), "airline": (123, 36_020), "electricity": (99, 262_080)}


def folds(name: str, k: int = 10) -> list[np.ndarray]:
    """The rows that each of the published folds tests on; the others train, but for a remainder that is not used.

    >>> folds("banana")[0][:5]
    array([3705, 3575, 2726, 4995, 3667])
    """
    if name in _SEEDED:
        seed, n = _SEEDED[name]
        order = np.random.RandomState(seed).permutation(n)
    elif name == "binary":
        order = _binary()[2]
    elif name in ("motorcycle", "coal"):
        order = np.loadtxt(find(f"{name}_folds.csv"), skiprows=1, dtype=np.int64)
    else:
        raise ValueError(f"`name` must be one of {sorted([*_SEEDED, 'binary', 'coal', 'motorcycle'])}, got {name!r}")
    size = len(order) // k
    return list(order[: size * k].reshape(k, size))
