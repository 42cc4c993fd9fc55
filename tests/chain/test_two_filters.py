"""The backward filter, and the normaliser wherever the two filters meet (paper, appendix B.2)."""

import jax
import numpy as np
import pytest

from tests.chain.problems import Case, build
from thiele.chain import log_normaliser
from thiele.chain.two_filters import backward_information, log_normaliser_at

CASES = {
    "offsets and centres": Case(),
    "whole state": Case(outputs=None, blocks=(3,)),
    "no offset": Case(offset=False, centre=False),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_backward_and_meeting_in_the_middle_give_one_normaliser(name):
    chain, info = build(CASES[name])
    n = info.precision.shape[-1]
    truth = log_normaliser(chain, info)
    met = jax.jit(lambda places: jax.vmap(lambda place: log_normaliser_at(chain, info, place))(places))(np.arange(n))
    np.testing.assert_allclose(met, np.full(n, truth), rtol=1e-10)


def test_what_later_states_say_is_nothing_but_their_own_information_at_the_end():
    chain, info = build(Case(outputs=None, centre=False))
    found = backward_information(chain, info)
    np.testing.assert_allclose(found.J[..., -1], info.precision[..., -1])
    np.testing.assert_allclose(found.h[:, -1], info.shift[:, -1])
