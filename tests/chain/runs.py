"""What the library finds for a case, each compiled function and each result made once for all tests."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.chain import reference
from tests.chain.problems import CASES, build
from thiele.chain import Marginals, Outputs, Posterior, log_normaliser, marginals, outputs, posterior
from thiele.chain.smoothing import marginals_of

# For functions that are run once or twice on a few states: the optimiser would take longer than it saves.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Found(NamedTuple):
    """Everything that the surface returns; `gradient` is in (chain, info)."""

    value: jax.Array
    gradient: tuple
    marginals: Marginals
    outputs: Outputs
    posterior: Posterior
    logs: tuple


class Static:
    """An emission matrix as a key."""

    def __init__(self, H):
        self.H = H

    def __hash__(self):
        return hash(None if self.H is None else self.H.tobytes())

    def __eq__(self, other):
        return (self.H is None) == (other.H is None) and np.array_equal(self.H, other.H)


@cache
def compiled(static, lanes, form):
    H = static.H

    def everything(chain, info):
        value, gradient = jax.value_and_grad(
            lambda chain, info: log_normaliser(chain, info._replace(H=H), lanes, form), argnums=(0, 1)
        )(chain, info)
        info = info._replace(H=H)
        at_outputs, log = outputs(chain, info, lanes, form)
        whole, other_log = posterior(chain, info, lanes, form)
        # `marginals` of the covariance form is these two steps; a third sweep would only be compiled again.
        moments = marginals_of(whole, chain) if form == "covariance" else marginals(chain, info, form=form)
        return Found(value, gradient, moments, at_outputs, whole, (log, other_log))

    return quick_jit(everything)


@cache
def problem(name):
    return build(CASES[name])


@cache
def found(name, lanes, form):
    chain, info = problem(name)
    return compiled(Static(info.H), lanes, form)(chain, info._replace(H=None))


@cache
def dense_functions(static):
    """Value and gradient, moments, and moments with the information up to and including one state."""
    H = static.H

    def value(chain, info):
        return reference.log_normaliser(chain, info._replace(H=H))

    def moments(chain, info, last):
        seen = jnp.arange(info.precision.shape[-1]) <= last
        return reference.moments(chain, jax.tree.map(lambda x: x * seen, info)._replace(H=H))

    return quick_jit(jax.value_and_grad(value, argnums=(0, 1))), quick_jit(moments)


class Truth(NamedTuple):
    """The same by dense algebra; `filtered` are the moments of state i given the information up to it."""

    value: jax.Array
    gradient: tuple
    marginals: Marginals
    filtered: tuple


@cache
def truth(name):
    chain, info = problem(name)
    value_and_gradient, moments = dense_functions(Static(info.H))
    info = info._replace(H=None)
    n = info.precision.shape[-1]
    filtered = [moments(chain, info, i) for i in range(n)]
    return Truth(
        *value_and_gradient(chain, info),
        marginals=filtered[-1],
        filtered=tuple((at.mean[:, i], at.cov[..., i]) for i, at in enumerate(filtered)),
    )


def symmetrised(gradient):
    """Derivatives in symmetric matrices are defined up to their antisymmetric part."""
    chain, info = gradient
    turn = lambda blocks: tuple(0.5 * (x + x.swapaxes(1, 2)) for x in blocks)  # noqa: E731
    inputs = chain.inputs._replace(Q=turn(chain.inputs.Q))
    precision = 0.5 * (info.precision + info.precision.swapaxes(0, 1))
    return chain._replace(cov=turn(chain.cov), inputs=inputs), info._replace(precision=precision)


def assert_close(actual, expected, rtol=1e-9):
    """Every leaf agrees relative to its largest entry."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        size = np.max(np.abs(e), initial=0.0)
        np.testing.assert_allclose(a, e, rtol=0.0, atol=rtol * max(size, 1e-3))
