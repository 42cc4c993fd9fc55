"""Data in tiles of fixed width, each inside one segment; how tiles are added up by segment, and empty places left out.

Tiles come in groups, of which one at a time is in memory. Where things are is found in numpy, once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from thiele.even import Polynomials
from thiele.runs import added, rows_of

# Of so many tiles in a segment a sum is a sum of rows that are looked up.
MOST_TILES = 8
# Where more places than this share hold a datum, none are left out.
FULL = 0.9
NOWHERE = np.iinfo(np.int32).max


class Sums(NamedTuple):
    """The tiles of each segment, from the first that a group has data in; groups have as many segments as the one with
    most.
    """

    first: Int[Array, "*groups"]
    tiles: Int[Array, "*groups segments most"]


class Rows(NamedTuple):
    """Data without the empty places of their tiles: the place of each, and the row of each place."""

    place: Int[Array, "*groups rows"]
    row: Int[Array, "*groups places"]


class Cut(NamedTuple):
    """Segments, first data and lengths of tiles, polynomials at their data, and where things are."""

    segment: Int[Array, "*groups tiles"]
    start: Int[Array, "*groups tiles"]
    length: Int[Array, "*groups tiles"]
    even: Polynomials | None = None
    sums: Sums | None = None
    rows: Rows | None = None


class Tile(NamedTuple):
    """Some data of one segment; a group of tiles has a leading axis, and knows where its data are."""

    segment: Int[Array, ""]
    time: Float[Array, " width"]
    y: Float[Array, " width *k"]
    mask: Bool[Array, " width"]
    covariates: dict[str, Float[Array, " width"]]
    space: Float[Array, "width D"] | None = None
    sums: Sums | None = None
    rows: Rows | None = None


def sums_of(
    segment: Int[np.ndarray, "groups tiles"], length: Int[np.ndarray, "groups tiles"], segments: int
) -> Sums | None:
    """None: some segment has so many tiles that to look them up would not pay."""
    real = [of_group[size > 0] for of_group, size in zip(segment, length, strict=True)]
    if any(len(of_group) == 0 for of_group in real):
        return None
    span = segments if len(real) == 1 else max(int(of_group[-1] - of_group[0]) + 1 for of_group in real)
    first = [min(int(of_group[0]), segments - span) for of_group in real]
    tables = [rows_of(of_group - start, span) for of_group, start in zip(real, first, strict=True)]
    most = max(table.shape[1] for table in tables)
    if most > MOST_TILES:
        return None
    wide = [np.pad(table, [(0, 0), (0, most - table.shape[1])], constant_values=NOWHERE) for table in tables]
    return Sums(np.asarray(first, np.int32), np.stack(wide))


def data_rows(length: Int[np.ndarray, "groups tiles"], width: int) -> Rows | None:
    """None: nearly all places hold a datum."""
    held = (np.arange(width) < length[:, :, None]).reshape(len(length), -1)
    most = int(np.max(np.sum(held, axis=1)))
    if most > FULL * held.shape[1] or not np.all(np.any(held, axis=1)):
        return None
    row = np.where(held, np.cumsum(held, axis=1) - 1, NOWHERE)
    places = [np.flatnonzero(of_group) for of_group in held]
    # A row beyond the last is that of a datum once more: what a likelihood makes of it is finite, and not looked at.
    place = np.stack([np.pad(x, (0, most - len(x)), mode="edge") for x in places])
    return Rows(place.astype(np.int32), row.astype(np.int32))


def add_by_segment(tile: Tile, total: Float[Array, "S *k"], found: Float[Array, "tiles *k"]) -> Float[Array, "S *k"]:
    """What some tiles found, added to what their segments have."""
    if tile.sums is None:
        return total.at[tile.segment].add(found)
    first, tiles = tile.sums
    part = added(found, tile.segment - first, tiles)
    if part.shape == total.shape:
        return total + part
    here = lax.dynamic_slice_in_dim(total, first, part.shape[0])
    return lax.dynamic_update_slice_in_dim(total, here + part, first, 0)


def by_row(tile: Tile, x: Any) -> Any:
    """What is at the places of some tiles, (tiles, width, …), row after row: loops over two axes are faster than over
    three.
    """
    flat, rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), x), tile.rows
    return flat if rows is None else jax.tree.map(lambda x: _looked_up(x, rows.place, rows.row), flat)


def by_place(tile: Tile, x: Any) -> Any:
    """The inverse; empty places hold zeros."""
    rows = tile.rows
    if rows is not None:
        x = jax.tree.map(lambda x: _looked_up(x, rows.row, rows.place), x)
    return jax.tree.map(lambda x: x.reshape(*tile.mask.shape, *x.shape[1:]), x)


def _looked_up(x: Array, there: Int[Array, " rows"], back: Int[Array, " places"]) -> Array:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.asarray(x).at[there].get(mode="fill", fill_value=0)
    return added(x, back, there[:, None])
