"""What a likelihood is: log p(y | f) of one datum, and everything that inference and prediction ask of it.

Every method sees one datum; `vmap` does the rest. f is a scalar for one latent function and a vector (L,) for several;
the moments of q(f) = N(mean, var) are two scalars, or (L,) and (L, L). `quadrature` is a rule from `thiele.quadrature`,
or `None` for the default of the dimension at hand; a closed form ignores it. y must be a value the likelihood allows:
callers put any such value in the place of a missing one and mask the result.

Defaults here are by quadrature. A likelihood that has a closed form states it under the same name.
"""

from __future__ import annotations

import abc
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from thiele.likelihoods.quantiles import Interval, count_bracket, integer_quantile, interval_quantile
from thiele.parameters import Parametric
from thiele.quadrature import AbstractQuadrature, expectation, gaussian_points, log_expectation, weighted_sum

S = TypeVar("S", bound="AbstractLikelihood")


class AbstractLikelihood(Parametric):
    """p(y | f), its moments, and the distribution of y when f is Gaussian."""

    covariates: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that may be given per datum, such as `exposure`."""

    @property
    def latents(self) -> int:
        """How many latent functions one datum depends on."""
        return 1

    @property
    def conjugate(self) -> bool:
        """Whether log p(y | f) is a parabola in f, and so a Gaussian site itself."""
        return False

    @property
    def log_concave(self) -> bool:
        """Whether log p(y | f) is known to bend downwards in f everywhere, for every y: no site can ask for less than
        no precision. False where nobody has looked.
        """
        return self.conjugate

    def at(self: S, **values: ArrayLike) -> S:
        """The likelihood with these covariates in place of its own: one datum's under `vmap`, or all of them."""
        for name in values:
            if name not in self.covariates:
                known = ", ".join(f"`{c}`" for c in self.covariates) or "none"
                raise ValueError(f"{type(self).__name__} has no covariate `{name}`; it has {known}")
        if not values:
            return self
        replacements = [jnp.asarray(value) for value in values.values()]
        return eqx.tree_at(lambda likelihood: [getattr(likelihood, name) for name in values], self, replacements)

    # Given f.

    @abc.abstractmethod
    def log_prob(self, y: Array, f: Array) -> Float[Array, ""]:
        """log p(y | f)."""

    @abc.abstractmethod
    def conditional_mean(self, f: Array) -> Array:
        """E[statistic(y) | f]."""

    @abc.abstractmethod
    def conditional_variance(self, f: Array) -> Array:
        """Var[statistic(y) | f]: a scalar, or a matrix where the statistic is a vector."""

    @abc.abstractmethod
    def cdf(self, y: Array, f: Array) -> Float[Array, ""]:
        """P(Y ≤ y | f)."""

    @abc.abstractmethod
    def sample(self, key: Array, f: Array) -> Array:
        """One draw of y given f."""

    def statistic(self, y: Array) -> Array:
        """The number or vector whose mean is `conditional_mean`: y itself unless y is a label."""
        return y

    # Under f ~ N(mean, var).

    def expected_log_prob(
        self, y: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        """E log p(y | f), the variational expectation (paper, section 2.3)."""
        return expectation(lambda f: self.log_prob(y, f), mean, var, quadrature)

    def log_expected_power(
        self, y: Array, mean: Array, var: Array, power: Array | float, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        """log E p(y | f)^power, the normaliser of the tilted distribution (paper, section 4.2)."""
        return log_expectation(lambda f: power * self.log_prob(y, f), mean, var, quadrature, one_hill=self.log_concave)

    def tilted_moments(
        self, y: Array, mean: Array, var: Array, power: Array | float, quadrature: AbstractQuadrature | None = None
    ) -> tuple[Array, Array, Array]:
        """`log_expected_power`, with its first and its second derivative in the mean."""

        def slope(m: Array) -> tuple[Array, tuple[Array, Array]]:
            found = jax.value_and_grad(lambda m: self.log_expected_power(y, m, var, power, quadrature))(m)
            return found[1], found

        second, (value, first) = jax.jacfwd(slope, has_aux=True)(mean)
        return value, first, second

    def log_predictive(
        self, y: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        """log E p(y | f), the log predictive density."""
        return self.log_expected_power(y, mean, var, 1.0, quadrature)

    def predict_mean_var(
        self, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance of `statistic(y)`: ω and B of posterior linearisation (paper, appendix C.5)."""
        return mixture_moments(self, mean, var, quadrature)

    def predictive_cdf(
        self, y: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        """P(Y ≤ y) with f integrated out."""
        return expectation(lambda f: self.cdf(y, f), mean, var, quadrature)

    @abc.abstractmethod
    def predictive_quantile(
        self, p: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        """The smallest y with P(Y ≤ y) ≥ p, f integrated out."""

    # On the host, in numpy, with all data at hand.

    @abc.abstractmethod
    def check(self, y: ArrayLike) -> None:
        """Raise a ValueError that names the first value of `y` (n,) that this likelihood cannot have produced.

        NaN stands for a missing value and is allowed. Covariates are checked too: `likelihood.at(trials=n).check(y)`.
        """

    def initial_guess(self, y: ArrayLike) -> dict[str, np.ndarray]:
        """Starting values for some of the likelihood's own parameters, from data in the order of time."""
        return {}


class AbstractContinuous(AbstractLikelihood):
    """A likelihood with a density on an interval of the real line."""

    support: eqx.AbstractClassVar[Interval]

    def predictive_quantile(
        self, p: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        return continuous_quantile(self, self.support, p, mean, var, quadrature)

    def check(self, y: ArrayLike) -> None:
        refuse(y, self.support.contains, self.support.words, type(self).__name__)


class AbstractInteger(AbstractLikelihood):
    """A likelihood for 0, 1, 2, … up to `largest`, which is infinite for counts."""

    @property
    @abc.abstractmethod
    def largest(self) -> ArrayLike:
        """The largest value that y can take."""

    def predictive_quantile(
        self, p: Array, mean: Array, var: Array, quadrature: AbstractQuadrature | None = None
    ) -> Float[Array, ""]:
        return discrete_quantile(self, self.largest, p, mean, var, quadrature)

    def check(self, y: ArrayLike) -> None:
        refuse_unless_integer(y, self.largest, type(self).__name__)


def mixture_moments(
    likelihood: AbstractLikelihood, mean: Array, var: Array, quadrature: AbstractQuadrature | None
) -> tuple[Array, Array]:
    """Mean and variance of `statistic(y)` by quadrature: E[y] = E E[y | f], Var[y] = E Var[y | f] + Var E[y | f]."""
    points, weights = gaussian_points(mean, var, quadrature)
    means, variances = jax.vmap(lambda f: (likelihood.conditional_mean(f), likelihood.conditional_variance(f)))(points)
    first = weighted_sum(means, weights)
    between = weighted_sum(jax.vmap(square)(means - first), weights)
    return first, weighted_sum(variances, weights) + between


def continuous_quantile(
    likelihood: AbstractLikelihood,
    support: Interval,
    p: Array,
    mean: Array,
    var: Array,
    quadrature: AbstractQuadrature | None,
) -> Float[Array, ""]:
    """The predictive quantile of a likelihood with a density on `support`."""
    location, variance = likelihood.predict_mean_var(mean, var, quadrature)
    # Heavy tails have no variance; the search only needs an order of magnitude.
    scale = jnp.sqrt(jnp.where(jnp.isfinite(variance) & (variance > 0), variance, 1.0 + jnp.max(var)))
    return interval_quantile(
        lambda y: likelihood.predictive_cdf(y, mean, var, quadrature),
        lambda y: jnp.exp(likelihood.log_predictive(y, mean, var, quadrature)),
        p,
        support,
        location,
        scale,
    )


def discrete_quantile(
    likelihood: AbstractLikelihood,
    largest: ArrayLike,
    p: Array,
    mean: Array,
    var: Array,
    quadrature: AbstractQuadrature | None,
) -> Float[Array, ""]:
    """The predictive quantile of a likelihood on the integers from 0 to `largest`."""
    # The moments of the very mixture whose distribution function is searched, so that the bracket holds for it.
    low, high = count_bracket(p, *mixture_moments(likelihood, mean, var, quadrature))
    return integer_quantile(
        lambda y: likelihood.predictive_cdf(y, mean, var, quadrature),
        p,
        jnp.minimum(low, largest),
        jnp.minimum(high, largest),
    )


def square(x: Array) -> Array:
    """x² of a number, x x' of a vector."""
    return jnp.square(x) if jnp.ndim(x) == 0 else jnp.outer(x, x)


def refuse(y: ArrayLike, allowed, expected: str, owner: str, name: str = "y", hint: str = "") -> None:
    """Raise a ValueError that names the first finite value of `y` outside `allowed`, or an infinite one."""
    values = np.asarray(y, dtype=np.float64)
    if values.ndim > 1:
        raise ValueError(f"`{name}` of {owner} must have shape (n,), got {values.shape}")
    wrong = ~np.isnan(values) & ~(np.isfinite(values) & np.asarray(allowed(values)))
    if np.any(wrong):
        row = int(np.flatnonzero(wrong)[0])
        found = np.atleast_1d(values)[row]
        raise ValueError(f"`{name}` of {owner} must be {expected}, got {found:g} at row {row}{hint}")


def refuse_unless_integer(y: ArrayLike, largest: ArrayLike, owner: str) -> None:
    """Raise a ValueError unless every value of `y` is an integer from 0 to `largest`."""
    largest = np.asarray(largest)
    limit = "" if np.all(np.isinf(largest)) else f" up to {largest:g}" if largest.ndim == 0 else " up to `trials`"
    refuse(y, lambda v: (v >= 0) & (v == np.floor(v)) & (v <= largest), f"an integer from 0{limit}", owner)


def noise_variance(y: ArrayLike) -> np.ndarray:
    """A robust guess of the variance of observation noise: half that of the differences between neighbours in time."""
    values = np.asarray(y, dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size < 3 or np.ptp(values) == 0.0:
        return np.asarray(1.0)
    differences = np.median(np.abs(np.diff(values))) / 0.6745
    total = np.var(values)
    return np.asarray(np.clip(0.5 * differences**2, 1e-3 * total, total))
