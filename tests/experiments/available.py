"""Which tasks can be run on this machine: the files of some are not carried."""

import pytest

import thiele as th
from experiments.tasks import TASKS


def available(name):
    """A task as a parameter of a test, which is skipped where its files are missing."""
    try:
        th.data.folds(name)
        TASKS[name].load()
    except FileNotFoundError:
        return pytest.param(name, marks=pytest.mark.skip(reason=f"the files of {name} are not on this machine"))
    return pytest.param(name)


AVAILABLE = [available(name) for name in TASKS]
