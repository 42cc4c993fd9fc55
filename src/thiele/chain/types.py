"""The values that flow through this room: a prior chain, information attached to it, and the posterior.

Small matrix axes lead and the axis of the chain trails, so `P` of shape (d, d, n) is n covariances. A block-diagonal
matrix is a tuple of stacks; a stack is g blocks of size b, either as one array (g, b, b, ...) or as a table of entries.
Dense is one stack with g = 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float

from thiele.tables import Stack

Blocks = tuple[Stack, ...]


class Move(NamedTuple):
    """x' = A x + b + q,  q ~ N(0, Q): one step of the chain, or a batch of steps along the trailing axes."""

    A: Blocks
    Q: Blocks
    b: Float[Array, " d *batch"] | None = None


class Moves(Protocol):
    """The transitions of a chain as functions of arrays that are cut along their trailing axes."""

    def prepare(self, inputs: Any) -> Any: ...

    def __call__(self, prepared: Any) -> Move: ...


class Chain(NamedTuple):
    """x_0 ~ N(mean, cov),  x_{i+1} = A_i x_i + b_i + q_i  for the n - 1 steps that `moves(inputs)` describes.

    `moves.prepare` maps a pytree of arrays with any trailing batch axes to another, doing the costly part once;
    `moves` maps that to a `Move` with the same batch axes. Both are called on pieces of `inputs`, so transitions never
    need to exist for the whole chain at once. `moves` must be a pytree (a module): gradients flow into its leaves.
    """

    mean: Float[Array, " d"]
    cov: Blocks
    moves: Moves
    inputs: Any


class Noise(NamedTuple):
    """Noise ζ of the outputs themselves, f = … + ζ, that has to do with the noise q of the move to the next state: its
    covariance, and Cov(q, ζ).
    """

    cov: Float[Array, "l l n"]
    cross: Float[Array, "d l n"]


class Information(NamedTuple):
    """exp(shift·f − ½ (f − centre)ᵀ precision (f − centre)),  f = H x or f = mix · H x, attached to every state.

    `H` selects or sums entries of the state (a static array of zeros and ones, or None for f = x); `mix` differs from
    state to state and is differentiable, and so is the `noise` that may come with it. A row that was not observed has
    zero precision and zero shift. The centre keeps y − f small in a sharp Gaussian likelihood, where a shift of
    precision · y alone would lose digits.
    """

    precision: Float[Array, "l l n"]
    shift: Float[Array, "l n"] | None = None
    centre: Float[Array, "l n"] | None = None
    H: np.ndarray | None = None
    mix: Float[Array, "l g n"] | None = None
    noise: Noise | None = None


class Posterior(NamedTuple):
    """What the chain knows after all information is in, in a form that needs no inverse.

    Given the information up to and including state i, x_i ~ N(m_i, P_i). The information after it is r_i, N_i, attached
    to the prediction of x_{i+1}: for any time between the two, predict forward to N(m, P), carry r, N back to it, and
    the posterior is N(m + P r, P − P N P). `r0`, `N0` are the same for a prediction of x_0 by the prior.
    """

    m: Float[Array, "d n"]
    P: Float[Array, "d d n"]
    r: Float[Array, "d n"]
    N: Float[Array, "d d n"]
    r0: Float[Array, " d"]
    N0: Float[Array, "d d"]


class Tabulated(NamedTuple):
    """`moves` for transitions that are already arrays: `inputs` is the `Move` itself."""

    def prepare(self, inputs: Move) -> Move:
        return inputs

    def __call__(self, prepared: Move) -> Move:
        return prepared


class Static:
    """An array as a compile-time constant: equal by value."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __hash__(self) -> int:
        return hash(self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and np.array_equal(self.array, other.array)


def emission_apart(chain: Chain, info: Information) -> tuple[Static | None, Chain, Information]:
    """H as a constant, for functions with a derivative rule, which take arrays that may move; then all that may."""
    return None if info.H is None else Static(info.H), chain, info._replace(H=None)


def with_emission(info: Information, H: Static | None) -> Information:
    """The inverse for information."""
    return info._replace(H=None if H is None else H.array)
