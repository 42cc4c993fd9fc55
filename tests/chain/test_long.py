"""Long chains: covariances stay symmetric and positive semidefinite, in float64 and in float32."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.chain import Information, log_normaliser, marginals, outputs
from thiele.kernels import Matern32, Matern52
from thiele.steps import prior_chain

KERNELS = {"Matern32": Matern32(1.0, 1.0), "Matern52": Matern52(1.0, 1.0)}
LENGTHS = [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)]

every_kernel = pytest.mark.parametrize("name", KERNELS)
every_length = pytest.mark.parametrize("n", LENGTHS)


@cache
def series(name, n):
    """A noisy sine, a thousand points a lengthscale, some of them at the same time and a tenth of them missing."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0.0, n / 1000.0, n))
    times[1::100] = times[0:-1:100]
    precision = np.where(rng.uniform(size=n) < 0.1, 0.0, 100.0)
    y = np.sin(times) + 0.1 * rng.normal(size=n)
    sde = KERNELS[name].sde()
    return prior_chain(sde, jnp.asarray(times)), precision[None, None], y[None], sde.H


@cache
def found(name, n, dtype):
    """Moments, outputs and the log-normaliser, with the arithmetic in `dtype`."""
    chain, precision, y, H = series(name, n)
    chain = chain._replace(mean=chain.mean.astype(dtype))
    precision, y = jnp.asarray(precision, dtype), jnp.asarray(y, dtype)

    @jax.jit
    def run(chain, precision, y):
        info = Information(precision, centre=y, H=H)
        return marginals(chain, info), *outputs(chain, info)

    return run(chain, precision, y)


def covariances(name, n, dtype):
    moments, f, _ = found(name, n, dtype)
    pairs = jnp.block(
        [
            [jnp.moveaxis(moments.cov[..., :-1], -1, 0), jnp.moveaxis(moments.cross, -1, 0).swapaxes(1, 2)],
            [jnp.moveaxis(moments.cross, -1, 0), jnp.moveaxis(moments.cov[..., 1:], -1, 0)],
        ]
    )
    return np.moveaxis(np.asarray(moments.cov), -1, 0), np.asarray(pairs), np.moveaxis(np.asarray(f.var), -1, 0)


@every_length
@every_kernel
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_covariances_stay_symmetric_and_positive_semidefinite(name, n, dtype):
    eps = float(jnp.finfo(dtype).eps)
    states, pairs, variances = covariances(name, n, dtype)
    for cov in (states, variances):
        assert np.isfinite(cov).all()
        np.testing.assert_array_equal(cov, cov.swapaxes(1, 2))
        assert (np.linalg.eigvalsh(cov.astype(float)) >= -eps * np.trace(cov, axis1=1, axis2=2)[:, None]).all()
    # The two halves of a pair come from different steps, so they agree to the rounding of the filter only.
    assert (np.linalg.eigvalsh(pairs.astype(float)) >= -10 * eps * np.trace(pairs, axis1=1, axis2=2)[:, None]).all()


@every_length
@every_kernel
def test_single_precision_is_close_to_double(name, n):
    moments, f, log = found(name, n, jnp.float32)
    moments64, f64, log64 = found(name, n, jnp.float64)
    deviation = np.sqrt(f64.var[0, 0])
    assert np.max(np.abs(f.mean[0] - f64.mean[0]) / deviation) < 1e-3
    np.testing.assert_allclose(f.var, f64.var, rtol=1e-3)
    size = np.sqrt(np.einsum("iin->in", moments64.cov))
    assert np.max(np.abs(moments.mean - moments64.mean) / size) < 1e-3
    assert np.max(np.abs(moments.cov - moments64.cov) / size[:, None] / size[None, :]) < 1e-3
    np.testing.assert_allclose(log, log64, rtol=1e-5)


def test_single_precision_has_the_gradient_of_double():
    chain, precision, y, H = series("Matern32", 10_000)

    def slope(dtype, form):
        @jax.jit
        @jax.grad
        def gradient(scale):
            cov = jax.tree.map(lambda x: scale * x, chain.cov)
            info = Information(scale.astype(dtype) * jnp.asarray(precision, dtype), centre=jnp.asarray(y, dtype), H=H)
            return log_normaliser(chain._replace(mean=chain.mean.astype(dtype), cov=cov), info, form=form)

        return gradient(jnp.asarray(1.0))

    np.testing.assert_allclose(slope(jnp.float32, None), slope(jnp.float64, "covariance"), rtol=1e-4)
