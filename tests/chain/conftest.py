import jax
import pytest


@pytest.fixture(autouse=True)
def double_precision():
    """The tests' own arithmetic in float64; the library's is so anyway."""
    with jax.enable_x64(True):
        yield
