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
from thiele.tables import Stack, Table, Times, as_array, repeated


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


class Copies(AbstractBlock):
    """The same blocks `copies` times over, independent: those of the first copy, then those of the second, …"""

    block: AbstractBlock
    copies: int = eqx.field(static=True)

    @property
    def count(self) -> int:
        return self.copies * self.block.count

    @property
    def dim(self) -> int:
        return self.block.dim

    @property
    def observed(self) -> int:
        return self.block.observed

    @property
    def driven(self) -> bool:
        return self.block.driven

    @property
    def stationary(self) -> bool:
        return self.block.stationary

    def drift(self) -> Float[Array, "count dim dim"]:
        return jnp.tile(self.block.drift(), (self.copies, 1, 1))

    def diffusion(self) -> Float[Array, "count dim dim"]:
        return jnp.tile(self.block.diffusion(), (self.copies, 1, 1))

    def covariance(self, t: Times) -> Table:
        return repeated(self.block.covariance(t), self.copies)

    def functions(self, start: Times, step: Times) -> PyTree[Array]:
        return self.block.functions(start, step)

    def assemble(self, start: Times, step: Times, functions: PyTree[Array]) -> tuple[Table, Table]:
        A, Q = self.block.assemble(start, step, functions)
        return repeated(A, self.copies), repeated(Q, self.copies)


class Output(eqx.Module):
    """The blocks that add up to a function of time; `copies` such functions, alike and independent."""

    blocks: tuple[AbstractBlock, ...]
    copies: int = eqx.field(static=True, default=1)

    @property
    def stacks(self) -> tuple[AbstractBlock, ...]:
        """The blocks of all copies."""
        return self.blocks if self.copies == 1 else tuple(Copies(block, self.copies) for block in self.blocks)


class SDE(eqx.Module):
    """The state-space form of a kernel: the functions of time that it is made of, each the sum of some blocks.

    For a kernel of time alone these are its latent functions; otherwise latent functions are mixtures of them. The
    state lists the blocks in order and, within a stack, one block after the other.
    """

    outputs: tuple[Output, ...]

    @property
    def blocks(self) -> tuple[AbstractBlock, ...]:
        """The stacks of all functions, in the order of the state."""
        return tuple(stack for output in self.outputs for stack in output.stacks)

    @property
    def functions_of_time(self) -> int:
        """How many functions the state holds."""
        return sum(output.copies for output in self.outputs)

    def once(self) -> "SDE":
        """One copy of each function."""
        return SDE(tuple(Output(output.blocks) for output in self.outputs))

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
        """The functions of time as H x: zeros and ones, shape (functions, dim)."""
        rows = np.zeros((self.functions_of_time, self.dim))
        first, offset = 0, 0
        for output in self.outputs:
            for block in output.blocks:
                size = block.count * block.dim
                for copy in range(output.copies):
                    rows[first + copy, offset + block.observed : offset + size : block.dim] = 1.0
                    offset += size
            first += output.copies
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
