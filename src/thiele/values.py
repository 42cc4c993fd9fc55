r"""Inducing values: f at a few times, with dense algebra and any kernel (paper, section 2.2: sparse VI).

The baseline of the paper. All data share one site, on the white noise w ~ N(0, I) that makes the values u = L w,
L L' = K(z, z):

    f(x) = W w + N(0, ν),    W = k(x, z) L'⁻¹,    ν = k(x, x) − W W'.

It costs O(M³) and a pass over the data of O(N M²), and knows nothing of derivatives. In space the values are those at
all pairs of an inducing time and an inducing point. Methods are those of `Bridges`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from thiele.kernels import AbstractKernel, SpaceTime
from thiele.projections import Projection
from thiele.rules.cavity import Marginal, Site

# Relative to the prior variance, on the diagonal of K: a smooth kernel makes it singular to rounding.
JITTER = 1e-10


class Values(NamedTuple):
    """Inducing values at times z, or at `inputs` (t, r) that these make with places, of every latent function, with the
    roots of their covariances.
    """

    kernel: AbstractKernel
    z: Float[Array, " M"]
    inputs: Float[Array, "M *dims"]
    L: Float[Array, "latents M M"]

    @property
    def segments(self) -> int:
        """One site for all data."""
        return 1

    @property
    def dim(self) -> int:
        """The number of inducing values, those of all latent functions together."""
        return self.L.shape[0] * self.L.shape[1]

    def segment_of(self, x: Float[Array, "*times"]) -> Int[Array, "*times"]:
        """The one that there is."""
        return jnp.zeros(x.shape, jnp.int32)

    def for_weights(self, known: bool) -> Values:
        """What `project` reads: everything."""
        return self

    def inside(self, segment: Int[Array, "*tiles"]) -> Float[Array, "*tiles"]:
        """Some time."""
        return jnp.broadcast_to(self.z[0], segment.shape)

    def project(
        self,
        segment: Int[Array, " tiles"],
        x: Float[Array, "tiles width"],
        space: Float[Array, "tiles width D"] | None = None,
        known: None = None,
    ) -> Projection:
        """W and ν at times `x`, and at places `space` for a kernel there; nothing is known of them beforehand."""
        latents = self.L.shape[0]
        at = x.reshape(-1)
        if space is not None:
            at = jnp.concatenate([at[:, None], space.reshape(at.shape[0], -1)], axis=1)
        cross = _by_latent(self.kernel, at[:, None], self.inputs[None])
        rows = jax.vmap(lambda L, k: jax.scipy.linalg.solve_triangular(L, k.T, lower=True))(self.L, cross)
        prior = _by_latent(self.kernel, at, at)
        nu = jnp.maximum(prior - jnp.sum(rows**2, axis=1), 0.0)
        w = jnp.moveaxis(rows, -1, 0).reshape(*x.shape, self.dim)
        of = tuple(np.repeat(np.arange(latents), rows.shape[1]).tolist())
        return Projection(w, jnp.moveaxis(nu.reshape(latents, *x.shape), 0, -1), of)

    def prior(self) -> Marginal:
        """w is white."""
        return Marginal(jnp.zeros((1, self.dim), self.z.dtype), jnp.eye(self.dim, dtype=self.z.dtype)[None])

    def smooth(self, sites: Site, *, held: bool = False) -> tuple[Marginal, Float[Array, ""]]:
        """q(w), and log Z; `held`: without a derivative of q."""
        root, half = self._solved(sites)
        inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(self.dim, dtype=root.dtype), lower=True)
        q = Marginal((inverse.T @ half)[None], (inverse.T @ inverse)[None])
        return (jax.lax.stop_gradient(q) if held else q), _log_normaliser(root, half)

    def log_normaliser(self, sites: Site) -> Float[Array, ""]:
        """log Z alone."""
        return _log_normaliser(*self._solved(sites))

    def draw(self, sites: Site, key: PRNGKeyArray, count: int) -> Float[Array, "count 1 dim"]:
        """Joint draws of w from q."""
        root, half = self._solved(sites)
        noise = jax.random.normal(key, (self.dim, count), root.dtype)
        return jax.scipy.linalg.solve_triangular(root.T, half[:, None] + noise, lower=False).T[:, None]

    def whitened(self, states: Float[Array, "count d M"]) -> Float[Array, "count 1 dim"]:
        """w = L⁻¹ u from the states of the same process: u = H x, mixed in space."""
        u = jnp.einsum("li,cim->lmc", jnp.asarray(self.kernel.sde().H), states)
        if self.kernel.in_space:
            emission = self.kernel.emissions(self.inputs[:, 0], self.inputs[:, 1:])[0]
            w = emission.w.reshape(self.z.shape[0], -1, u.shape[0])
            u = jnp.einsum("mpg,gmc->mpc", w, u).reshape(1, self.dim, -1)
        w = jax.vmap(lambda L, u: jax.scipy.linalg.solve_triangular(L, u, lower=True))(self.L, u)
        return w.reshape(self.dim, -1).T[:, None]

    def _solved(self, sites: Site) -> tuple[Array, Array]:
        root = jnp.linalg.cholesky(jnp.eye(self.dim, dtype=self.z.dtype) + sites.precision[0])
        return root, jax.scipy.linalg.solve_triangular(root, sites.shift[0], lower=True)


def values(kernel: AbstractKernel, z: Float[Array, " M"]) -> Values:
    """Inducing values at sorted times, and in space at each of the kernel's inducing points."""
    inputs = z
    if kernel.in_space:
        if not isinstance(kernel, SpaceTime):
            raise ValueError(f'inducing of="values" in space takes one SpaceTime kernel, got {type(kernel).__name__}')
        points = kernel.points()
        both = jnp.repeat(z, points.shape[0])[:, None], jnp.tile(points, (z.shape[0], 1))
        inputs = jnp.concatenate(both, axis=1)
    K = _by_latent(kernel, inputs[:, None], inputs[None])
    scale = jnp.max(jnp.diagonal(K, axis1=1, axis2=2), axis=1)
    jittered = K + JITTER * scale[:, None, None] * jnp.eye(inputs.shape[0], dtype=z.dtype)
    return Values(kernel, z, inputs, jnp.linalg.cholesky(jittered))


def _by_latent(kernel: AbstractKernel, t: Array, s: Array) -> Float[Array, "latents *times"]:
    shape = jnp.broadcast_shapes(t.shape, s.shape)
    return jnp.reshape(kernel(t, s), (kernel.latents, *(shape[:-1] if kernel.in_space else shape)))


def _log_normaliser(root: Array, half: Array) -> Float[Array, ""]:
    return 0.5 * half @ half - jnp.sum(jnp.log(jnp.diagonal(root)))
