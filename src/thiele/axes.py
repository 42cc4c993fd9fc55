"""The libraries that times and values come from, and that tables go back to: numpy, pandas, polars, xarray.

None of them is imported before a user has: an object is known by the name of its library, and is asked for arrays by
its own methods. What came in with an index goes out with one, of the same library, name and time zone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

LIBRARIES = ("pandas", "polars", "xarray")
TO_DAYS = np.timedelta64(1, "D") / np.timedelta64(1, "us")


class Axis(NamedTuple):
    """Where times came from: their library, time zone and name."""

    library: str = "numpy"
    zone: str | None = None
    name: str | None = None


def library_of(thing: Any) -> str:
    """The library whose object this is, "numpy" for all that it can read by itself."""
    name = type(thing).__module__.partition(".")[0]
    return name if name in LIBRARIES else "numpy"


def axis_of(t: Any) -> Axis:
    """What has to be known to give times back as they came."""
    library = library_of(t)
    name = getattr(t, "name", None) if library != "numpy" else None
    zone = None
    if library == "pandas":
        zone = getattr(getattr(t, "dt", t), "tz", None) if _has_dates(t) else None
    elif library == "polars":
        zone = getattr(t.dtype, "time_zone", None)
    return Axis(library, None if zone is None else str(zone), None if name in (None, "") else str(name))


def _has_dates(t: Any) -> bool:
    kind = str(getattr(t, "dtype", ""))
    return kind.startswith(("datetime64", "period"))


def plain(thing: Any) -> np.ndarray:
    """Times or values as numpy has them: dates of a time zone in UTC, missing values as NaN."""
    library = library_of(thing)
    if library == "pandas":
        return _from_pandas(thing)
    if library == "polars":
        return _from_polars(thing)
    return np.asarray(thing)


def _from_pandas(thing: Any) -> np.ndarray:
    kind = str(getattr(thing, "dtype", ""))
    if kind.startswith("period"):
        return (thing.dt if hasattr(thing, "dt") else thing).to_timestamp().to_numpy()
    if kind.startswith("datetime64") and getattr(getattr(thing, "dt", thing), "tz", None) is not None:
        zoned = thing.dt if hasattr(thing, "dt") else thing
        return zoned.tz_convert("UTC").to_numpy(dtype="datetime64[ns]")
    if kind in ("boolean", "Float32", "Float64") or kind.lstrip("U").startswith("Int"):
        return thing.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(thing)


def _from_polars(thing: Any) -> np.ndarray:
    # Dates of a time zone are kept in UTC, and come as such; missing integers come as NaN.
    if thing.dtype.is_temporal() and thing.null_count():
        return np.array(thing.to_list(), dtype=object)
    return thing.to_numpy()


def separated(t: Any, y: Any) -> tuple[Any, Any]:
    """Times and values; a pandas Series or a DataArray of xarray with one dimension has both."""
    if y is not None:
        return t, y
    library = library_of(t)
    if library == "pandas" and hasattr(t, "index") and getattr(t, "ndim", 0) == 1:
        return t.index, t
    if library == "xarray" and getattr(t, "ndim", 0) == 1 and t.dims[0] in t.coords:
        return t.coords[t.dims[0]], t
    raise TypeError(
        "`y` must be given, unless the first argument has an index of its own (a pandas Series, or an xarray "
        f"DataArray of one dimension with a coordinate); got {type(t).__name__}"
    )


class Table(Mapping[str, np.ndarray]):
    """Columns of one length by name, for those who came with plain arrays: `table["mean"]`, `pd.DataFrame(table)`."""

    SHOWN = 10

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = {name: np.asarray(column) for name, column in columns.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns, as of any mapping; `rows` is that of the rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        """How many rows each column has."""
        return len(next(iter(self._columns.values()), ()))

    def __repr__(self) -> str:
        n = self.rows
        which = list(range(n)) if n <= self.SHOWN else [*range(self.SHOWN - 2), n - 2, n - 1]
        cells = [[name, *(_cell(column[i]) for i in which)] for name, column in self._columns.items()]
        widths = [max(map(len, column)) for column in cells]
        lines = [
            "  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in zip(*cells, strict=True)
        ]
        if n > self.SHOWN:
            lines.insert(self.SHOWN - 1, f"  … {n - self.SHOWN} rows more")
        return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def as_given(axis: Axis, origin: np.datetime64 | None, numbers: np.ndarray) -> Any:
    """Numbers of a clock as its user's times: an index or a Series, in their time zone."""
    array = numbers if origin is None else dates(origin, numbers)
    if axis.library == "pandas":
        pd = importlib.import_module("pandas")
        index = pd.Index(array, name=axis.name)
        return index.tz_localize("UTC").tz_convert(axis.zone) if axis.zone is not None else index
    if axis.library == "polars":
        pl = importlib.import_module("polars")
        column = pl.Series(axis.name or "time", array)
        zoned = axis.zone is not None
        return column.dt.replace_time_zone("UTC").dt.convert_time_zone(axis.zone) if zoned else column
    if axis.library == "xarray":
        name = axis.name or "time"
        # Nanoseconds, as all versions of xarray have them.
        exact = array if origin is None else array.astype("datetime64[ns]")
        return importlib.import_module("xarray").DataArray(exact, dims=name, name=name)
    return array


def dates(origin: np.datetime64, numbers: np.ndarray) -> np.ndarray:
    """Days since `origin` as dates, to the microsecond: a double has about that many digits for a century of days."""
    return origin.astype("datetime64[us]") + np.round(numbers * TO_DAYS).astype("timedelta64[us]")


def table(axis: Axis, times: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Columns over times as the user's library holds them: a DataFrame with an index, a Dataset, a `Table`."""
    if axis.library == "pandas":
        pd = importlib.import_module("pandas")
        return pd.DataFrame(dict(columns), index=times)
    if axis.library == "polars":
        pl = importlib.import_module("polars")
        return pl.DataFrame({axis.name or "time": times, **columns})
    if axis.library == "xarray":
        xr = importlib.import_module("xarray")
        name = axis.name or "time"
        return xr.Dataset({key: (name, column) for key, column in columns.items()}, {name: np.asarray(times)})
    return Table({"time": np.asarray(times), **columns})
