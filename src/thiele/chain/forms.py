"""One surface, two forms: covariances in lanes, fast and differentiable to any order, or factors in one lane, which
stay positive semidefinite in float32.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from thiele.chain import normaliser, smoothing, square_root, whole_states
from thiele.chain.smoothing import Marginals, Outputs
from thiele.chain.types import Chain, Information, Posterior

Form = Literal["covariance", "square_root"]


def choose_form(chain: Chain, form: Form | None = None, info: Information | None = None) -> Form:
    """The form asked for; else by the precision of the chain's mean: "covariance" for float64, "square_root" below.

    Information on mixtures is there as covariances only.
    """
    if info is not None and info.mix is not None:
        if form == "square_root":
            raise ValueError('`form` must be "covariance" for information on mixtures, got "square_root"')
        return "covariance"
    if form is None:
        return "covariance" if chain.mean.dtype == jnp.float64 else "square_root"
    if form not in ("covariance", "square_root"):
        raise ValueError(f"`form` must be 'covariance', 'square_root' or None, got {form!r}")
    return form


def log_normaliser(
    chain: Chain, info: Information, lanes: int | None = None, form: Form | None = None
) -> Float[Array, ""]:
    """log ∫ p(x) Π_i exp(shift_i·f_i − ½ (f_i − centre_i)ᵀ precision_i (f_i − centre_i)) dx."""
    if choose_form(chain, form, info) == "square_root":
        return square_root.log_normaliser(chain, info)
    if whole_states.applies(chain, info, lanes):
        return whole_states.log_normaliser(chain, info)
    return normaliser.log_normaliser(chain, info, lanes)


def posterior(
    chain: Chain, info: Information, lanes: int | None = None, form: Form | None = None, *, mapped: bool = False
) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior at every state, and the log-normaliser. `mapped`: under `vmap` over shifts or centres all share
    their covariances.
    """
    if choose_form(chain, form, info) == "square_root":
        return square_root.posterior(chain, info)
    if whole_states.applies(chain, info, lanes):
        return whole_states.posterior(chain, info, mapped)
    return smoothing.posterior(chain, info, lanes, mapped)


def outputs(
    chain: Chain, info: Information, lanes: int | None = None, form: Form | None = None, *, held: bool = False
) -> tuple[Outputs, Float[Array, ""]]:
    """The marginals of the outputs f = H x at every state, and the log-normaliser. `held`: only the latter has a
    derivative, which keeps no tape and costs no further pass.
    """
    if choose_form(chain, form, info) == "square_root":
        found, log = square_root.outputs(chain, info)
        return (lax.stop_gradient(found), log) if held else (found, log)
    return (normaliser.held_outputs if held else smoothing.outputs)(chain, info, lanes)


def marginals(chain: Chain, info: Information, lanes: int | None = None, form: Form | None = None) -> Marginals:
    """Posterior moments of every state and of every pair of neighbours."""
    if choose_form(chain, form, info) == "square_root":
        return square_root.marginals(chain, info)
    return smoothing.marginals(chain, info, lanes)
