"""How a chain is cut: into lanes and chunks for the caches of a CPU, or into a tree of short lanes for a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from thiele import one_function
from thiele.chain import lanes_of_blocks, lanes_of_scalars, matrices, one_kernel

# Written out entry by entry, a step of a larger state takes long to compile and spills out of the cache.
LARGEST_SCALAR_STATE = 8
LARGEST_SCALAR_STATE_OF_FEW = 6
LARGEST_SCALAR_OUTPUT = 2
# Below this length a user waits for the compiler, not for the loop: one lane compiles soonest.
SHORTEST_IN_LANES = 4096
# Of larger states, a chunk of some is in the cache while it is visited, which pays sooner.
SHORTEST_IN_CHUNKS = 512
# A lane of scalars is one function: the chain must be long before many at once save more than their boundaries cost.
SHORTEST_IN_LANES_OF_SCALARS = 32_768
# The same for a kernel of a GPU. More outputs have no closed form, and of a few more a root does as well.
LARGEST_CLOSED_FORM = 3
MOST_OUTPUTS_IN_LANES = 8
# Bytes of one matrix of all lanes.
MOST_IN_CACHE = 220_000
# Bytes of what a sweep keeps, to save a second way forward; over lanes it must not have left the cache by the way back.
MOST_KEPT = 2**29
MOST_KEPT_OF_BLOCKS = 2**26
# Steps of a lane of the tree: short lanes fill the device, long ones save levels. Where the boundaries are left to
# matrices, whose every step is dozens of kernels, there had better be few.
STEPS_IN_KERNEL, STEPS_OF_MATRICES, STEPS_BELOW_MATRICES = 5, 16, 64


class Layout(NamedTuple):
    """How many lanes, chunks in a lane and steps in a chunk, and the number system.

    `tree`: one chunk a lane, and the chain on the lanes' boundaries is cut again, until it is short. `flat`: the length
    of a chain that is left as it lies in memory, for kernels that find their lanes in it; else None. `mapped`: many
    chains at once share what is the same in all of them, which one array of everything would not.
    """

    lanes: int
    chunks: int
    steps: int
    algebra: ModuleType
    tree: bool = False
    flat: int | None = None
    mapped: bool = False

    def walk(self, step: Callable[..., Any], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
        """`jax.lax.scan` along the steps of a chunk, in all lanes."""
        if self.flat:
            return one_kernel.walk(self.lanes, step, carry, xs, reverse)
        if self.is_one_function and not self.mapped and backend() == "cpu":
            return one_function.walk(step, carry, lanes_of_scalars.by_step(xs), reverse)
        return self.algebra.walk(step, carry, xs, reverse)

    @property
    def batch(self) -> tuple[int, int]:
        """The trailing axes of a chunk."""
        return (1, self.flat) if self.flat else (self.steps, self.lanes)

    def split(self, array: Array) -> Array:
        """(..., n) → (chunks, ..., *batch), padded with zeros: no information, so no effect."""
        size = self.flat or self.lanes * self.chunks * self.steps
        padded = jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1])])
        if self.flat:
            return padded[None, ..., None, :]
        cut = padded.reshape(*array.shape[:-1], self.lanes, self.chunks, self.steps)
        return jnp.moveaxis(jnp.moveaxis(cut, -2, 0), -2, -1)

    def join(self, array: Array, n: int) -> Array:
        """The inverse of `split`."""
        if self.flat:
            return array[0, ..., 0, :n]
        cut = jnp.moveaxis(jnp.moveaxis(array, -1, -2), 0, -2)
        return cut.reshape(*cut.shape[:-3], self.lanes * self.chunks * self.steps)[..., :n]

    def in_walk(self, thin: bool) -> bool:
        """Whether a step is visited while a walk passes it, and not all steps of a chunk at once after it; `thin`: what
        is asked for is little. Of scalars much is sooner computed for many steps at once.
        """
        return bool(self.flat) or self.algebra is lanes_of_blocks or (thin and self.is_one_function)

    @property
    def is_one_function(self) -> bool:
        """Whether a walk is one function of a CPU: over many lanes each operation is long enough to be asked for."""
        return self.algebra is lanes_of_scalars and self.lanes == 1 and not self.flat

    @property
    def keeps_gains(self) -> bool:
        """Whether a visit in a walk keeps the gain beside each prediction, and does not make it again."""
        return self.algebra is lanes_of_blocks

    def keeps(self, d: int, outputs: int, dtype: Any) -> bool:
        """Whether a sweep keeps what it saw of all states. Scalars are made again sooner than they are read."""
        numbers = d**2 + (outputs * (d + outputs) if self.keeps_gains else 0)
        size = self.lanes * self.chunks * self.steps * numbers * jnp.dtype(dtype).itemsize
        return size <= {matrices: MOST_KEPT, lanes_of_blocks: MOST_KEPT_OF_BLOCKS}.get(self.algebra, -1)

    def rooted(self, outputs: int) -> bool:
        """Whether information on so many outputs is resolved by its root."""
        return self.algebra is lanes_of_blocks and outputs > LARGEST_CLOSED_FORM

    def of_boundaries(self, d: int) -> Layout:
        """The layout of the chain on the lanes' first states, which has information on whole states."""
        return tree_layout(self.lanes, d, d) if self.tree else choose_layout(self.lanes, d, d, lanes=1)


