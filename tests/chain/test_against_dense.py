"""Every case, in one lane and in many and in both forms, against dense algebra."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.chain.problems import SCHEDULES, SLOW
from tests.chain.runs import assert_close, found, problem, symmetrised, truth
from thiele.chain.matrices import dense


def schedule(name, lanes, form):
    marks = [pytest.mark.slow] if form == "square_root" and name in SLOW else []
    return pytest.param(name, lanes, form, marks=marks, id=f"{name}, {form}, {lanes}")


every_schedule = pytest.mark.parametrize(("name", "lanes", "form"), [schedule(*each) for each in SCHEDULES])


@every_schedule
def test_log_normaliser_is_that_of_the_joint_gaussian(name, lanes, form):
    here = found(name, lanes, form)
    np.testing.assert_allclose(here.value, truth(name).value, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(here.logs, [here.value] * 2, rtol=1e-12, atol=1e-14)


@every_schedule
def test_gradient_is_that_of_the_dense_formula(name, lanes, form):
    assert_close(symmetrised(found(name, lanes, form).gradient), symmetrised(truth(name).gradient))


@every_schedule
def test_marginals_of_states_and_pairs_are_those_of_the_joint_gaussian(name, lanes, form):
    assert_close(found(name, lanes, form).marginals, truth(name).marginals)


@every_schedule
def test_outputs_are_the_emitted_marginals(name, lanes, form):
    _, info = problem(name)
    mean, cov, _ = truth(name).marginals
    H = np.eye(mean.shape[0]) if info.H is None else info.H
    assert_close(found(name, lanes, form).outputs, (H @ mean, jnp.einsum("li,ijn,mj->lmn", H, cov, H)))


@every_schedule
def test_posterior_holds_filtered_moments_and_later_information(name, lanes, form):
    chain, _ = problem(name)
    m, P, r, N, r0, N0 = found(name, lanes, form).posterior
    for i, expected in enumerate(truth(name).filtered):
        assert_close((m[:, i], P[..., i]), expected)
    # Carried to a prediction N(m, P), the later information gives m + P r and P − P N P.
    A, Q, b = dense(chain.inputs.A), dense(chain.inputs.Q), chain.inputs.b
    mean, cov, _ = truth(name).marginals
    for i in range(m.shape[-1] - 1):
        ahead = A[..., i] @ m[:, i] + (0.0 if b is None else b[:, i])
        spread = A[..., i] @ P[..., i] @ A[..., i].T + Q[..., i]
        after = ahead + spread @ r[:, i], spread - spread @ N[..., i] @ spread
        assert_close(after, (mean[:, i + 1], cov[..., i + 1]))
    first = dense(chain.cov)
    assert_close((chain.mean + first @ r0, first - first @ N0 @ first), (mean[:, 0], cov[..., 0]))
    assert_close((r[:, -1], N[..., -1]), (jnp.zeros_like(r0), jnp.zeros_like(N0)))


@every_schedule
def test_posterior_at_the_start_is_the_gradient_in_the_prior(name, lanes, form):
    here = found(name, lanes, form).posterior
    by_chain, _ = symmetrised(truth(name).gradient)
    blocks = dense(tuple(jnp.ones_like(x) for x in by_chain.cov))
    curvature = 0.5 * (jnp.outer(here.r0, here.r0) - here.N0)
    assert_close((here.r0, curvature * blocks), (by_chain.mean, dense(by_chain.cov)))
