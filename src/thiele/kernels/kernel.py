r"""What a kernel is, and how kernels combine: sums, products and multiples."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from thiele.parameters import Parametric, fixed, param, positive
from thiele.precision import double_precision, float64
from thiele.sde import SDE, AbstractBlock, Level, Output, product


class Emission(NamedTuple):
    """A latent function as a mixture of the functions of time that the state holds: f = w·g(t) + N(0, rest)."""

    w: Float[Array, "*n functions"]
    rest: Float[Array, "*n"]


class AbstractKernel(Parametric):
    """A prior covariance over time, or over time and space, stated twice: as k(x, x') and as a linear SDE.

    An input is a time, or (t, r₁, r₂, …) where the kernel is `in_space`.
    """

    @property
    @abstractmethod
    def latents(self) -> int:
        """The number of latent functions."""

    @property
    @abstractmethod
    def in_space(self) -> bool:
        """Whether inputs have coordinates besides time."""

    @property
    @abstractmethod
    def outputs_observed(self) -> int:
        """How many outputs a row may be about, which its last coordinate then names; 0 where there are none."""

    @abstractmethod
    def covariance(self, t: Float[Array, "*inputs"], s: Float[Array, "*inputs"]) -> Float[Array, "..."]:
        """k(t, s), for arrays of one shape; in space their last axis holds (t, r₁, r₂, …)."""

    @abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """The functions of time that the kernel is made of: its latent functions, or in space what they mix."""

    @abstractmethod
    def parts(self) -> tuple[AbstractOneLatent, ...]:
        """The independent summands of all latent functions, in the order of the state."""

    @abstractmethod
    def each_latent(self) -> tuple[AbstractOneLatent, ...]:
        """The kernels of the latent functions, which are independent."""

    def emissions(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> tuple[Emission, ...]:
        """Each latent function at times t and places r, as a mixture of its own `outputs`."""
        return tuple(kernel.emission(t, r) for kernel in self.each_latent())

    @abstractmethod
    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        """This kernel with inducing points for data at these places, which are checked; None: no coordinates came."""

    @double_precision
    def __call__(self, t: ArrayLike, s: ArrayLike) -> Float[Array, "..."]:
        """k(t, s), with broadcasting: `kernel(t[:, None], t[None])` is the Gram matrix, in space too."""
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


class AbstractOneLatent(AbstractKernel):
    """The covariance of one latent function."""

    @property
    def latents(self) -> int:
        return 1

    def parts(self) -> tuple[AbstractOneLatent, ...]:
        return self.terms if isinstance(self, Sum) else (self,)

    def each_latent(self) -> tuple[AbstractOneLatent, ...]:
        return (self,)

    @abstractmethod
    def emission(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> Emission:
        """The latent function at times t and places r."""

    @abstractmethod
    def rest_covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        """Covariance of what the functions of time leave unsaid: `rest` of the emission, between two inputs."""


class AbstractScalarKernel(AbstractOneLatent):
    """The covariance of one latent function of time alone; what almost every new kernel derives from."""

    @property
    def in_space(self) -> bool:
        return False

    @property
    def outputs_observed(self) -> int:
        return 0

    def outputs(self) -> tuple[Output, ...]:
        return (Output(self.blocks()),)

    def emission(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> Emission:
        return Emission(jnp.ones((*t.shape, 1), t.dtype), jnp.zeros_like(t))

    def rest_covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        return jnp.zeros(jnp.broadcast_shapes(t.shape, s.shape)[:-1], t.dtype)

    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        return self

    @abstractmethod
    def blocks(self) -> tuple[AbstractBlock, ...]:
        """The blocks of the SDE that add up to the latent function."""


def of_time(x: Float[Array, "*inputs"], kernel: AbstractKernel, among: AbstractKernel) -> Float[Array, "*inputs"]:
    """What `kernel` takes of inputs that `among`, which holds it, was given: the time where the others are in space."""
    return x[..., 0] if among.in_space and not kernel.in_space else x


class Sum(AbstractOneLatent):
    """k = k₁ + k₂ + …: independent components that add up. Sums within `terms` are flattened."""

    terms: tuple[AbstractOneLatent, ...]

    def __post_init__(self) -> None:
        terms = tuple(self.terms)
        if not terms:
            raise ValueError("`terms` of Sum must hold at least one kernel, got none")
        for term in terms:
            require_one_latent(term, "terms", "Sum")
        self.terms = tuple(leaf for term in terms for leaf in (term.terms if isinstance(term, Sum) else (term,)))
        Parametric.__post_init__(self)

    @property
    def in_space(self) -> bool:
        return any(term.in_space for term in self.terms)

    @property
    def outputs_observed(self) -> int:
        return max(term.outputs_observed for term in self.terms)

    def covariance(self, t: Float[Array, "*inputs"], s: Float[Array, "*inputs"]) -> Float[Array, "..."]:
        return sum(term.covariance(*(of_time(x, term, self) for x in (t, s))) for term in self.terms)

    def outputs(self) -> tuple[Output, ...]:
        apart = tuple(output for term in self.terms for output in term.outputs())
        return apart if self.in_space else (Output(tuple(block for output in apart for block in output.blocks)),)

    def emission(self, t: Float[Array, "*n"], r: Float[Array, "*n D"]) -> Emission:
        if not self.in_space:
            return Emission(jnp.ones((*t.shape, 1), t.dtype), jnp.zeros_like(t))
        each = [term.emission(t, r) for term in self.terms]
        return Emission(jnp.concatenate([e.w for e in each], axis=-1), sum(e.rest for e in each))

    def rest_covariance(self, t: Float[Array, "*n dims"], s: Float[Array, "*n dims"]) -> Float[Array, "*n"]:
        return sum(term.rest_covariance(t, s) for term in self.terms)

    def placed(self, places: Float[np.ndarray, "n D"] | None) -> Self:
        return eqx.tree_at(lambda k: k.terms, self, tuple(term.placed(places) for term in self.terms))


class Product(AbstractScalarKernel):
    """k = k₁ k₂. The state is the Kronecker product; products distribute over sums."""

    left: AbstractOneLatent
    right: AbstractOneLatent

    def __post_init__(self) -> None:
        require_time(self.left, "left", "Product")
        require_time(self.right, "right", "Product")
        Parametric.__post_init__(self)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.left.covariance(t, s) * self.right.covariance(t, s)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return product(blocks_of(self.left), blocks_of(self.right))


class Scale(AbstractScalarKernel):
    """k = c k₁ with c > 0. `2.0 * kernel` holds the factor; `Scale(kernel, 2.0)` lets it be learnt."""

    kernel: AbstractOneLatent
    factor: Array = positive()

    def __post_init__(self) -> None:
        require_time(self.kernel, "kernel", "Scale")
        Parametric.__post_init__(self)

    def covariance(self, t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
        return self.factor * self.kernel.covariance(t, s)

    def blocks(self) -> tuple[AbstractBlock, ...]:
        return product((Level(self.factor[None]),), blocks_of(self.kernel))


def require_one_latent(kernel: Any, name: str, owner: str) -> None:
    """Refuse what is not a kernel of one latent function."""
    if not isinstance(kernel, AbstractKernel):
        raise TypeError(f"`{name}` of {owner} must be a kernel, got {kernel!r}")
    if not isinstance(kernel, AbstractOneLatent):
        raise ValueError(
            f"`{name}` of {owner} must be a kernel of one latent function, got {type(kernel).__name__} of "
            f"{kernel.latents}; combine the kernels inside it instead"
        )


def require_time(kernel: Any, name: str, owner: str) -> None:
    """Refuse what is not a kernel of one latent function of time alone."""
    require_one_latent(kernel, name, owner)
    if kernel.in_space:
        raise ValueError(
            f"`{name}` of {owner} must be a kernel of time alone, got {type(kernel).__name__}; "
            "put the product or the factor into its `time`"
        )


def blocks_of(kernel: AbstractOneLatent) -> tuple[AbstractBlock, ...]:
    """The blocks of the SDE that add up to a latent function of time alone."""
    return tuple(block for output in kernel.outputs() for block in output.blocks)


def lag(t: Float[Array, "*times"], s: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """|t - s|."""
    return jnp.abs(t - s)
