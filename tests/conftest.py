"""What holds for every test."""

import os
from pathlib import Path

import jax
import pytest

# Every compiled program holds pieces of memory, of which a process may have 65,530; beyond them the compiler crashes.
MANY = 20_000
MAPS = Path("/proc/self/maps")


def pytest_configure(config):
    # The tests compile hundreds of small programs and run each once: XLA's optimiser takes longer than it saves. The
    # slow ones, which run long programs and some of them against a clock, are optimised.
    if config.getoption("markexpr") == "not slow":
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for the programs that tests start
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def _old_programs_are_dropped_in_time():
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MANY:
        jax.clear_caches()
