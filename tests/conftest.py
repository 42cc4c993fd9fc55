"""What holds for every test."""

import os
import subprocess
import sys
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
        if not hasattr(config, "workerinput"):  # before processes of their own are started, which inherit it
            _compile_as_the_library_does()


def _compile_as_the_library_does():
    """The option of `thiele.programs.LEAN` for programs that tests compile themselves. A compiler without it ends the
    process that asks for it.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
    asking = [sys.executable, "-c", "import jax; jax.devices()"]
    if subprocess.run(asking, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True).returncode == 0:
        os.environ["XLA_FLAGS"] = flags


@pytest.fixture(autouse=True)
def _old_programs_are_dropped_in_time():
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MANY:
        jax.clear_caches()
