"""A worker in a process of its own: JSON requests go down its input, one a line, and answers come back."""

from __future__ import annotations

import json
import select
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT


class Slow(Exception):
    """No answer within the time allowed."""


class Worker:
    """One library in a process of its own; started again after a call that ran past the limit."""

    def __init__(self, library: str, python: Path | str, environment: dict[str, str] | None = None):
        self.environment = environment
        self.command = [str(python), "-m", f"benchmarks.workers.{library}"]
        self.process: subprocess.Popen[bytes] | None = None
        # A file, not a pipe: a library that says much must not be stopped by a full one.
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        if self.process is None:
            self.said.seek(0)
            self.said.truncate()
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                cwd=ROOT,
                env=self.environment,
            )
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], limit)
        if not ready:
            self.close(kill=True)
            raise Slow
        line = stdout.readline()
        if not line:
            self.close(kill=True)
            self.said.seek(0)
            words = self.said.read().decode(errors="replace").strip().splitlines()
            return {"failed": f"the process ended: {words[-1] if words else 'no message'}"}
        return json.loads(line)

    def close(self, kill: bool = False) -> None:
        if self.process is None:
            return
        if kill:
            self.process.kill()
        elif self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self.process = None
