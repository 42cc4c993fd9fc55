r"""Any likelihood: Gaussian sites, one for each observation, found by a rule at the present hyperparameters."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain import Chain, Information
from thiele.energies import Data, converged_energy, energy, information
from thiele.inference import Inferred, infer, initial_sites, sweep
from thiele.kernels import AbstractKernel
from thiele.likelihoods import AbstractLikelihood, Shifted
from thiele.rules import AbstractRule, Site
from thiele.series import Series
from thiele.steps import prior_chain


class Setting(NamedTuple):
    """What rules and energies work on: the likelihood of a latent function of mean zero, its chain, the data."""

    likelihood: AbstractLikelihood
    chain: Chain
    data: Data


def setting(
    kernel: AbstractKernel, likelihood: AbstractLikelihood, mean: Float[Array, "*l"], series: Series
) -> Setting:
    """Put a model and a series together."""
    chain = prior_chain(kernel.sde(), jnp.asarray(series.time), series.repeated)
    return Setting(Shifted(likelihood, mean), chain, Data(series.y, series.observed, series.covariates))


def find_sites(rule: AbstractRule, at: Setting, start: Site | None = None) -> Inferred:
    """Sites to convergence, from `start` if there is one; nothing is differentiated."""
    return infer(rule, *jax.lax.stop_gradient(at), start)


def converged_objective(rule: AbstractRule, at: Setting, found: Inferred) -> Float[Array, ""]:
    """The rule's energy at sites that have converged, differentiable in the hyperparameters."""
    return converged_energy(rule, *at, jax.lax.stop_gradient(found.sites))


def one_sweep(rule: AbstractRule, at: Setting, sites: Site) -> tuple[Site, Array]:
    """One update of all sites, of the rule's own step, and how many were repaired: half of the paper's schedule."""
    swept = sweep(rule, *jax.lax.stop_gradient(at), sites)
    return swept.sites, swept.repaired


def held_objective(rule: AbstractRule, at: Setting, sites: Site) -> Float[Array, ""]:
    """The rule's energy with the sites held: what the paper's schedule takes a gradient step on."""
    return energy(rule, *at, sites)


def first_sites(at: Setting) -> Site:
    """Where sweeps begin."""
    return initial_sites(*at)


def site_information(at: Setting, sites: Site) -> Information:
    """The sites as information on the chain."""
    return information(at.chain, sites, at.data.mask)
