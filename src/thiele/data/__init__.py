"""Data: three published tables that travel with the package, and loaders for the benchmark sets of the literature."""

from thiele.data.benchmarks import airline, airline_counts, audio, banana, binary, electricity, folds
from thiele.data.carried import co2, coal, coal_counts, motorcycle
from thiele.data.records import Counts, Events, Labels, Series

__all__ = [
    "Counts",
    "Events",
    "Labels",
    "Series",
    "airline",
    "airline_counts",
    "audio",
    "banana",
    "binary",
    "co2",
    "coal",
    "coal_counts",
    "electricity",
    "folds",
    "motorcycle",
]
