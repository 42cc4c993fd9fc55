"""`thiele`: fit, predict, forecast, report, demo and bench from a shell, on CSV and Parquet files.

A program for people: what is wrong with a file is said by column and line, results go to the standard output, remarks
and progress to the standard error, and the exit status tells one from the other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

try:
    import typer  # noqa: F401
except ImportError:  # the only use of this folder is the command line
    sys.exit("the command line needs typer, which is not installed: `pip install thiele[cli]`")

from thiele.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point. What was compiled is kept for the next time, in the user's folder for such things."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "thiele" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    app()
