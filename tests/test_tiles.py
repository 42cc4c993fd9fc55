"""Tiles of data: sums by segment against a scatter, and rows without the empty places of tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.tiles import MOST_TILES, Tile, add_by_segment, by_place, by_row, data_rows, sums_of

WIDTH, SEGMENTS = 3, 8
# Segments of tiles in three groups: some hold none, one is in two groups, and the last group is filled up.
SEGMENT = np.array([[0, 0, 1, 3], [3, 5, 5, 6], [6, 7, 7, 7]])
LENGTH = np.array([[3, 2, 1, 3], [1, 3, 3, 2], [3, 1, 0, 0]])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def group(k, sums=True, rows=True):
    """Group k as a visit sees it."""
    where = sums_of(SEGMENT, LENGTH, SEGMENTS) if sums else None, data_rows(LENGTH, WIDTH) if rows else None
    sums, rows = jax.tree.map(lambda x: jnp.asarray(x[k]), where)
    mask = jnp.asarray(np.arange(WIDTH) < LENGTH[k][:, None])
    return Tile(jnp.asarray(SEGMENT[k]), jnp.zeros(mask.shape), jnp.zeros(mask.shape), mask, {}, None, sums, rows)


def found(k):
    """What visits find: nothing in empty tiles."""
    x = np.random.default_rng(k).normal(size=(len(LENGTH[k]), 2, 2))
    return jnp.asarray(np.where(LENGTH[k][:, None, None] > 0, x, 0.0))


def test_sums_by_segment_are_those_of_a_scatter():
    by_lists = by_scatter = jnp.ones((SEGMENTS, 2, 2))
    for k in range(len(SEGMENT)):
        by_lists = add_by_segment(group(k), by_lists, found(k))
        by_scatter = add_by_segment(group(k, sums=False), by_scatter, found(k))
    np.testing.assert_allclose(by_lists, by_scatter, rtol=1e-15)


def test_one_group_may_hold_all_segments():
    one = jax.tree.map(jnp.asarray, sums_of(SEGMENT[:1], LENGTH[:1], SEGMENTS))
    assert one.tiles.shape[1] == SEGMENTS
    tile = group(0)._replace(sums=jax.tree.map(lambda x: x[0], one))
    nothing = jnp.zeros((SEGMENTS, 2, 2))
    np.testing.assert_allclose(
        add_by_segment(tile, nothing, found(0)), add_by_segment(group(0, sums=False), nothing, found(0)), rtol=1e-15
    )


def test_the_derivative_of_sums_by_segment():
    slope = jnp.asarray(np.random.default_rng(9).normal(size=(SEGMENTS, 2, 2)))
    total = lambda x: jnp.sum(slope * add_by_segment(group(1), jnp.zeros_like(slope), x))  # noqa: E731
    np.testing.assert_allclose(jax.grad(total)(found(1)), slope[SEGMENT[1]], rtol=1e-15)


def test_segments_of_many_tiles_and_groups_without_data_have_no_lists():
    many = np.zeros((1, MOST_TILES + 1), int)
    assert sums_of(many, np.ones_like(many), SEGMENTS) is None
    assert sums_of(SEGMENT, np.where(np.arange(3)[:, None] == 1, 0, LENGTH), SEGMENTS) is None
    assert data_rows(np.full((2, 4), WIDTH), WIDTH) is None
    assert data_rows(np.array([[WIDTH, 0], [0, 0]]), WIDTH) is None


@pytest.mark.parametrize("k", range(len(SEGMENT)))
def test_rows_hold_the_data_of_tiles_and_nothing_else(k):
    tile = group(k)
    x = jnp.asarray(np.random.default_rng(k).normal(size=(*tile.mask.shape, 2)))
    label = jnp.arange(tile.mask.size).reshape(tile.mask.shape)
    rows, labels = by_row(tile, (x, label))
    held = int(np.sum(LENGTH[k]))
    np.testing.assert_array_equal(rows[:held], np.asarray(x)[np.asarray(tile.mask)])
    # Rows beyond are data too: a likelihood can be asked about them.
    assert np.all(np.isin(np.asarray(labels), np.asarray(label)[np.asarray(tile.mask)]))
    np.testing.assert_array_equal(by_place(tile, rows), np.where(tile.mask[..., None], x, 0.0))
    np.testing.assert_array_equal(by_place(tile, labels > -1), tile.mask)


def test_derivatives_go_back_to_the_places_of_data():
    tile = group(2)
    x = jnp.asarray(np.random.default_rng(4).normal(size=tile.mask.shape))
    weight = jnp.asarray(np.random.default_rng(5).normal(size=tile.mask.shape))
    total = lambda x: jnp.sum(weight * by_place(tile, jnp.exp(by_row(tile, x))))  # noqa: E731
    expected = np.where(tile.mask, weight * np.exp(x), 0.0)
    np.testing.assert_allclose(jax.grad(total)(x), expected, rtol=1e-15)
    np.testing.assert_allclose(jax.jvp(total, (x,), (jnp.ones_like(x),))[1], np.sum(expected), rtol=1e-14)


def test_without_lists_rows_are_the_places():
    tile = group(1, rows=False)
    x = jnp.arange(12.0).reshape(tile.mask.shape)
    np.testing.assert_array_equal(by_row(tile, x), jnp.arange(12.0))
    np.testing.assert_array_equal(by_place(tile, by_row(tile, x)), x)
