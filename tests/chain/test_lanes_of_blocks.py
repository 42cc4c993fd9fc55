"""Lanes of blocks, for sums of kernels: against one lane of matrices, which is tested against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.chain.runs import assert_close, quick_jit
from thiele.chain import lanes_of_blocks, matrices
from thiele.chain.layouts import Layout, choose_layout
from thiele.chain.normaliser import value_and_gradient
from thiele.chain.smoothing import outputs_in
from thiele.chain.sweeps import predictions
from thiele.chain.types import Information
from thiele.steps import distinct_steps, prior_chain

N = 45
SUM = th.Matern32(1.0, 2.0) + th.QuasiPeriodic(0.5, 1.0, 3.0, 9.0, harmonics=1)
KERNELS = {
    "one output": SUM,
    "two outputs": th.Stack(SUM, th.Matern52(0.7, 1.5)),
    "three outputs": th.Stack(SUM, th.Matern52(0.7, 1.5), th.Matern12(0.4, 1.0)),
    "four outputs": th.Stack(
        th.Matern32(1.0, 2.0), th.Matern32(0.5, 1.0), th.Matern52(0.7, 1.5), th.Matern52(0.2, 3.0)
    ),
}
ONE_LANE = Layout(1, 1, N, matrices)
LANES = Layout(3, 2, 8, lanes_of_blocks)


def problem(name, centre=True, mix=False):
    rng = np.random.default_rng(2)
    sde = KERNELS[name].sde()
    H = np.asarray(sde.H)
    count = 1 if mix else len(H)
    root = rng.normal(size=(count, count, N))
    precision = np.einsum("ikn,jkn->ijn", root, root)
    precision[..., 20:25] = 0.0
    shift, at = rng.normal(size=(2, count, N)) * (precision[:1, 0] > 0.0)
    mixing = jnp.asarray(rng.normal(size=(count, len(H), N))) if mix else None
    info = Information(jnp.asarray(precision), jnp.asarray(shift), jnp.asarray(at) if centre else None, H, mixing)
    return prior_chain(sde, jnp.asarray(np.sort(rng.uniform(0.0, 15.0, N)))), info


def everything(layout, chain, info):
    """log Z, its gradient and the moments of the outputs, and of the predictions of the states."""

    def run(chain, info):
        return value_and_gradient(chain, info, layout, inputs=True), predictions(chain, info, layout)

    return quick_jit(lambda chain, *parts: run(chain, Information(*parts[:3], info.H, *parts[3:])))(
        chain, info.precision, info.shift, info.centre, info.mix
    )


few = [
    name if name in ("one output", "four outputs") else pytest.param(name, marks=pytest.mark.slow) for name in KERNELS
]


@pytest.mark.parametrize("name", few)
def test_lanes_are_one_lane(name):
    chain, info = problem(name)
    assert_close(everything(LANES, chain, info), everything(ONE_LANE, chain, info))


@pytest.mark.parametrize("name", [pytest.param("one output", marks=pytest.mark.slow), "two outputs"])
def test_lanes_of_mixtures_are_one_lane(name):
    chain, info = problem(name, centre=False, mix=True)
    assert_close(everything(LANES, chain, info), everything(ONE_LANE, chain, info))


@pytest.mark.slow
def test_derivatives_of_moments_are_those_of_one_lane():
    _, info = problem("two outputs")
    times = jnp.linspace(0.0, 15.0, N)

    def slopes(layout):
        def moments(precision, kernel):
            both = 0.5 * (precision + jnp.swapaxes(precision, 0, 1))
            found, _ = outputs_in(layout, prior_chain(kernel.sde(), times), info._replace(precision=both))
            return jnp.sum(jnp.sin(found.mean)) + jnp.sum(jnp.cos(found.var))

        return quick_jit(jax.grad(moments, argnums=(0, 1)))(info.precision, KERNELS["two outputs"])

    assert_close(slopes(LANES), slopes(ONE_LANE))


def test_lanes_are_chosen_for_long_sums_of_kernels_with_few_outputs():
    for outputs in (1, 6):
        assert choose_layout(5000, 15, outputs)[0] > 1
        assert choose_layout(5000, 15, outputs).algebra is lanes_of_blocks
    for n, d, outputs in ((4000, 15, 1), (5000, 15, 9), (5000, 15, 15), (5000, 200, 1)):
        assert choose_layout(n, d, outputs)[0] == 1


def test_a_long_regular_series_is_that_of_one_lane():
    n = 5000
    rng = np.random.default_rng(3)
    sde, times = (SUM + th.QuasiPeriodic(0.5, 1.0, 7.0, 9.0, harmonics=2)).sde(), np.arange(n) * 0.1
    chain = prior_chain(sde, jnp.asarray(times), distinct_steps(times))
    info = Information(jnp.full((1, 1, n), 25.0), None, jnp.asarray(rng.normal(size=(1, n))), np.asarray(sde.H))
    layouts = choose_layout(n, sde.dim, 1), Layout(1, -(-n // 64), 64, matrices)
    assert layouts[0].algebra is lanes_of_blocks
    found = [
        quick_jit(lambda chain, layout=layout: value_and_gradient(chain, info, layout))(chain) for layout in layouts
    ]
    assert_close(*found)
