"""The time to a first fit."""

import sys

from benchmarks import cold


def test_a_row_has_medians():
    found = [{"import": float(i), "fit": 2.0 * i, "all": 3.0 * i, "process": 4.0 * i} for i in (1, 9, 2)]
    assert cold.row("none", found) == ("none", "2.00", "4.00", "6.00", "8.00")
    assert len(cold.COLUMNS) == 5


def test_the_process_that_measures_has_no_cache_unless_it_is_given_one(monkeypatch):
    seen = []

    def pretend(command, env, **_):
        seen.append((command, env))
        return type("Done", (), {"stdout": '{"import": 1.0, "fit": 1.0, "all": 2.0}'})

    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    monkeypatch.setattr(cold.subprocess, "run", pretend)
    assert cold.process(None)["all"] == 2.0
    cold.process("elsewhere")
    assert [env.get("JAX_COMPILATION_CACHE_DIR") for _, env in seen] == [None, "elsewhere"]
    assert seen[0][0][0] == sys.executable
