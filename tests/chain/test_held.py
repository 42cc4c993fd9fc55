"""Moments that are held beside a log-normaliser: as the free ones in value, and only log Z has a gradient."""

import jax
import jax.numpy as jnp
import pytest

from tests.chain.runs import assert_close, problem, quick_jit, symmetrised
from thiele.chain import log_normaliser, outputs

SCHEDULES = [
    ("one block", 1, "covariance"),
    ("one block", 3, "covariance"),
    ("one block", 1, "square_root"),
    ("inducing states", 1, "covariance"),
    ("inducing states", 2, "covariance"),
]


@pytest.mark.parametrize(("name", "lanes", "form"), SCHEDULES)
def test_held_moments_are_the_free_ones_and_leave_the_gradient_to_log_z(name, lanes, form):
    chain, whole = problem(name)
    info = whole._replace(H=None)

    def everything(chain, info):
        put = lambda info: info._replace(H=whole.H)  # noqa: E731

        def with_moments(chain, info):
            found, log = outputs(chain, put(info), lanes, form, held=True)
            return log + sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(found)), (found, log)

        by_held, held = jax.grad(with_moments, argnums=(0, 1), has_aux=True)(chain, info)
        by_log = jax.grad(lambda chain, info: log_normaliser(chain, put(info), lanes, form), argnums=(0, 1))
        return held, outputs(chain, put(info), lanes, form), by_held, by_log(chain, info)

    held, free, by_held, by_log = quick_jit(everything)(chain, info)
    assert_close(held, free)
    assert_close(symmetrised(by_held), symmetrised(by_log))
