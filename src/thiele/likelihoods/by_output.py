"""A likelihood for each of several outputs: counts here, temperatures there, or noise of different size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from thiele.likelihoods.base import AbstractLikelihood
from thiele.likelihoods.gaussian import Gaussian

# Values of which every likelihood allows one: what a datum of another output is taken for.
STAND_INS = (1.0, 0.5, 0.0)


class ByOutput(AbstractLikelihood):
    """p(y | f) of the likelihood that `output` chooses; made by `EachOutput(likelihood, likelihood, ...)`.

    A model with `th.Coregional` sets `output` from its inputs.
    """

    likelihoods: tuple[AbstractLikelihood, ...]
    stand_ins: tuple[float, ...] = eqx.field(static=True, repr=False)
    output: Array = eqx.field(converter=jnp.asarray, default=0, repr=False)

    @property
    def conjugate(self) -> bool:
        return all(each.conjugate for each in self.likelihoods)

    @property
    def log_concave(self) -> bool:
        return all(each.log_concave for each in self.likelihoods)

    def at(self, **values: ArrayLike) -> ByOutput:
        own = {"output": values.pop("output")} if "output" in values else {}
        known = {name for each in self.likelihoods for name in each.covariates}
        for name in values:
            if name not in known:
                raise ValueError(f"no likelihood of EachOutput has a covariate `{name}`; there are {sorted(known)}")
        parts = tuple(
            each.at(**{name: value for name, value in values.items() if name in each.covariates})
            for each in self.likelihoods
        )
        moved = eqx.tree_at(lambda k: k.likelihoods, self, parts)
        return eqx.tree_at(lambda k: k.output, moved, jnp.asarray(own["output"])) if own else moved

    def _chosen(self, method: str, y: Array | None, *args: Any) -> Any:
        """That method of the likelihood of this output. The others see a value of their own: nothing is computed from
        one that they do not allow, and no derivative of it is mixed in.
        """
        found = []
        for i, (each, stand_in) in enumerate(zip(self.likelihoods, self.stand_ins, strict=True)):
            seen = () if y is None else (jnp.where(self.output == i, y, stand_in),)
            found.append(getattr(each, method)(*seen, *args))
        return jax.tree.map(lambda *branches: self._of_output(branches), *found)

    def _of_output(self, branches: Sequence[Array]) -> Array:
        chosen = branches[-1]
        for i, branch in enumerate(branches[:-1]):
            chosen = jnp.where(self.output == i, branch, chosen)
        return chosen

    def log_prob(self, y, f):
        return self._chosen("log_prob", y, f)

    def conditional_mean(self, f):
        return self._chosen("conditional_mean", None, f)

    def conditional_variance(self, f):
        return self._chosen("conditional_variance", None, f)

    def cdf(self, y, f):
        return self._chosen("cdf", y, f)

    def sample(self, key, f):
        return self._of_output([jnp.asarray(each.sample(key, f), f.dtype) for each in self.likelihoods])

    def expected_log_prob(self, y, mean, var, quadrature=None):
        return self._chosen("expected_log_prob", y, mean, var, quadrature)

    def log_expected_power(self, y, mean, var, power, quadrature=None):
        return self._chosen("log_expected_power", y, mean, var, power, quadrature)

    def predict_mean_var(self, mean, var, quadrature=None):
        return self._chosen("predict_mean_var", None, mean, var, quadrature)

    def predictive_cdf(self, y, mean, var, quadrature=None):
        return self._chosen("predictive_cdf", y, mean, var, quadrature)

    def predictive_quantile(self, p, mean, var, quadrature=None):
        return self._chosen("predictive_quantile", None, p, mean, var, quadrature)

    def check(self, y: ArrayLike) -> None:
        values, output = np.asarray(y, dtype=np.float64), np.broadcast_to(np.asarray(self.output), np.shape(y))
        for i, each in enumerate(self.likelihoods):
            try:
                each.check(np.where(output == i, values, np.nan))
            except ValueError as error:
                raise ValueError(f"output {i}: {error}") from None


def EachOutput(*likelihoods: AbstractLikelihood) -> ByOutput:  # noqa: N802 - reads as the other likelihoods do
    """One likelihood for each output of `th.Coregional`, in their order: `EachOutput(Gaussian(), Poisson())`."""
    if not likelihoods:
        raise ValueError("`likelihoods` of EachOutput must hold at least one likelihood, got none")
    for each in likelihoods:
        if not isinstance(each, AbstractLikelihood):
            raise TypeError(f"`likelihoods` of EachOutput must be likelihoods such as th.Poisson(), got {each!r}")
        if each.latents != 1:
            raise ValueError(
                "`likelihoods` of EachOutput must be of one latent function, "
                f"got {type(each).__name__} of {each.latents}"
            )
    return ByOutput(likelihoods, tuple(_allowed(each) for each in likelihoods))


def _allowed(likelihood: AbstractLikelihood) -> float:
    for value in STAND_INS:
        try:
            likelihood.check(np.array([value]))
        except ValueError:
            continue
        return value
    raise ValueError(f"{type(likelihood).__name__} allows none of {STAND_INS}, one of which EachOutput needs")


def has_gaussian_noise(likelihood: AbstractLikelihood) -> bool:
    """Whether y is f plus Gaussian noise, whatever the output: then f is on the scale of y."""
    parts = likelihood.likelihoods if isinstance(likelihood, ByOutput) else (likelihood,)
    return all(isinstance(each, Gaussian) for each in parts)
