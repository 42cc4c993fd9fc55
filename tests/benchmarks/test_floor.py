"""The floor of an iteration is a count that can be done by hand."""

import pytest

from benchmarks.floor import Sizes, operations
from benchmarks.training import Training
from tests.experiments.available import available


def test_a_full_model_is_counted_datum_by_datum():
    assert operations(Sizes(n=10, m=0, d=2, latents=1, block=2)) == pytest.approx(10 * (1.5 * 8 * 3 * 4 + 200))


def test_a_sparse_model_is_counted_segment_by_segment_and_datum_by_datum():
    segments, data = 1.5 * 5 * 42 * 8, 10 * (3 * 2 * 16 + 200)
    assert operations(Sizes(n=10, m=4, d=2, latents=1, block=2)) == pytest.approx(segments + data)


SIZES = {"coal": ("sparse", Sizes(297, 15, 3, 1, 3)), "motorcycle": ("full", Sizes(117, 0, 4, 2, 2))}


@pytest.mark.parametrize("name", [available(name) for name in SIZES])
def test_sizes_are_read_off_the_task(name):
    kind, sizes = SIZES[name]
    assert Training(name, kind, "CVI").sizes() == sizes