def backend() -> str:
    """What the layout is chosen for."""
    return jax.default_backend()


def choose_layout(n: int, d: int, outputs: int, lanes: int | None = None) -> Layout:
    """Lanes, chunks and number system by the length of the chain, the size of the state and the backend."""
    largest = LARGEST_SCALAR_STATE if n >= SHORTEST_IN_LANES else LARGEST_SCALAR_STATE_OF_FEW
    scalars = d <= largest and outputs <= LARGEST_SCALAR_OUTPUT
    if lanes is None:
        if backend() != "cpu":
            return tree_layout(n, d, outputs)
        lanes = _lanes_for_caches(n, d, outputs, scalars)
    algebra = matrices
    if scalars:
        algebra = lanes_of_scalars
    elif lanes > 1:
        algebra = lanes_of_blocks
    length = -(-n // lanes)
    # A short chain is one chunk: what it would save in memory is not worth a second forward pass.
    shortest = SHORTEST_IN_CHUNKS if d > LARGEST_SCALAR_STATE else SHORTEST_IN_LANES
    steps = length if n < (SHORTEST_IN_LANES_OF_SCALARS if scalars else shortest) else 64
    return Layout(lanes, -(-length // steps), steps, algebra)


def choose_layout_of_derivatives(layout: Layout, n: int, d: int, outputs: int) -> Layout:
    """The layout for a derivative of moments, which no rule gives: a loop that keeps a tape is no function of its own,
    and many lanes share what each of its steps costs.
    """
    if n < SHORTEST_IN_LANES or backend() != "cpu" or not layout.is_one_function:
        return layout
    return choose_layout(n, d, outputs, min(256, n // 128))


def _lanes_for_caches(n: int, d: int, outputs: int, scalars: bool) -> int:
    """More lanes than these spill out of the cache and lengthen the chain on their boundaries."""
    if scalars:
        return min(256, n // 256) if n >= SHORTEST_IN_LANES_OF_SCALARS else 1
    if n < SHORTEST_IN_LANES:
        return 1
    if outputs > MOST_OUTPUTS_IN_LANES or outputs == d:
        return 1
    fit = MOST_IN_CACHE // (8 * d**2)
    return min(32, n // 256, 1 << (fit.bit_length() - 1)) if fit >= 4 else 1


def tree_layout(n: int, d: int, outputs: int) -> Layout:
    """Short lanes, many of them, whose boundaries are cut again: few kernels, each of which fills the device."""
    in_kernel = d <= LARGEST_SCALAR_STATE and outputs <= LARGEST_CLOSED_FORM
    most = STEPS_OF_MATRICES
    if in_kernel:
        most = STEPS_IN_KERNEL if d <= LARGEST_CLOSED_FORM else STEPS_BELOW_MATRICES
    # Lanes of equal length: of 17 states, two lanes of 9 and not of 16.
    lanes = -(-n // most)
    steps = math.ceil(n / lanes)
    if in_kernel:
        return Layout(lanes, 1, steps, lanes_of_scalars, tree=True, flat=n)
    return Layout(lanes, 1, steps, matrices, tree=True)
