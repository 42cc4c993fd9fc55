r"""What a kernel is, and how kernels combine: sums, products and multiples."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from thiele.parameters import Parametric, fixed, param, positive
from thiele.precision import double_precision, float64
from thiele.sde import SDE, AbstractBlock, Level, product


class AbstractKernel(Parametric):
    """A prior covariance over time, stated twice: as k(t, s) and as a linear SDE."""

    @property
    @abstractmethod
    def latents(self) -> int:
        """The number of latent functions."""

    @abstractmethod
    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "..."]:
        """k(t, s), for arrays of one shape."""

    @abstractmethod
    def outputs(self) -> tuple[tuple[AbstractBlock, ...], ...]:
        """For each latent function, the blocks of the SDE that add up to it."""

    @abstractmethod
    def parts(self) -> tuple[AbstractScalarKernel, ...]:
        """The independent summands of all latent functions, in the order of the state."""

    @double_precision
    def __call__(self, t: ArrayLike, s: ArrayLike) -> Float[Array, "..."]:
        """k(t, s), with broadcasting: `kernel(t[:, None], t[None, :])` is the Gram matrix."""
        return self.covariance(*jnp.broadcast_arrays(float64(t), float64(s)))

    @double_precision
    def sde(self) -> SDE:
        """The state-space form of the same process."""
        return SDE(self.outputs())

    def __add__(self, other: Any) -> Sum:
        return Sum((self, other)) if isinstance(other, AbstractKernel) else NotImplemented

    def __mul__(self, other: Any) -> Product | Scale:
        if isinstance(other, AbstractKernel):
            return Product(self, other)
        if isinstance(other, param):
            return Scale(self, other)
        if isinstance(other, (numbers.Real, jax.Array)):
            return Scale(self, fixed(other))  # a number in an expression is meant as written: it is not learnt
        return NotImplemented

    def __rmul__(self, other: Any) -> Product | Scale:
        return self * other

    def __radd__(self, other: Any) -> AbstractKernel:
        # `sum` of a list of kernels begins at 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented


class AbstractScalarKernel(AbstractKernel):
    """The covariance of one latent function; what almost every new kernel derives from."""

    @property
    def latents(self) -> int:
        return 1

    def outputs(self) -> tuple[tuple[AbstractBlock, ...], ...]:
        return (self.blocks(),)

    def parts(self) -> tuple[AbstractScalarKernel, ...]:
        return self.terms if isinstance(self, Sum) else (self,)

    @abstractmethod
    def blocks(self) -> tuple[AbstractBlock, ...]:
        """The blocks of the SDE that add up to the latent function."""


class Sum(AbstractScalarKernel):
    """k = k₁ + k₂ + …: independent components that add up. Sums within `terms` are flattened."""

    terms: tuple[AbstractScalarKernel, ...]

    def __post_init__(self) -> None:
        terms = tuple(self.terms)
        if not terms:
            raise ValueError("`terms` of Sum must hold at least one kernel, got none")
        for term in terms:
            require_one_latent(term, "terms", "Sum")
        self.terms = tuple(leaf for term in terms for leaf in (term.terms if isinstance(term, Sum) else (term,)))
        Parametric.__post_init__(self)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return sum(term.covariance(t, s) for term in self.terms)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return tuple(block for term in self.terms for block in term.blocks())


class Product(AbstractScalarKernel):
    """k = k₁ k₂. The state is the Kronecker product; products distribute over sums."""

    left: AbstractScalarKernel
    right: AbstractScalarKernel

    def __post_init__(self) -> None:
        require_one_latent(self.left, "left", "Product")
        require_one_latent(self.right, "right", "Product")
        Parametric.__post_init__(self)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.left.covariance(t, s) * self.right.covariance(t, s)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return product(self.left.blocks(), self.right.blocks())


class Scale(AbstractScalarKernel):
    """k = c k₁ with c > 0. `2.0 * kernel` holds the factor; `Scale(kernel, 2.0)` lets it be learnt."""

    kernel: AbstractScalarKernel
    factor: Array = positive()

    def __post_init__(self) -> None:
        require_one_latent(self.kernel, "kernel", "Scale")
        Parametric.__post_init__(self)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.factor * self.kernel.covariance(t, s)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return product((Level(self.factor[None]),), self.kernel.blocks())


def require_one_latent(kernel: Any, name: str, owner: str) -> None:
    """Refuse what is not a kernel of one latent function."""
    if not isinstance(kernel, AbstractKernel):
        raise TypeError(f"`{name}` of {owner} must be a kernel, got {kernel!r}")
    if not isinstance(kernel, AbstractScalarKernel):
        raise ValueError(
            f"`{name}` of {owner} must be a kernel of one latent function, got {type(kernel).__name__} of "
            f"{kernel.latents}; combine the kernels inside it instead"
        )


def lag(t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """|t - s|."""
    return jnp.abs(t - s)
