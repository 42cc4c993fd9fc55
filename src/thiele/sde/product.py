r"""The product of independent processes: Kronecker products of their states.

P = P₁ ⊗ P₂,  A = A₁ ⊗ A₂,  Q = Q₁ ⊗ P₂(t+Δ) + (A₁ P₁(t) A₁') ⊗ Q₂.

The noise is a sum of positive semidefinite terms, so nothing cancels.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thiele.sde.block import AbstractBlock
from thiele.tables import Table, Times, add, as_array, as_table, congruence, diagonal, empty, kron


class Product(AbstractBlock):
    """Every block of `left` times every block of `right`."""

    left: AbstractBlock
    right: AbstractBlock

    @property
    def count(self) -> int:
        return self.left.count * self.right.count

    @property
    def dim(self) -> int:
        return self.left.dim * self.right.dim

    @property
    def observed(self) -> int:
        return self.left.observed * self.right.dim + self.right.observed

    @property
    def driven(self) -> bool:
        return self.left.driven or self.right.driven

    @property
    def stationary(self) -> bool:
        return self.left.stationary and self.right.stationary

    def drift(self) -> Float[Array, "count dim dim"]:
        left = kron(as_table(self.left.drift()), _unit(self.right))
        return as_array(add(left, kron(_unit(self.left), as_table(self.right.drift()))))

    def diffusion(self) -> Float[Array, "count dim dim"]:
        now = jnp.zeros(())
        left = kron(as_table(self.left.diffusion()), self.right.covariance(now))
        return as_array(add(left, kron(self.left.covariance(now), as_table(self.right.diffusion()))))

    def covariance(self, t: Times) -> Table:
        return kron(self.left.covariance(t), self.right.covariance(t))

    def functions(self, start: Times, step: Times) -> tuple[PyTree[Array], PyTree[Array]]:
        return self.left.functions(start, step), self.right.functions(start, step)

    def assemble(
        self, start: Times, step: Times, functions: tuple[PyTree[Array], PyTree[Array]]
    ) -> tuple[Table, Table]:
        (A1, Q1), (A2, Q2) = (
            side.assemble(start, step, found) for side, found in zip((self.left, self.right), functions, strict=True)
        )
        A, end = kron(A1, A2), start + step
        if not self.driven:
            return A, empty(self.count, self.dim, step)
        if not self.right.driven:
            return A, kron(Q1, self.right.covariance(end))
        if not self.left.driven:
            return A, kron(self.left.covariance(end), Q2)
        left = kron(Q1, self.right.covariance(end))
        return A, add(left, kron(congruence(A1, self.left.covariance(start)), Q2))


def _unit(block: AbstractBlock) -> Table:
    return diagonal([jnp.ones(block.count)] * block.dim, jnp.zeros(()))


def product(left: tuple[AbstractBlock, ...], right: tuple[AbstractBlock, ...]) -> tuple[AbstractBlock, ...]:
    """The blocks of (the sum of `left`) times (the sum of `right`): products distribute over sums."""
    return tuple(Product(a, b) for a in left for b in right)
