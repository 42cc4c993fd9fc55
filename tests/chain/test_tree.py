"""The layout of a GPU, a tree of short lanes, taken on whatever device the tests have."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.chain import reference, test_mixed
from tests.chain.problems import Case, build
from tests.chain.runs import assert_close, found, problem, quick_jit, symmetrised, truth
from tests.chain.test_properties import THETA, parametrised
from thiele.chain import layouts, log_normaliser, one_kernel, outputs, posterior, whole_states
from thiele.chain.layouts import choose_layout


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(layouts, "backend", lambda: "gpu")


@pytest.fixture
def in_short_lanes(monkeypatch):
    """Lanes of three steps, so that a few states make several levels."""
    for name in ("STEPS_IN_KERNEL", "STEPS_OF_MATRICES", "STEPS_BELOW_MATRICES"):
        monkeypatch.setattr(layouts, name, 3)


slow = lambda *names: [pytest.param(name, marks=pytest.mark.slow) for name in names]  # noqa: E731
FAST = ["one block", "missing", "missing stretch", "deterministic", "certain start", "vague", "inducing states"]
LARGE = slow("blocks, no shift", "two outputs, no centre, no offset", "information on the state", "large state")


@pytest.mark.parametrize("name", [*FAST, *LARGE, *slow("large state, three outputs", "two states", "one state")])
def test_a_tree_has_the_moments_and_gradients_of_the_joint_gaussian(name, in_short_lanes):
    here, expected = found(name, None, "covariance"), truth(name)
    np.testing.assert_allclose([here.value, *here.logs], [expected.value] * 3, rtol=1e-10, atol=1e-12)
    assert_close(symmetrised(here.gradient), symmetrised(expected.gradient))
    assert_close(here.marginals, expected.marginals)
    for i, moments in enumerate(expected.filtered):
        assert_close((here.posterior.m[:, i], here.posterior.P[..., i]), moments)
    H = np.eye(len(expected.marginals.mean)) if problem(name)[1].H is None else problem(name)[1].H
    cov = jnp.einsum("li,ijn,mj->lmn", H, expected.marginals.cov, H)
    assert_close(here.outputs, (H @ expected.marginals.mean, cov))


def everything(chain, info, lanes=None):
    @quick_jit
    def run(chain, seen):
        value = lambda chain, seen: log_normaliser(chain, seen._replace(H=info.H), lanes)  # noqa: E731
        whole = seen._replace(H=info.H)
        return (
            jax.value_and_grad(value, (0, 1))(chain, seen),
            outputs(chain, whole, lanes),
            posterior(chain, whole, lanes),
        )

    return run(chain, info._replace(H=None))


LONG = {
    "one": Case(n=100, blocks=(1,)),
    "three": Case(n=50, blocks=(2, 1)),
    "five, two outputs": Case(n=200, blocks=(4, 1), outputs=2),
    "sixteen, on the state": Case(n=60, blocks=(16,), outputs=None, centre=False),
    "sixteen": Case(n=60, blocks=(8, 8)),
}


@pytest.mark.parametrize("name", ["one", *slow("three", "five, two outputs", "sixteen, on the state", "sixteen")])
def test_a_tree_equals_one_lane(name):
    chain, info = build(LONG[name])
    assert choose_layout(info.precision.shape[-1], len(chain.mean), len(info.precision)).lanes > 1
    assert_close(everything(chain, info), everything(chain, info, 1), 1e-9)


def test_a_tree_of_mixtures_equals_one_lane(in_short_lanes):
    chain, *parts = test_mixed.problem()
    info = test_mixed.mixed(*parts)
    assert_close(everything(chain, info), everything(chain, info, 1), 1e-9)


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_dense_formula(monkeypatch):
    monkeypatch.setattr(layouts, "STEPS_IN_KERNEL", 2)
    actual = quick_jit(jax.hessian(lambda theta: log_normaliser(*parametrised(theta))))(THETA)
    expected = quick_jit(jax.hessian(lambda theta: reference.log_normaliser(*parametrised(theta))))(THETA)
    assert_close(actual, expected, 1e-8)


def test_single_precision_is_close_to_double(in_short_lanes):
    chain, info = build(Case(n=40))
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (chain, info._replace(H=None)))
    run = quick_jit(lambda chain, seen: outputs(chain, seen._replace(H=info.H), form="covariance"))
    assert_close(run(*single), run(chain, info._replace(H=None)), 1e-3)


def recursion(carry, x):
    a = carry["a"] * x["u"] + jnp.log1p(x["v"] ** 2)
    return {"a": a, "b": carry["b"] + a}, (a, carry["b"])


def lanes_of_a_recursion(lanes, n):
    rng = np.random.default_rng(0)
    carry = {key: jnp.asarray(rng.standard_normal(lanes)) for key in "ab"}
    return carry, {key: jnp.asarray(rng.standard_normal((1, n))) for key in "uv"}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("lanes", "n"), [(70, 350), (70, 347), (1, 5)])
def test_the_kernel_walks_as_the_loop_does(lanes, n, reverse):
    carry, xs = lanes_of_a_recursion(lanes, n)
    by_kernel = one_kernel.in_kernel(lanes, recursion, reverse, carry, xs, interpret=True)
    assert_close(by_kernel, one_kernel.in_loop(lanes, recursion, reverse, carry, xs), 1e-14)


def way_back(after, x):
    row, (kept, _) = x
    moved, (found, _) = recursion(after, {"u": kept, "v": row["v"]})
    return moved, (found, row["u"])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("lanes", "n"), [(70, 350), (70, 347), (5, 5), (1, 4)])
def test_there_and_back_is_a_walk_and_another_in_reverse(lanes, n, apart):
    carry, xs = lanes_of_a_recursion(lanes, n)
    last, kept = one_kernel.in_loop(lanes, recursion, False, carry, xs)
    first, found = one_kernel.in_loop(lanes, way_back, True, carry, (xs, kept))
    for both in (one_kernel.both_in_loop, partial(one_kernel.both_in_kernel, interpret=True)):
        ends, starts, seen = both(lanes, recursion, way_back, apart, carry, carry, xs)
        if apart:
            assert seen[0].shape == (-(-n // lanes), lanes)
            seen = jax.tree.map(lambda x: x.T.reshape(1, -1)[:, :n], seen)
        assert_close((ends, starts, seen), (last, first, found), 1e-14)


@pytest.mark.parametrize(("lanes", "n"), [(70, 350), (67, 200)])
def test_a_walk_starts_from_the_states_of_a_shorter_one(lanes, n):
    shorter, rows = lanes_of_a_recursion(14, lanes)
    *_, (a, b) = one_kernel.both_in_loop(14, recursion, way_back, True, shorter, shorter, rows)
    in_line = {key: x.T.reshape(-1)[:lanes] for key, x in {"a": a, "b": b}.items()}
    _, xs = lanes_of_a_recursion(lanes, n)
    expected = one_kernel.in_loop(lanes, recursion, False, in_line, xs)
    start = {"a": a, "b": b}
    assert_close(one_kernel.in_loop(lanes, recursion, False, start, xs), expected, 0.0)
    assert_close(one_kernel.in_kernel(lanes, recursion, False, start, xs, interpret=True), expected, 1e-14)


def test_what_is_the_same_in_all_lanes_is_given_once():
    carry, xs = lanes_of_a_recursion(70, 347)
    once = {**carry, "b": carry["b"][:1]}
    filled = {**carry, "b": jnp.full(70, carry["b"][0])}
    expected = one_kernel.in_loop(70, recursion, False, filled, xs)
    assert_close(one_kernel.in_loop(70, recursion, False, once, xs), expected, 0.0)
    assert_close(one_kernel.in_kernel(70, recursion, False, once, xs, interpret=True), expected, 1e-14)


def test_the_kernel_walks_in_batches():
    carry, xs = lanes_of_a_recursion(7, 20)
    many = jax.tree.map(lambda x: jnp.stack([x, 2.0 * x]), carry)
    by_kernel = jax.vmap(lambda carry: one_kernel.in_kernel(7, recursion, False, carry, xs, interpret=True))(many)
    assert_close(by_kernel, jax.vmap(lambda carry: one_kernel.in_loop(7, recursion, False, carry, xs))(many), 1e-14)


@pytest.mark.parametrize("case", [Case(n=300), Case(n=300, blocks=(2, 1))])
def test_a_gpu_is_given_a_kernel_for_each_level_and_no_loop(case):
    chain, info = build(case)
    run = jax.jit(lambda chain, seen: log_normaliser(chain, seen._replace(H=info.H)))
    program = run.trace(chain, info._replace(H=None)).lower(lowering_platforms=("cuda",)).as_text()
    # 300 states in 60 lanes, 60 in 12, 12 in 3, 3 in one.
    assert program.count("xla.gpu.triton") == 4
    assert "stablehlo.while" not in program


def test_moments_take_a_gpu_one_kernel_more_for_each_level_below_the_last():
    chain, info = build(Case(n=300))
    run = jax.jit(lambda chain, seen: outputs(chain, seen._replace(H=info.H)))
    program = run.trace(chain, info._replace(H=None)).lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("xla.gpu.triton") == 4 + 3
    assert "stablehlo.while" not in program


def test_inducing_states_are_not_left_in_one_lane():
    chain, info = build(Case(n=40, blocks=(4,), outputs=None, centre=False))
    assert not whole_states.applies(chain, info, None)
    assert whole_states.applies(chain, info, 1)
