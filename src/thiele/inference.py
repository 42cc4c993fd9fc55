r"""Sites to convergence at fixed hyperparameters: sweeps of a rule over all data at once, with a step that adapts.

One sweep smooths with the present sites, asks the rule for new ones, and goes a share of the way. All sites move
together (paper, section 4.4). How far they have still to go is measured at each datum without units,

    residual² = e′ v e + ½ tr(v ΔΛ v ΔΛ),    e = Δh − ΔΛ m,

for the change (Δh, ΔΛ) that the rule asks for and the marginal N(m, v): roughly the change of q in its own standard
deviations. It does not shrink when the step does, so a small step is never mistaken for convergence.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from thiele.energies import energy
from thiele.likelihoods import AbstractLikelihood
from thiele.rules import VGP, AbstractLocalRule, AbstractRule, Marginal, PowerEP, Site
from thiele.rules.alone import Alone
from thiele.rules.vgp import Factors

# A residual may grow by this factor in one sweep: on the way from a poor start it does.
GROWTH = 2.0
SMALLEST_STEP = 1e-5
# Times the change that a rule asks for: with 1 the sites of motorcycle took a third more sweeps (CVI), and three times
# as many (sparse power EP).
FARTHEST = 4.0
# In nats: an energy that is the difference of terms so large that their rounding exceeds this says nothing, not even on
# the way to sites that say more.
LARGEST_ROUNDING = 1e6
# So many starts are tried for one whose energy is good to a nat.
STARTS = 12
# How often the pace is looked at, in sweeps: on motorcycle residuals stand still for ten, and converge all the same.
PACE = 20
# The baseline by gradients has no residual; it has converged when this many steps in a row gain nothing. Near the
# optimum the first steps of Adam lead away from it, and fewer would take that for the end.
PATIENCE = 60
# Columns of a root whose every entry Adam moves by its whole step.
LARGEST_ROOT_AT_REST = 8


class Inferred(NamedTuple):
    """Sites, what they imply, and how inference went."""

    sites: Site
    marginals: Marginal
    energy: Float[Array, ""]
    sweeps: Int[Array, ""]
    """Passes of the smoother, those included whose step was then halved."""
    converged: Bool[Array, ""]
    residual: Float[Array, ""]
    step: Float[Array, ""]
    """The step that was last in use."""
    repaired: Int[Array, ""]
    """How many sites had their precision raised to what is allowed, or could not be updated, in the last sweep."""


class Swept(NamedTuple):
    """Sites after one sweep, the marginals before it, and how many sites were repaired."""

    sites: Site
    marginals: Marginal
    repaired: Int[Array, ""]


# `chain` and `data` come in pairs: a `Chain` with `energies.Data`, one site for each datum, or `Bridges` with
# `tied.Tied`, one site for each segment.


def initial_sites(likelihood: AbstractLikelihood, chain: Any, data: Any) -> Site:
    """The site of each datum in the context of the prior alone: a good start for every rule."""
    rule = Alone() if likelihood.latents == 1 else PowerEP()
    none = data.empty(chain, likelihood.latents)
    return data.visit(rule, likelihood, chain, data.prior(chain), none).target


def sweep(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    chain: Any,
    data: Any,
    sites: Site,
    step: Array | float | None = None,
) -> Swept:
    """One smoothing pass and one update of all sites, of size `step` (the rule's own by default), unconditionally."""
    marginals, _ = data.smooth(chain, sites)
    found = data.visit(rule, likelihood, chain, marginals, sites)
    return Swept(mixed(sites, found.target, rule.step if step is None else step), marginals, found.repaired)


def mixed(old: Site, new: Site, share: Array | float) -> Site:
    """(1 − share) · old + share · new, in natural parameters."""
    return jax.tree.map(lambda a, b: a + share * (b - a), old, new)


class Look(NamedTuple):
    """All that one smoothing pass tells about a set of sites."""

    sites: Site
    marginals: Marginal
    energy: Array
    merit: Array
    slack: Array
    target: Site
    repaired: Array
    residual: Array


class State(NamedTuple):
    """The sites in hand and the step that is tried from them."""

    now: Look
    step: Array
    sweeps: Array
    mark: Array
    """The residual when the pace was looked at last."""
    hopeless: Array


def infer(
    rule: AbstractRule,
    likelihood: AbstractLikelihood,
    chain: Any,
    data: Any,
    sites: Site | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    patient: bool = True,
) -> Inferred:
    """Sweep from `sites` (by default `initial_sites`) until every residual is below `tolerance`, or `max_sweeps` times;
    who is not `patient` ends once the sweeps that are left would not do, at the pace of the last ones.

    A step that makes things worse, or gives a number that is not finite, is taken back and halved: for CVI the ELBO
    never falls, for Laplace log p(y, f) never does, while no site is repaired, and for the others the residual may not
    jump. After a good step the next is sized by Aitken's secant rule, so that oscillations die out and changes that
    shrink slowly are gone through several at a time. A pure function to `jit`; `tolerance` and `max_sweeps` may be
    traced. For `VGP` the tolerance is on the relative gain of the ELBO.
    """
    if sites is None:
        sites = initial_sites(likelihood, chain, data)
    if isinstance(rule, VGP):
        return _ascend(rule, likelihood, chain, data, sites, tolerance, max_sweeps)
    return _sweep_to_convergence(rule, likelihood, chain, data, sites, tolerance, max_sweeps, patient)


def _sweep_to_convergence(
    rule: AbstractLocalRule,
    likelihood: AbstractLikelihood,
    chain: Any,
    data: Any,
    start: Site,
    tolerance: float,
    max_sweeps: int,
    patient: bool,
) -> Inferred:
    def look(sites: Site) -> Look:
        marginals, log_z = data.smooth(chain, sites)
        terms, size, target, repaired = data.visit(rule, likelihood, chain, marginals, sites)
        residual = jnp.sqrt(jnp.max(_products(marginals, *2 * (_change(sites, target, marginals),))))
        total = log_z + terms
        merit = {
            "energy": lambda: total,
            "joint": lambda: data.log_joint(likelihood, chain, marginals, sites),
            "residual": lambda: -residual,
        }[rule.merit]()
        # Sums of n terms agree to within their rounding; asking for more would stop inference short of its optimum.
        slack = 1e2 * jnp.finfo(log_z.dtype).eps * (jnp.abs(log_z) + size)
        return Look(sites, marginals, total, merit, slack, target, repaired, residual)

    def advance(state: State) -> State:
        now, step, sweeps, mark, _ = state
        new = look(mixed(now.sites, now.target, step))
        if rule.merit == "residual":
            no_worse = new.residual <= GROWTH * now.residual
        else:
            no_worse = new.merit >= now.merit - now.slack - new.slack
            # Repaired sites are not where the merit is highest; there the rule's own fixed point is the aim.
            no_worse |= (new.repaired > 0) & (new.residual < now.residual)
        good = jnp.isfinite(new.energy) & jnp.isfinite(new.residual) & _is_a_density(new.marginals) & no_worse
        good &= new.slack < jnp.where(jnp.isfinite(now.residual) | (sweeps > STARTS), LARGEST_ROUNDING, 1.0)
        # The first good look has no predecessor to learn a step from.
        following = jnp.where(~jnp.isfinite(now.residual), rule.step, _secant_step(now, new, step, rule.step))
        kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, now)
        done = sweeps + 1
        looks = done % PACE == 0
        hopeless = jnp.array(False) if patient else looks & too_slow(mark, kept.residual, max_sweeps - done)
        mark = jnp.where(looks, kept.residual, mark)
        return State(*another_start(kept, jnp.where(good, following, 0.5 * step), sweeps), done, mark, hopeless)

    def too_slow(before: Array, after: Array, left: Array) -> Array:
        """Whether so many sweeps will not do, if each takes as much off the residual as the last ones did."""
        return PACE * jnp.log(after / tolerance) > left * jnp.log(before / after)

    def another_start(now: Look, step: Array, sweeps: Array) -> tuple[Look, Array]:
        """While nothing was good yet: q held ever nearer to the prior mean, and the start ever more faintly, in turn.

        Under a wide q the mean of a steep log p(y | f) overflows where under a narrow one it does not.
        """
        blank, power = ~jnp.isfinite(now.residual), 4.0 ** (sweeps // 2 + 1)
        held = sweeps % 2 == 0
        other = jax.tree.map(lambda a, b: jnp.where(held, a, b), hold, start)
        target = jax.tree.map(lambda a, b: jnp.where(blank, a, b), other, now.target)
        return now._replace(target=target), jnp.where(blank, jnp.where(held, power, 1.0 / power), step)

    def unfinished(state: State) -> Array:
        now, step, sweeps, _, hopeless = state
        return (now.residual > tolerance) & (sweeps < max_sweeps) & (step > SMALLEST_STEP) & ~hopeless

    # Before the first look: the prior, worse than anything, from which `start` is a full step away.
    none, prior = jax.tree.map(jnp.zeros_like, start), data.prior(chain)
    spread = jnp.diagonal(prior.var, axis1=-2, axis2=-1)
    inverse = jnp.where(spread > 0.0, 1.0 / jnp.where(spread > 0.0, spread, 1.0), 0.0)
    hold = Site(none.shift, inverse[..., None] * jnp.eye(spread.shape[-1], dtype=spread.dtype))
    worst = jnp.full((), -jnp.inf, start.shift.dtype)
    unknown = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), prior)
    nothing, no_slack = jnp.zeros((), int), jnp.zeros_like(worst)
    before = Look(none, unknown, worst, worst, no_slack, start, nothing, -worst)
    begun = State(before, jnp.ones_like(worst), jnp.array(0), -worst, jnp.array(False))
    now, step, sweeps, *_ = lax.while_loop(unfinished, advance, begun)
    return Inferred(
        now.sites, now.marginals, now.energy, sweeps, now.residual <= tolerance, now.residual, step, now.repaired
    )


