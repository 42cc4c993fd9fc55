"""What tests of tied sites share: data in segments, and sites that have not converged."""

import jax
import jax.numpy as jnp
import numpy as np

from thiele import kernels as kn
from thiele.bridges import bridges
from thiele.inducing import tie
from thiele.rules import Site
from thiele.series import Series

KERNEL = kn.Matern32(1.2, 2.0)
ROUGH = kn.Matern12(1.2, 2.0)  # its programs are smaller


def tied(times, data, z):
    """`Data` at sorted times, tied by the segments that z makes."""
    covariates = {name: np.asarray(x) for name, x in data.covariates.items()}
    series = Series(np.asarray(times), np.asarray(data.y), np.asarray(data.mask), covariates)
    return jax.tree.map(jnp.asarray, tie(series, np.asarray(z)))


def chain_of(kernel, z):
    return bridges(kernel, jnp.asarray(z))


def at_data(chain, q, times):
    """q(f_n) of every datum from q(w) of every segment."""
    segment = chain.segment_of(times)
    found = chain.project(segment, times[:, None]).marginals(jax.tree.map(lambda x: x[segment], q))
    return jax.tree.map(lambda x: x[:, 0], found)


def some_sites(chain, times, mask):
    """Sites that have not converged, made of one of arbitrary strength for each datum."""
    segment = chain.segment_of(times)
    W = chain.project(segment, times[:, None]).W[:, 0]
    strength = jnp.where(mask, 0.3 + jnp.cos(jnp.arange(times.size)) ** 2, 0.0)
    pull = jnp.where(mask, jnp.sin(1.0 + jnp.arange(times.size)), 0.0)
    S = chain.segments
    shift = jnp.zeros((S, W.shape[-1])).at[segment].add(jnp.einsum("n,nld->nd", pull, W))
    precision = jnp.zeros((S, *2 * W.shape[-1:])).at[segment].add(jnp.einsum("n,nld,nle->nde", strength, W, W))
    return Site(shift, precision)


def assert_close(ours, theirs, rtol=1e-7, atol=1e-8):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
