"""From a kernel's SDE and a sorted series of times to a prior chain.

Regular series repeat a handful of time steps. The costly functions of those are computed once and looked up; irregular
steps have theirs computed as the chain passes over them, and never all at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from thiele.chain import Chain, Move
from thiele.sde import SDE

# Looking up pays while the table stays in the fastest cache.
MOST_DISTINCT = 64


class DistinctSteps(NamedTuple):
    """Time steps as values[index]."""

    values: Float[Array, " u"]
    index: Int[Array, " n-1"]


def distinct_steps(times: Float[np.ndarray, " n"]) -> DistinctSteps | None:
    """The steps between sorted times, if there are few; steps that differ by the rounding of the times are equal."""
    if len(times) < 3:
        return None
    rounding = 4.0 * np.finfo(np.float64).eps * max(abs(times[0]), abs(times[-1]))
    # A long irregular series is recognised by its head.
    if len(np.unique(_rounded(np.diff(times[: 8 * MOST_DISTINCT + 1]), rounding))) > MOST_DISTINCT:
        return None
    steps = np.diff(times)
    near = _rounded(steps, rounding)
    _, first, index = np.unique(near, return_index=True, return_inverse=True)
    if len(first) > min(MOST_DISTINCT, len(steps) // 2):
        return None
    # A table of few sizes, so that series of equal length share their compilations.
    room = max(8, 1 << (len(first) - 1).bit_length()) - len(first)
    return DistinctSteps(np.pad(steps[first], (0, room), mode="edge"), index.astype(np.int32))


def _rounded(steps: np.ndarray, rounding: float) -> np.ndarray:
    return np.round(steps / rounding) if rounding > 0.0 else steps


class Steps(eqx.Module):
    """The moves of a chain whose inputs are (start, step): two arrays of times."""

    sde: SDE

    def prepare(self, inputs: tuple[Array, Array]) -> tuple:
        """The costly functions of every step."""
        return *inputs, self.sde.functions(*inputs)

    def __call__(self, prepared: tuple) -> Move:
        return _move(self.sde, *prepared)


class RepeatedSteps(eqx.Module):
    """The moves of a stationary chain whose inputs are places in a table of distinct steps."""

    sde: SDE
    values: Float[Array, " u"]
    functions: PyTree[Float[Array, "*any u"]]

    def prepare(self, inputs: Int[Array, "*batch"]) -> tuple:
        """Steps and functions, looked up at once: in derivatives every look-up is a loop over the steps."""
        leaves, form = jax.tree.flatten((self.values, self.functions))
        rows = [leaf.reshape(-1, leaf.shape[-1]) for leaf in leaves]
        found = jnp.split(jnp.concatenate(rows)[:, inputs], np.cumsum([len(x) for x in rows])[:-1])
        shapes = [leaf.shape[:-1] + inputs.shape for leaf in leaves]
        step, functions = form.unflatten([x.reshape(shape) for x, shape in zip(found, shapes, strict=True)])
        return jnp.zeros_like(step), step, functions

    def __call__(self, prepared: tuple) -> Move:
        return _move(self.sde, *prepared)


def _move(sde: SDE, start: Array, step: Array, functions: Any) -> Move:
    pairs = sde.assemble(start, step, functions)
    return Move(A=tuple(A for A, _ in pairs), Q=tuple(Q for _, Q in pairs))


def prior_chain(sde: SDE, times: Float[Array, " n"], repeated: DistinctSteps | None = None) -> Chain:
    """The states of `sde` at sorted `times`, by way of their distinct steps where these are known."""
    mean, cov = jnp.zeros(sde.dim, times.dtype), sde.covariance(times[0])
    if repeated is None or not sde.stationary:
        return Chain(mean, cov, Steps(sde), (times[:-1], jnp.diff(times)))
    values = jnp.asarray(repeated.values, times.dtype)
    table = sde.functions(jnp.zeros_like(values), values)
    return Chain(mean, cov, RepeatedSteps(sde, values, table), jnp.asarray(repeated.index))


def prior_covariances(chain: Chain, n: int) -> Float[Array, "d d n"]:
    """P(t) of all n states of a chain that `prior_chain` made."""
    sde, first = chain.moves.sde, chain.cov  # pyright: ignore[reportAttributeAccessIssue]
    if sde.stationary:
        return jnp.broadcast_to(sde.dense(first)[..., None], (sde.dim, sde.dim, n))
    start, step = chain.inputs
    return sde.dense(sde.covariance(jnp.concatenate([start, start[-1:] + step[-1:]])))