def _is_a_density(marginals: Marginal) -> Bool[Array, ""]:
    """Whether no variance is negative by more than rounding, as sites of negative precision may make it."""
    variances = jnp.diagonal(marginals.var, axis1=-2, axis2=-1)
    return jnp.min(variances) >= -1e3 * jnp.finfo(variances.dtype).eps * jnp.max(variances)


def _change(old: Site, new: Site, marginals: Marginal) -> Site:
    """(e, ΔΛ) of the residual."""
    precision = new.precision - old.precision
    return Site(new.shift - old.shift - jnp.einsum("nij,nj->ni", precision, marginals.mean), precision)


def _products(marginals: Marginal, a: Site, b: Site) -> Float[Array, " n"]:
    """⟨a, b⟩ of two changes at each datum: residual² for a = b."""
    first = jnp.einsum("ni,nij,nj->n", a.shift, marginals.var, b.shift)
    left, right = marginals.var @ a.precision, marginals.var @ b.precision
    return first + 0.5 * jnp.einsum("nij,nji->n", left, right)


def _secant_step(now: Look, new: Look, step: Array, largest: float) -> Array:
    """ρ ⟨d, d − d′⟩ / ⟨d − d′, d − d′⟩: what would have taken the change d to zero, were d′ linear in the step ρ."""
    before = _change(now.sites, now.target, new.marginals)
    after = _change(new.sites, new.target, new.marginals)
    fall = jax.tree.map(jnp.subtract, before, after)
    top = jnp.sum(_products(new.marginals, before, fall))
    bottom = jnp.sum(_products(new.marginals, fall, fall))
    secant = step * top / jnp.where(bottom > 0, bottom, 1.0)
    # Changes that shrink slowly, one like the other, are gone through several at a time, unless the rule is to be calm.
    farthest = max(largest, FARTHEST) if largest >= 1.0 else largest
    return jnp.where(jnp.isfinite(secant) & (bottom > 0), jnp.clip(secant, 0.1 * largest, farthest), largest)


