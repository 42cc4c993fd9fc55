"""Records as JSON lines, one file a task; what is there is not run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

Key = tuple[str, str, int, str]


def key(record: dict[str, Any]) -> Key:
    """What tells one run from another."""
    return record["task"], record["method"], record["fold"], record["schedule"]


def read(folder: Path = RESULTS) -> dict[Key, dict[str, Any]]:
    """All records in a folder, by key. A line that an interrupt cut short is as if it had never been written."""
    records = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            records[key(record)] = record
    return records


def append(record: dict[str, Any], folder: Path = RESULTS) -> None:
    """Add one line to the task's file. NaN is no JSON, and no result either."""
    line = json.dumps(record, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['task']}.jsonl"
    cut_short = path.exists() and not path.read_text().endswith("\n") and path.stat().st_size > 0
    with path.open("a") as file:
        file.write(("\n" if cut_short else "") + line + "\n")
