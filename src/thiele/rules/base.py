"""What a rule is: from one datum's marginal q(f) and its old site to a new Gaussian site (paper, section 4).

A rule sees one datum; `vmap` does the rest. Moments and sites always carry the axis of the latent functions, also when
there is only one. Nothing here knows the chain, so the same rule serves one site per datum and sites tied by segment.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thiele.definite import semidefinite
from thiele.likelihoods import AbstractLikelihood
from thiele.quadrature import AbstractQuadrature
from thiele.rules.cavity import Cavity, Marginal, Site, cavity, through_noise, widened

LARGEST_NEGATIVE_SHARE = 0.5


class Proposal(NamedTuple):
    """The site that a datum asks for, whether it had to be repaired to be one, and whether it can be used at all; the
    datum's term of the rule's energy, where that was found on the way.
    """

    site: Site
    repaired: Bool[Array, ""]
    usable: Bool[Array, ""]
    term: Float[Array, ""] | None = None


class Update(NamedTuple):
    """The site that a rule puts in place of the old one, and whether it is not quite what the datum asked for."""

    site: Site
    repaired: Bool[Array, ""]


class AbstractRule(eqx.Module):
    """How sites are found, and by which energy hyperparameters are judged: a key of `thiele.energies.LOCAL`.

    `step` is the share ρ of the way from the old natural parameters to the new that inference tries first; it takes
    less where more would overshoot. `quadrature` is passed to the likelihood; `None` leaves the choice to it.
    """

    energy: eqx.AbstractClassVar[str]
    """The rule's objective."""
    merit: eqx.AbstractClassVar[str]
    """What must not get worse from sweep to sweep: "energy", "joint" (log p(y, f) at the mean) or "residual" (how far
    the sites are from the fixed point) for rules that climb no function."""

    stationary: eqx.AbstractClassVar[bool]
    """Whether the energy is stationary in the sites where the rule has converged. If so, its derivative in the
    hyperparameters is the one with the sites held, although they follow the hyperparameters."""
    power: eqx.AbstractVar[float]
    """The power α of the likelihood in the EP energy."""
    step: eqx.AbstractVar[float]
    quadrature: eqx.AbstractVar[AbstractQuadrature | None]


class AbstractLocalRule(AbstractRule):
    """A rule whose new site follows from one datum's own marginal and cavity."""

    in_cavity: eqx.AbstractClassVar[bool]
    """Whether the site is made for the cavity. Then it bears on the noisy f = W v + N(0, ν) of a sparse model, and ν
    goes into the site; a site made for q bears on W v."""

    @abc.abstractmethod
    def propose(self, likelihood: AbstractLikelihood, y: Array, q: Marginal, left: Cavity) -> Proposal:
        """The site that a full step (ρ = 1) leads to, given q and what is left of it without the datum."""

    def __call__(
        self,
        likelihood: AbstractLikelihood,
        y: Array,
        q: Marginal,
        site: Site,
        nu: Float[Array, " L"] | None = None,
    ) -> Update:
        """The same for a datum that has a site of its own, which stays where the new one cannot be used.

        With `nu`, q and the site are about a, and the latent values are f = a + N(0, ν).
        """
        return self.with_term(likelihood, y, q, site, nu)[0]

    def with_term(
        self, likelihood: AbstractLikelihood, y: Array, q: Marginal, site: Site, nu: Float[Array, " L"] | None
    ) -> tuple[Update, Float[Array, ""] | None]:
        """The same, and the datum's term of the energy, where that was found on the way."""
        left = cavity(q, site, self.power)
        found = self.propose(likelihood, y, widened(q, nu), left._replace(marginal=widened(left.marginal, nu)))
        new = found.site
        if nu is not None and self.in_cavity:
            new = through_noise(new, jnp.diag(nu), self.power)
        kept = Site(*(jnp.where(found.usable, a, b) for a, b in zip(new, site, strict=True)))
        return Update(kept, found.repaired | ~found.usable), found.term


def gradient_matched(
    precision: Float[Array, "L L"],
    slope: Float[Array, " L"],
    at: Float[Array, " L"],
    rest: Float[Array, "L L"] | None,
    tied: Array | float = 1.0,
) -> Proposal:
    """The site with this `precision`, and with log t of gradient `slope` at f = `at`, repaired where need be.

    An outlier under a heavy-tailed likelihood makes q wider, by a site of negative precision. One latent function may
    have that, down to minus half the precision of the rest, whose variance is `rest`, shared among the `tied` data that
    may all ask for it; several may not. Where `rest` is None nothing but rounding can make the precision negative.
    Whatever becomes of the precision, the gradient stays: a repaired site still pulls the mean as the datum does.
    """
    if precision.shape[0] > 1:
        precision, repaired = semidefinite(precision)
    elif rest is None:
        precision, repaired = jnp.maximum(precision, 0.0), jnp.array(False)
    else:
        floor = -LARGEST_NEGATIVE_SHARE / jnp.maximum(tied * rest, jnp.finfo(rest.dtype).tiny)
        precision, repaired = jnp.maximum(precision, floor), (precision < floor)[0, 0]
    return if_finite(Site(slope + precision @ at, precision), repaired)


def if_finite(site: Site, repaired: Array) -> Proposal:
    """`site`, usable where all its numbers are finite."""
    return Proposal(site, repaired, jnp.all(jnp.isfinite(site.shift)) & jnp.all(jnp.isfinite(site.precision)))