class Ascent(NamedTuple):
    """Where plain gradients have got to: free parameters of the sites, and the memory of Adam."""

    factors: Factors
    memory: Any


def begin_ascent(rule: VGP, sites: Site) -> Ascent:
    """From `sites`."""
    factors = rule.factors(sites)
    return Ascent(factors, optax.adam(rule.step).init(factors))


def ascend(rule: VGP, at: Ascent, slope: Factors) -> Ascent:
    """One step of Adam along the ELBO's `slope` in the free parameters."""
    downhill = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), -g, 0.0), slope)
    change, memory = optax.adam(rule.step).update(downhill, at.memory)
    share = Factors(1.0, _share_of_root(at.factors))
    return Ascent(optax.apply_updates(at.factors, jax.tree.map(jnp.multiply, change, share)), memory)


def _share_of_root(factors: Factors) -> float:
    """Adam moves every entry alike, and so the norm of a root of D columns by √D times as much. The root that all data
    share, of inducing values, has hundreds, and would not come to rest.
    """
    sites, columns = factors.root.shape[0], factors.root.shape[-1]
    return min(1.0, math.sqrt(LARGEST_ROOT_AT_REST / columns)) if sites == 1 else 1.0


def _ascend(
    rule: VGP,
    likelihood: AbstractLikelihood,
    chain: Any,
    data: Any,
    start: Site,
    tolerance: float,
    max_sweeps: int,
) -> Inferred:
    """Adam on the ELBO; the best sites met on the way are kept."""

    def elbo(factors: Factors) -> Array:
        return energy(rule, likelihood, chain, data, factors.sites())

    def advance(state: tuple) -> tuple:
        at, best, most, since, count = state
        value, slope = jax.value_and_grad(elbo)(at.factors)
        ahead = ascend(rule, at, slope)
        best = jax.tree.map(lambda a, b: jnp.where(value > most, a, b), at.factors, best)
        since = jnp.where(value > most + tolerance * (1.0 + jnp.abs(value)), 0, since + 1)
        return ahead, best, jnp.maximum(value, most), since, count + 1

    def unfinished(state: tuple) -> Array:
        *_, since, count = state
        return (since < PATIENCE) & (count < max_sweeps)

    at = begin_ascent(rule, start)
    nothing = jnp.full((), jnp.inf, start.shift.dtype)
    _, best, most, since, count = lax.while_loop(
        unfinished, advance, (at, at.factors, -nothing, jnp.array(0), jnp.array(0))
    )
    sites = best.sites()
    marginals, _ = data.smooth(chain, sites)
    step = jnp.full_like(nothing, rule.step)
    return Inferred(sites, marginals, most, count, since >= PATIENCE, nothing, step, jnp.array(0))
