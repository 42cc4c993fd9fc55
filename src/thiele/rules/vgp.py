"""The variational Gaussian process trained by plain gradients: the baseline that CVI is measured against."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.quadrature import AbstractQuadrature
from thiele.rules.base import AbstractRule, Site


class Factors(NamedTuple):
    """Free parameters of sites: shift, and a square root R of the precision R R′."""

    shift: Float[Array, "n L"]
    root: Float[Array, "n L L"]

    def sites(self) -> Site:
        """The sites that these stand for."""
        return Site(self.shift, self.root @ jnp.swapaxes(self.root, -1, -2))


class VGP(AbstractRule):
    """Adam on the ELBO in all parameters of q at once, with `step` the learning rate (paper, section 3.2).

    q is the prior times one Gaussian site per datum, the form that the optimum has, so the baseline reaches what CVI
    reaches; it differs in the way there. No site follows from its own datum alone, so this rule has no local update.
    """

    energy: ClassVar[str] = "elbo"
    merit: ClassVar[str] = "energy"
    stationary: ClassVar[bool] = True
    power: ClassVar[float] = 1.0
    step: float = eqx.field(static=True, default=0.05)
    quadrature: AbstractQuadrature | None = eqx.field(static=True, default=None)

    def factors(self, sites: Site) -> Factors:
        """Free parameters for `sites`, away from a precision of zero, at which the gradient in the root vanishes."""
        values, vectors = jnp.linalg.eigh(sites.precision)
        return Factors(sites.shift, vectors * jnp.sqrt(jnp.maximum(values, 1e-2))[..., None, :])
