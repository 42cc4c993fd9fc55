"""Linear stochastic differential equations as stacks of small independent blocks.

dx = F x dt + L dw,  E[dw dw'] = Qc dt,  f(t) = the sum of one component of every block.

A kernel's state is block diagonal, so it is kept as blocks: a stack holds `count` blocks of one size `dim`. The small
axes of matrices lead and the axes of time trail, so that arithmetic on a million steps is one loop over contiguous
memory.
"""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from thiele.precision import double_precision, float64
from thiele.tables import Stack, Table, Times, as_array


class AbstractBlock(eqx.Module):
    """`count` independent linear SDEs of dimension `dim`; component `observed` of each adds to the latent function.

    Every block is scaled so that the emission is a selection: the variance sits in the covariance and in the noise.
    """

    count: eqx.AbstractVar[int]
    dim: eqx.AbstractVar[int]
    observed: eqx.AbstractVar[int]
    driven: eqx.AbstractVar[bool]  # False: no noise enters, Q is zero for every step
    stationary: eqx.AbstractVar[bool]  # True: the covariance is the same at all times

    @abstractmethod
    def drift(self) -> Float[Array, "count dim dim"]:
        """F; for a process with an origin, the drift to the right of it."""

    @abstractmethod
    def diffusion(self) -> Float[Array, "count dim dim"]:
        """L Qc L'; for a process with an origin, the diffusion to the right of it."""

    @abstractmethod
    def covariance(self, t: Times) -> Table:
        """P(t), the prior covariance of the state at time `t`."""

    @abstractmethod
    def functions(self, start: Times, step: Times) -> PyTree[Array]:
        """The costly functions of the step (exponentials, sines, series), each to be computed once."""

    @abstractmethod
    def assemble(self, start: Times, step: Times, functions: PyTree[Array]) -> tuple[Table, Table]:
        """`transition` from its `functions`, by sums and products alone."""

    def transition(self, start: Times, step: Times) -> tuple[Table, Table]:
        """(A, Q) with x(start + step) = A x(start) + N(0, Q), for `step` >= 0."""
        return self.assemble(start, step, self.functions(start, step))


class SDE(eqx.Module):
    """The state-space form of a kernel: for each latent function, the blocks that add up to it.

    The state lists the blocks in order and, within a stack, one block after the other.
    """

    outputs: tuple[tuple[AbstractBlock, ...], ...]

    @property
    def blocks(self) -> tuple[AbstractBlock, ...]:
        """The stacks of all latent functions, in the order of the state."""
        return tuple(block for blocks in self.outputs for block in blocks)

    @property
    def latents(self) -> int:
        """The number of latent functions."""
        return len(self.outputs)

    @property
    def dim(self) -> int:
        """The dimension of the whole state."""
        return sum(block.count * block.dim for block in self.blocks)

    @property
    def stationary(self) -> bool:
        """Whether the prior covariance is the same at all times."""
        return all(block.stationary for block in self.blocks)

    @property
    def H(self) -> np.ndarray:  # noqa: N802 - the paper's letter
        """f = H x: zeros and ones, shape (latents, dim)."""
        rows = np.zeros((self.latents, self.dim))
        offset = 0
        for latent, blocks in enumerate(self.outputs):
            for block in blocks:
                size = block.count * block.dim
                rows[latent, offset + block.observed : offset + size : block.dim] = 1.0
                offset += size
        return rows

    @double_precision
    def covariance(self, t: Times) -> tuple[Table, ...]:
        """P(t), one table for each of `blocks`."""
        t = float64(t)
        return tuple(block.covariance(t) for block in self.blocks)

    @double_precision
    def transition(self, start: Times, step: Times) -> tuple[tuple[Table, Table], ...]:
        """(A, Q) of the steps from `start` to `start + step`, one pair of tables for each of `blocks`."""
        start, step = jnp.broadcast_arrays(float64(start), float64(step))
        return tuple(block.transition(start, step) for block in self.blocks)

    @double_precision
    def functions(self, start: Times, step: Times) -> tuple[PyTree[Array], ...]:
        """The costly part of `transition`, for each of `blocks`."""
        return tuple(block.functions(start, step) for block in self.blocks)

    @double_precision
    def assemble(
        self, start: Times, step: Times, functions: tuple[PyTree[Array], ...]
    ) -> tuple[tuple[Table, Table], ...]:
        """The cheap part of `transition`, for each of `blocks`."""
        both = zip(self.blocks, functions, strict=True)
        return tuple(block.assemble(start, step, found) for block, found in both)

    @double_precision
    def dense(self, stacks: Sequence[Stack]) -> Float[Array, "dim dim *times"]:
        """One block-diagonal matrix from one stack for each of `blocks`: for tests and readers, not for speed."""
        arrays = [as_array(stack) for stack in stacks]
        full = jnp.zeros((self.dim, self.dim, *arrays[0].shape[3:]), arrays[0].dtype)
        offset = 0
        for array in arrays:
            count, dim = array.shape[:2]
            places = offset + np.arange(count * dim).reshape(count, dim)
            full = full.at[places[:, :, None], places[:, None, :]].set(array)
            offset += count * dim
        return full

    @property
    @double_precision
    def F(self) -> Float[Array, "dim dim"]:  # noqa: N802 - the paper's letter
        """The drift, dense."""
        return self.dense([block.drift() for block in self.blocks])

    @property
    @double_precision
    def LQcL(self) -> Float[Array, "dim dim"]:  # noqa: N802 - the paper's letters
        """The diffusion L Qc L', dense."""
        return self.dense([block.diffusion() for block in self.blocks])

    @property
    def Pinf(self) -> Float[Array, "dim dim"]:  # noqa: N802 - the paper's letters
        """The stationary covariance, dense; the covariance at time 0 where there is no stationary one."""
        return self.dense(self.covariance(float64(0.0)))
