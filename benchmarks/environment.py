"""An environment of its own for the peers, made once beside the repository's files and never part of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench-env"

# Releases are pinned, so that two runs of a benchmark compare the same things.
PEERS = ("celerite2==0.3.3", "tinygp==0.3.1", "smolgp==0.4.3", "jax==0.10.2", "jaxlib==0.10.2")


def peers_python() -> Path:
    """The interpreter that has the peers; installs them when that was not done yet or the list has changed."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "installed"
    wanted = hashlib.sha256("\n".join(PEERS).encode()).hexdigest()
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        print(f"installing the peers in {FOLDER.name}/ (once)", file=sys.stderr)
        venv.create(FOLDER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PEERS], check=True)
        stamp.write_text(wanted)
    return python
