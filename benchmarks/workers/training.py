"""thiele on one task of the experiments, asked as the reference is.

    {"do": "prepare", "settings": {...}}   -> {"first": seconds, "again": seconds}   one step of the schedule, twice
    {"do": "iterate", "count": n}          -> {"seconds": [...]}
    {"do": "reach", "target": x}           -> {"compile": seconds, "seconds": seconds, "steps": n, "nlpd": x}
    {"do": "memory"}                       -> {"peak": bytes}

What the first of two equal fits takes longer than the second is the compiler.
"""

from __future__ import annotations

from typing import Any

import jax

import thiele as th
from benchmarks.training import Training
from benchmarks.workers.answering import answer_requests, memory_peak


class Thiele:
    def __init__(self) -> None:
        self.training: Training | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "versions":
                return {"versions": {"thiele": th.__version__, "jax": jax.__version__}}
            case "memory":
                return {"peak": memory_peak()}
            case "prepare":
                self.training = Training(*(request["settings"][key] for key in ("task", "kind", "rule")))
                return {"first": self.training.paper(1).seconds, "again": self.training.paper(1).seconds}
        if self.training is None:
            raise RuntimeError(f"`{request['do']}` was asked for before `prepare`")
        match request["do"]:
            case "iterate":
                return {"seconds": self.training.iterations(request["count"]).tolist()}
            case "reach":
                first, again = self.training.best(1), self.training.best(1)
                ran, steps, nlpd = self.training.reach(request["target"])
                compiling = first.seconds - again.seconds
                return {"compile": compiling, "seconds": ran.seconds, "steps": steps, "nlpd": nlpd}
        raise ValueError(f"`do` must be versions, prepare, iterate, reach or memory, got {request['do']!r}")


if __name__ == "__main__":
    answer_requests(Thiele().answer)
