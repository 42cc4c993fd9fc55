"""Information on pairs of neighbours, absorbed into the transitions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.chain import reference
from tests.chain.problems import Case, build, build_pairs, deterministic
from tests.chain.runs import assert_close, quick_jit, symmetrised
from thiele.chain import Information, absorb, log_normaliser, marginals

CASES = {
    "blocks": Case(n=5, blocks=(2, 1)),
    "deterministic": Case(n=5, blocks=(2, 1), but=deterministic),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
H = build(CASES["blocks"])[1].H


def through_the_chain(chain, pairs, info):
    chain, info, log = absorb(chain, pairs, info._replace(H=H))
    return log + log_normaliser(chain, info, lanes=1), marginals(chain, info, lanes=1)


def by_dense_algebra(chain, pairs, info):
    info = info._replace(H=H)
    return reference.log_normaliser(chain, info, pairs), reference.moments(chain, info, pairs)


@every_case
def test_absorbed_pairs_leave_log_normaliser_means_and_pair_covariances_unchanged(case):
    chain, info = build(case)
    pairs, info = build_pairs(case), info._replace(H=None)
    actual, expected = (quick_jit(f)(chain, pairs, info) for f in (through_the_chain, by_dense_algebra))
    assert_close(actual, expected, 1e-12)


def test_gradients_flow_through_the_absorption():
    chain, info = build(CASES["blocks"])
    arguments = chain, build_pairs(CASES["blocks"]), info._replace(H=None)
    gradient = partial(jax.grad, argnums=(0, 1, 2), has_aux=True)
    actual, _ = quick_jit(gradient(through_the_chain))(*arguments)
    expected, _ = quick_jit(gradient(by_dense_algebra))(*arguments)
    assert_close(symmetrised_all(actual), symmetrised_all(expected))


def symmetrised_all(gradient):
    by_chain, by_pairs, by_info = gradient
    precision = by_pairs.precision + by_pairs.precision.swapaxes(0, 1)
    return symmetrised((by_chain, by_info)), by_pairs._replace(precision=precision)


def test_pairs_alone_need_no_information_on_states():
    case = CASES["blocks"]
    chain, pairs = build(case)[0], build_pairs(case)
    nothing = Information(jnp.zeros((1, 1, case.n)))
    new, info, log = absorb(chain, pairs)
    expected, _ = quick_jit(through_the_chain)(chain, pairs, nothing)
    np.testing.assert_allclose(log + log_normaliser(new, info, lanes=1), expected, rtol=1e-12)
