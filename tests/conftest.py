"""What holds for every test."""

import os

import jax


def pytest_configure(config):
    # The tests compile hundreds of small programs and run each once: XLA's optimiser takes longer than it saves. The
    # slow ones, which run long programs and some of them against a clock, are optimised.
    if config.getoption("markexpr") == "not slow":
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for the programs that tests start
        jax.config.update("jax_disable_most_optimizations", True)
