"""Updates of one segment after the other, and the filter's marginal likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.likelihoods.registry import jit
from tests.test_energies import as_given, exact_log_likelihood
from tests.tied import chain_of, tied
from thiele import dense_sites
from thiele import kernels as kn
from thiele import likelihoods as th
from thiele.energies import observed
from thiele.filtered import filter_energy
from thiele.inducing import tie
from thiele.inference import infer, sweep
from thiele.rules import CVI, PowerEP
from thiele.sequence import sweep_in_sequence
from thiele.series import Series

T = np.sort(np.random.default_rng(5).uniform(0.0, 8.0, 14))
Y = np.random.default_rng(6).poisson(np.exp(np.sin(T))).astype(float)
Z = np.array([0.5, 2.0, 2.1, 5.0, 9.0])
KERNEL = kn.Matern32(1.2, 2.0)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "rule", [CVI(), pytest.param(PowerEP(0.5), marks=pytest.mark.slow)], ids=["cvi", "power ep 0.5"]
)
def test_a_pass_in_sequence_has_the_fixed_point_of_parallel_sweeps_and_comes_closer_to_it(rule):
    whole = jax.tree.map(jnp.asarray, tie(Series(T, Y, np.ones(T.size, bool), {}), Z, whole=True))
    chain, data = chain_of(KERNEL, Z), tied(T, observed(Y), Z)

    @jit
    def run():
        found = infer(rule, th.Poisson(), chain, data, tolerance=1e-11)
        again = sweep_in_sequence(rule, th.Poisson(), chain, whole, found.sites)
        start = data.empty(chain, 1)
        in_turn, together = start, start
        for _ in range(3):
            in_turn = sweep_in_sequence(rule, th.Poisson(), chain, whole, in_turn)
            together = sweep(rule, th.Poisson(), chain, data, together).sites
        return found, again, in_turn, together

    found, again, in_turn, together = run()
    assert found.converged
    for a, b in zip(again, found.sites, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    far = [np.max(np.abs(x.precision - found.sites.precision)) for x in (in_turn, together)]
    assert far[0] < far[1]


def test_data_cut_into_several_tiles_are_refused():
    chain, data = chain_of(KERNEL, Z), tied(T, observed(Y), Z)
    with pytest.raises(ValueError, match="one tile for each of the 6 segments"):
        sweep_in_sequence(CVI(), th.Poisson(), chain, data, data.empty(chain, 1))


def test_the_filters_likelihood_with_a_state_at_each_datum_is_exact_for_gaussian_noise():
    y = np.sin(T)
    y[3] = np.nan
    data = observed(y)
    chain, sites_of = chain_of(KERNEL, T), tied(T, data, T)

    @jit
    def run():
        found = infer(CVI(), th.Gaussian(0.1), chain, sites_of)
        return filter_energy(CVI(), th.Gaussian(0.1), chain, sites_of, found.sites)

    truth = exact_log_likelihood(dense_sites.gram(KERNEL, jnp.asarray(T)), 0.1, as_given(data))
    np.testing.assert_allclose(run(), truth, rtol=1e-10)
