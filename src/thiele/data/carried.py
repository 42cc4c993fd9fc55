"""Three small published tables that travel with the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from thiele.data.records import Counts, Events, Series


def _read(name: str) -> np.ndarray:
    with files("thiele.data").joinpath("tables", name).open() as file:
        return np.loadtxt(file, delimiter=",", skiprows=1)


def motorcycle() -> Series:
    """Acceleration of a helmet in a simulated motorcycle accident: 133 values, with repeated times.

    >>> motorcycle().value.shape
    (133,)
    """
    table = _read("motorcycle.csv")
    return Series(
        time=table[:, 0],
        value=table[:, 1],
        name="motorcycle",
        units=("milliseconds after impact", "acceleration in g"),
        source=(
            "Schmidt, Mattern and Schüler (1981); Silverman (1985), J. R. Statistical Society B 47:1-52; "
            "`mcycle` of the R package MASS"
        ),
    )


def coal() -> Events:
    """Dates of the 191 explosions in British coal mines, 1851 to 1962, that killed ten or more people.

    >>> len(coal().time)
    191
    """
    return Events(
        time=_read("coal.csv"),
        name="coal",
        units="year",
        source="Jarrett (1979), Biometrika 66:191-193; `coal` of the R package boot",
    )


def coal_counts(bins: int = 333) -> Counts:
    """The coal explosions counted in `bins` bins, centred evenly from the first event to the last.

    The edges lie midway between centres and the outer two bins are open, so that every event is counted. The exposure
    is the range of the centres divided by the number of bins, as in the published experiments.

    >>> int(coal_counts().value.sum())
    191
    """
    if bins < 2:
        raise ValueError(f"`bins` must be at least 2, got {bins}")
    events = coal()
    centres = np.linspace(events.time[0], events.time[-1], bins)
    edges = (centres[1:] + centres[:-1]) / 2
    counts = np.bincount(np.searchsorted(edges, events.time, side="right"), minlength=bins)
    exposure = float((centres[-1] - centres[0]) / bins)
    return Counts(centres, counts, exposure, name="coal", units="year", source=events.source)


def co2() -> Series:
    """Monthly carbon dioxide in the air at Mauna Loa, 1959 to 1997: 468 values, in parts per million.

    A month stands at its beginning, January at .0. February to April 1964 were interpolated by the source.

    >>> co2().time[:2].round(3)
    array([1959.   , 1959.083])
    """
    table = _read("co2.csv")
    return Series(
        time=table[:, 0] + (table[:, 1] - 1) / 12,
        value=table[:, 2],
        name="co2",
        units=("year", "parts per million"),
        source="Keeling and Whorf (1997), Scripps Institution of Oceanography; `co2` of the R package datasets",
    )
