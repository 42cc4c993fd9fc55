"""Identities that need no dense reference, and the transformations of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain import reference
from tests.chain.problems import Case, build, sharp
from tests.chain.runs import assert_close, quick_jit
from thiele.chain import Chain, Information, Move, Tabulated, choose_form, log_normaliser, marginals, outputs, posterior

CASE = Case(n=8)
H = build(CASE)[1].H
forms = pytest.mark.parametrize("form", ["covariance", "square_root"])
# Derivatives of the square-root form take long to compile.
SLOW_ROOT = pytest.param("square_root", marks=pytest.mark.slow)


@quick_jit
def value(chain, info):
    return log_normaliser(chain, info._replace(H=H), lanes=1)


@quick_jit
def last_state(chain, info):
    """log Z and the prediction of one more state, which the last move leads to."""
    found, log = posterior(chain, info._replace(H=H), lanes=1)
    return log, found.m[:, -1], found.P[..., -1]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.sampled_from([2, 5]))
def test_a_chain_cut_in_two_and_joined_is_the_whole(seed, cut):
    chain, info = build(CASE, seed)
    info, moves = info._replace(H=None), chain.inputs
    part = lambda x, rows: jax.tree.map(lambda leaf: leaf[..., rows], x)  # noqa: E731
    first = chain._replace(inputs=part(moves, slice(0, cut - 1)))
    log, m, P = last_state(first, part(info, slice(0, cut)))
    A, Q, b = moves.A[0][0, ..., cut - 1], moves.Q[0][0, ..., cut - 1], moves.b[:, cut - 1]
    rest = Chain(A @ m + b, ((A @ P @ A.T + Q)[None],), Tabulated(), part(moves, slice(cut, None)))
    joined = log + value(rest, part(info, slice(cut, None)))
    np.testing.assert_allclose(joined, value(chain, info), rtol=1e-10, atol=1e-10)


def test_the_order_of_the_blocks_does_not_matter():
    chain, info = build(Case(n=5, blocks=(2, 1)))
    order = np.array([2, 0, 1])
    turned = Chain(
        chain.mean[order],
        chain.cov[::-1],
        Tabulated(),
        Move(chain.inputs.A[::-1], chain.inputs.Q[::-1], chain.inputs.b[order]),
    )
    run = quick_jit(lambda chain, info: outputs(chain, info._replace(H=np.ones((1, 3))), lanes=2))
    info = info._replace(H=None)
    assert_close(run(turned, info), run(chain, info), 1e-12)


@pytest.fixture(scope="module")
def long_series():
    """A forgetful chain, many chunks long, with a hole in its information."""
    with jax.enable_x64(True):
        chain, info = build(Case(n=1000))
        hole = (jnp.arange(1000) < 400) | (jnp.arange(1000) > 420)
        chain = chain._replace(inputs=chain.inputs._replace(A=(0.7 * chain.inputs.A[0],)))
        return chain, info._replace(precision=info.precision * hole, shift=info.shift * hole)


def test_lanes_that_have_forgotten_their_start_equal_one_lane(long_series):
    chain, info = long_series
    run = quick_jit(
        lambda chain, info, lanes: (
            jax.value_and_grad(lambda c, i: log_normaliser(c, i._replace(H=H), lanes), (0, 1))(chain, info),
            outputs(chain, info._replace(H=H), lanes),
        ),
        static_argnums=2,
    )
    info = info._replace(H=None)
    assert_close(run(chain, info, 3), run(chain, info, 1), 1e-10)


@forms
def test_sharp_information_pins_the_outputs(form):
    chain, info = build(CASE._replace(shift=False, but=sharp(1e12)))
    run = quick_jit(lambda chain: (outputs(chain, info, 1, form), marginals(chain, info, 1, form).cov))
    (f, log), cov = run(chain)
    expected = reference.moments(chain, info)
    np.testing.assert_allclose(f.mean, info.centre, rtol=0.0, atol=1e-9)
    assert_close((log, f.mean, cov), (reference.log_normaliser(chain, info), H @ expected.mean, expected.cov))


def parametrised(theta):
    """A chain that depends on three numbers: a rate, a noise level and a precision."""
    chain, info = build(Case(n=3))
    A, Q, b = chain.inputs
    moves = Move((theta[0] * A[0],), (theta[1] ** 2 * Q[0],), b)
    return chain._replace(inputs=moves), info._replace(precision=jnp.exp(theta[2]) * info.precision)


THETA = np.array([0.8, 1.2, -0.3])


@pytest.mark.parametrize(("lanes", "form"), [(2, "covariance"), pytest.param(1, "square_root", marks=pytest.mark.slow)])
def test_second_derivatives_are_those_of_the_dense_formula(lanes, form):
    actual = quick_jit(jax.hessian(lambda theta: log_normaliser(*parametrised(theta), lanes, form)))(THETA)
    expected = quick_jit(jax.hessian(lambda theta: reference.log_normaliser(*parametrised(theta))))(THETA)
    assert_close(actual, expected, 1e-8)


@pytest.mark.parametrize("form", ["covariance", SLOW_ROOT])
def test_derivatives_of_moments_are_those_of_the_dense_formula(form):
    actual = quick_jit(jax.jacrev(lambda theta: marginals(*parametrised(theta), 1, form)))(THETA)
    expected = quick_jit(jax.jacrev(lambda theta: reference.moments(*parametrised(theta))))(THETA)
    assert_close(actual, expected, 1e-8)


@forms
def test_gradients_inside_vmap_equal_a_loop_over_models(form):
    many = jnp.stack([THETA, 0.9 * THETA, 1.1 * THETA])
    gradient = jax.value_and_grad(lambda theta: log_normaliser(*parametrised(theta), 1, form))
    values, slopes = quick_jit(jax.vmap(gradient))(many)
    alone = quick_jit(gradient)
    for theta, value, slope in zip(many, values, slopes, strict=True):
        assert_close((value, slope), alone(theta), 1e-12)


def test_precision_of_the_mean_chooses_the_form():
    chain, _ = build(CASE)
    assert choose_form(chain) == "covariance"
    assert choose_form(chain._replace(mean=chain.mean.astype(jnp.float32))) == "square_root"
    assert choose_form(chain, "square_root") == "square_root"
    with pytest.raises(ValueError, match="form"):
        choose_form(chain, "information")


@forms
def test_no_information_leaves_the_prior(form):
    chain, info = build(CASE)
    nothing = Information(jnp.zeros_like(info.precision), H=H)
    run = quick_jit(lambda chain: (marginals(chain, nothing, 1, form), log_normaliser(chain, nothing, 1, form)))
    assert_close(run(chain), (reference.moments(chain, nothing), 0.0), 1e-12)
