r"""Any likelihood: Gaussian sites, one for each observation or segment, found by a rule at given hyperparameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain import Chain, posterior
from thiele.energies import Data, converged_energy, information
from thiele.even import terms_of
from thiele.inference import Ascent, Inferred, begin_ascent, infer, initial_sites, mixed
from thiele.likelihoods import AbstractLikelihood, Shifted
from thiele.mixtures import Mixture, mixture
from thiele.own_sites import Grouped, OwnSites, own_sites
from thiele.posterior import ChainPosterior, InducedPosterior, induced
from thiele.rules import CVI, VGP, AbstractLocalRule, AbstractRule, Site
from thiele.series import Series
from thiele.steps import prior_chain
from thiele.tied import Induced, Tied


class Setting(NamedTuple):
    """What rules and energies work on: the likelihood of a latent function of mean zero, its chain, the data."""

    likelihood: AbstractLikelihood
    chain: Chain | Mixture | OwnSites | Induced
    data: Data | Tied


def setting(model: Any, data: Series | Tied | Grouped) -> Setting:
    """Put a model and its data together: a chain on their own times, or on the model's inducing times."""
    likelihood = Shifted(model.likelihood, model.mean.value, model.kernel.outputs_observed)
    if isinstance(data, Tied):
        chain = induced(model.kernel, model.inducing.times, model.inducing.of, alike=terms_of(data.even))
        return Setting(likelihood, chain, data.with_weights(chain))
    if isinstance(data, Grouped):
        chain = own_sites(model.kernel, model.inducing.times, data)
        return Setting(likelihood, chain, Data(data.y, data.mask, data.covariates))
    if data.space is not None:
        chain = mixture(model.kernel, jnp.asarray(data.time), jnp.asarray(data.space), data.slots)
    else:
        chain = prior_chain(model.kernel.sde(), jnp.asarray(data.time), data.repeated)
    return Setting(likelihood, chain, Data(data.y, data.observed, data.covariates))


def knows_sites(rule: AbstractRule, likelihood: AbstractLikelihood) -> bool:
    """Whether sites are what the data themselves say, under every q: there is nothing to sweep for."""
    return isinstance(rule, CVI) and likelihood.conjugate


def find_sites(rule: AbstractRule, at: Setting, start: Site | None = None, *, patient: bool = True) -> Inferred:
    """Sites to convergence, from `start` if there is one; nothing is differentiated but the energy of known ones."""
    if knows_sites(rule, at.likelihood):
        return _at_known_sites(rule, at)
    return infer(rule, *jax.lax.stop_gradient(at), start, patient=patient)


def _at_known_sites(rule: AbstractRule, at: Setting) -> Inferred:
    """The energy, with its derivative and with q, by one pass there and back."""
    none = at.data.empty(at.chain, at.likelihood.latents)
    visit = at.data.visit(rule, at.likelihood, at.chain, at.data.prior(at.chain), none)
    sites = jax.lax.stop_gradient(visit.target)
    value, q = _held(rule, at, sites)
    still, none = jnp.zeros_like(value), jnp.array(0)
    return Inferred(sites, q, value, none + 1, jnp.array(True), still, still + 1.0, none)


def converged_objective(rule: AbstractRule, at: Setting, found: Inferred) -> Float[Array, ""]:
    """The rule's energy at sites that have converged, differentiable in the hyperparameters."""
    if knows_sites(rule, at.likelihood):
        return found.energy
    return converged_energy(rule, *at, *jax.lax.stop_gradient((found.sites, found.marginals)))


def begin(rule: AbstractRule, at: Setting) -> Site | Ascent:
    """Where the paper's schedule begins: sites, or what a rule by gradients keeps in their place."""
    sites = initial_sites(*at)
    return begin_ascent(rule, sites) if isinstance(rule, VGP) else sites


def one_round(rule: AbstractLocalRule, at: Setting, sites: Site) -> tuple[Float[Array, ""], tuple[Site, Array]]:
    """A round of the paper's schedule, from one pass of the smoother and one visit of the data: the energy with the
    sites held, which a gradient step is taken on; where a sweep of the rule's own step leads; how many were repaired.

    Where the rule makes its energy stationary, q is held in the sum over data, as in the published programs. Where it
    does not (EKS, PL, Laplace), a step with q held may lead away from the maximum, and q follows.
    """
    q, log_z = at.data.smooth(at.chain, sites, held=rule.stationary)
    if rule.stationary:
        q = jax.lax.stop_gradient(q)  # so that nobody asks for a derivative that is zero
    found = at.data.visit(rule, at.likelihood, at.chain, q, sites)
    return log_z + found.terms, (mixed(sites, found.target, rule.step), found.repaired)


def sites_of(state: Site | Ascent | None) -> Site | None:
    """The sites that such a state stands for."""
    return state.factors.sites() if isinstance(state, Ascent) else state


def _held(rule: AbstractRule, at: Setting, sites: Site) -> tuple[Float[Array, ""], Any]:
    """The energy where sites and q are held, and q."""
    q, log_z = at.data.smooth(at.chain, sites, held=True)
    return log_z + at.data.terms(rule, at.likelihood, at.chain, q, sites)[0], q


def first_sites(at: Setting) -> Site:
    """Where sweeps begin."""
    return initial_sites(*at)


def condition(model: Any, data: Series | Tied | Grouped, sites: Site) -> ChainPosterior | InducedPosterior:
    """The posterior that the sites make."""
    if isinstance(data, Grouped):
        chain = own_sites(model.kernel, model.inducing.times, data)
        return InducedPosterior(model.inducing.times, *chain.tied(sites, data.mask), "states")
    at = setting(model, data)
    if isinstance(data, Tied):
        return InducedPosterior(model.inducing.times, data.smooth(at.chain, sites)[0], sites, model.inducing.of)
    if isinstance(at.chain, Mixture):
        info, chain, times = at.chain.information(sites, at.data.mask), at.chain.chain, data.slots.time
    else:
        info, chain, times = information(at.chain, sites, at.data.mask), at.chain, data.time
    return ChainPosterior(jnp.asarray(times), posterior(chain, info)[0], info._replace(H=None))
