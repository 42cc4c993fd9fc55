"""The loop that answers requests, and the memory of this process: what every worker shares.

Only the standard library is used here, so that the file runs in any worker's environment.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any


class Unable(Exception):
    """The library has no way to do this, or none that is linear in the data; the message says why."""


def memory_now() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_peak() -> int:
    # A child's ru_maxrss starts at the size of the parent that started it; VmHWM counts this process alone.
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def answer_requests(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """One JSON request a line on the standard input, one JSON answer a line on the standard output, until it ends."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Unable as reason:
            found = {"unable": str(reason)}
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
