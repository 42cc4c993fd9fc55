"""Which tasks can be run on this machine: the folds of some are files that are not carried."""

import pytest

import thiele as th
from experiments.tasks import TASKS


def needs(name):
    try:
        th.data.folds(name)
    except FileNotFoundError:
        return pytest.mark.skip(reason=f"the folds of {name} are not on this machine")
    return ()


AVAILABLE = [pytest.param(name, marks=needs(name)) for name in TASKS]
