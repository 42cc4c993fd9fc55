"""Where sites begin: the prior of all data without a filter, and each datum alone with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.likelihoods.registry import jit
from tests.tied import tied
from thiele.bridges import bridges
from thiele.energies import observed
from thiele.inference import initial_sites
from thiele.mixtures import mixture
from thiele.rules import Marginal
from thiele.rules.alone import Alone
from thiele.rules.cavity import Cavity
from thiele.series import slots
from thiele.steps import distinct_steps, prior_chain
from thiele.values import values


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


T = np.linspace(0.5, 6.0, 12)
Y = np.array([0.0, 1, 2, 1, 0, 3, 4, 2, np.nan, 1, 0, 1])
Z = np.array([1.0, 2.5, 5.0])
KERNELS = {
    "stationary": th.Matern32(1.2, 2.0),
    "from an origin": th.Matern12(0.7, 1.5) + th.Wiener(0.4),
    "two": th.Stack(th.Matern12(1.2, 2.0), th.Matern32(0.5, 1.0)),
}


CHAINS = {
    "each datum": lambda kernel: prior_chain(kernel.sde(), jnp.asarray(T)),
    "regular steps": lambda kernel: prior_chain(kernel.sde(), jnp.asarray(T), distinct_steps(T)),
    "states": lambda kernel: bridges(kernel, jnp.asarray(Z)),
    "values": lambda kernel: values(kernel, jnp.asarray(Z)),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("of", CHAINS)
def test_the_prior_is_what_the_smoother_makes_of_no_sites(of, name):
    data = tied(T, observed(Y), Z) if of in ("states", "values") else observed(Y)

    def both():
        chain = CHAINS[of](KERNELS[name])
        none = data.empty(chain, KERNELS[name].latents)
        return data.prior(chain), data.smooth(chain, none)[0]

    for ours, smoothed in zip(*jit(both)(), strict=True):
        np.testing.assert_allclose(ours, smoothed, rtol=1e-10, atol=1e-12)


def test_in_space_too():
    places = np.stack([np.cos(T), np.sin(2.0 * T)], axis=1)
    times = np.repeat(T[::2], 2)
    kernel = th.SpaceTime(th.Matern32(1.2, 2.0), th.spatial.Matern32(0.8), places[:5])

    data = observed(Y)

    def both():
        chain = mixture(kernel, jnp.asarray(times), jnp.asarray(places), slots(times))
        return data.prior(chain), data.smooth(chain, data.empty(chain, 1))[0]

    for ours, smoothed in zip(*jit(both)(), strict=True):
        np.testing.assert_allclose(ours, smoothed, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [(th.Poisson(), 0.0), (th.Poisson(), 1e6), (th.Bernoulli(), 1.0), (th.StudentT(df=3.0), 40.0), (th.Gamma(), 1e-8)],
    ids=str,
)
def test_a_datum_alone_has_its_parabola_at_the_mode(likelihood, y):
    prior = Marginal(jnp.array([0.3]), jnp.array([[1.7]]))
    found = jit(lambda: Alone().propose(likelihood, jnp.asarray(y), prior, Cavity(prior, jnp.array(True))))()
    assert found.usable
    precision = float(found.site.precision[0, 0])
    mode = (0.3 / 1.7 + float(found.site.shift[0])) / (1.0 / 1.7 + precision)
    slope, curvature = (d(lambda f: likelihood.log_prob(y, f))(mode) for d in (jax.grad, jax.hessian))
    # The search stops within 1e-3 standard deviations of the prior, where it is quadratic.
    np.testing.assert_allclose(slope, (mode - 0.3) / 1.7, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(precision, max(-curvature, -0.5 / 1.7), rtol=1e-2, atol=1e-5)


def test_sites_begin_near_the_data_however_far_they_are():
    data = observed(1e4 * Y)

    def found():
        chain = CHAINS["each datum"](KERNELS["stationary"])
        sites = initial_sites(th.Poisson(), chain, data)
        return data.smooth(chain, sites)[0].mean[:, 0]

    mean = jit(found)()
    large = Y > 0
    np.testing.assert_allclose(mean[large], np.log(1e4 * Y[large]), atol=0.2)
