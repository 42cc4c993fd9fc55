"""What the paper leaves open, as variants of the tasks."""

import numpy as np
import pytest

from experiments.choices import CHOICES, PADDING
from experiments.tasks import split
from tests.experiments.available import available


def states(task):
    return task.model(float).kernel.sde().dim


def test_an_envelope_of_higher_order_doubles_the_states_of_the_seasons():
    # The published programs have 31 and 59: they carry a sine of frequency zero, which is zero, for each season.
    assert [states(task) for task in CHOICES["airline"].values()] == [3 + 26, 3 + 26, 3 + 52]


def test_both_audio_models_have_three_subbands_and_three_modulators():
    assert [states(task) for task in CHOICES["audio"].values()] == [15, 15]


@pytest.mark.parametrize("name", [available("airline")])
def test_padding_is_taken_out_of_the_same_fold(name):
    task = CHOICES[name]["without padding"]
    whole, cut = split(task, 0), task.split(task, 0)
    assert len(whole.train) + len(whole.test) - len(cut.train) - len(cut.test) == PADDING
    assert set(cut.test) == {row for row in whole.test if row >= PADDING}
    assert np.sum(task.load().value[:PADDING]) == 0
