"""Environments of their own for other libraries, made once beside the repository's files and never part of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench-env"


class Environment(NamedTuple):
    """What pip is asked to install, one call after the other, in a folder of this name."""

    name: str
    installs: tuple[tuple[str, ...], ...]


# Releases are pinned, so that two runs of a benchmark compare the same things.
PEERS = Environment("peers", (("celerite2==0.3.3", "tinygp==0.3.1", "smolgp==0.4.3", "jax==0.10.2", "jaxlib==0.10.2"),))
# BayesNewton's own pins name a jaxlib that is no longer offered. Of the releases that are, this is one with which it
# runs; it needs Python 3.11 or older.
REFERENCE = Environment(
    "reference",
    (
        ("--no-deps", "bayesnewton==1.3.4"),
        (
            *("jax==0.4.13", "jaxlib==0.4.13", "objax==1.7.0", "tensorflow-probability==0.21.0"),
            *("numba==0.68.1", "numpy==1.26.4", "scipy==1.12.0"),
        ),
    ),
)


def python_of(environment: Environment) -> Path:
    """The interpreter that has the packages; installs them when that was not done yet or the list has changed."""
    folder = FOLDER / environment.name
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(repr(environment.installs).encode()).hexdigest()
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        print(f"installing the packages of {FOLDER.name}/{environment.name}/ (once)", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        for packages in environment.installs:
            subprocess.run(
                [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages], check=True
            )
        stamp.write_text(wanted)
    return python
