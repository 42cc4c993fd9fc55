"""The latent function between two states: its conditional, against dense algebra and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.registry import KERNELS, STACKS
from tests.likelihoods.registry import jit
from thiele import dense_sparse as dense
from thiele import kernels as kn
from thiele.bridges import bridges


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


EVERY = KERNELS | STACKS
# One of each kind by default: driven and not, stationary and not, large, a product, several latents.
QUICK = ("Matern52", "Periodic", "IntegratedWiener", "RBF, order 3", "Wiener * Matern32", "mixed")


def slow_but_for(quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]


# Two of the inducing times nearly coincide, and the origin of the Wiener processes, 0.4, lies before the first.
Z = np.array([1.0, 2.5, 2.5 + 1e-6, 4.0, 7.0])
# Before the first, far and near; on an inducing time; between the two that nearly coincide; just beside one; far away.
X = np.array([-3.0, 0.2, 0.99, 1.0, 1.8, 2.5, 2.5 + 4e-7, 2.5 + 1e-6, 3.0, 4.0, 6.9999999, 7.0, 7.5, 30.0])


def projected(kernel, z, x):
    """W (n, L, 2d) and ν (n, L) at every time, with its segment."""
    at = bridges(kernel, z)
    segment = at.segment_of(x)
    found = at.project(segment, x[:, None])
    return at, segment, found.W[:, 0], found.nu[:, 0]


def with_segment(P, x_segment):
    """Var(u, e) of each time's segment, from the covariance P of every inducing state."""
    d = P.shape[-1]
    start = jnp.concatenate([jnp.zeros_like(P[:1]), P])[x_segment]
    noise = jnp.broadcast_to(jnp.eye(d), start.shape)
    return jnp.zeros((x_segment.size, 2 * d, 2 * d)).at[:, :d, :d].set(start).at[:, d:, d:].set(noise)


def own_variances(kernel, x):
    return jnp.reshape(kernel(x, x), (kernel.latents, -1)).T


@pytest.mark.parametrize("name", slow_but_for(QUICK))
def test_what_is_left_of_f_is_independent_of_both_neighbours(name):
    # This defines the conditional mean, and needs no inverse: it holds for states that determine one another too.
    kernel = EVERY[name]

    @jit
    def found(kernel, z, x):
        sde = kernel.sde()
        at, segment, W, nu = projected(kernel, z, x)
        d, M = sde.dim, z.shape[0]
        A, L = (jnp.moveaxis(sde.dense(part), -1, 0) for part in (at.A, at.L))
        cov = dense.state_covariance(sde, jnp.concatenate([z, x]), z)
        of_states, P = cov[:M], cov[jnp.arange(M), :, jnp.arange(M)]
        # w = (u, e) has Cov(w, u) = (P, 0) and Cov(w, A u + L e) = (P A′, L′).
        prior = with_segment(P, segment)
        before, after = prior[:, :, :d], prior @ jnp.swapaxes(jnp.concatenate([A, L], axis=-1)[segment], 1, 2)
        truth = jnp.einsum("li,nibk->nlbk", jnp.asarray(sde.H), cov[M:])
        rows, last = jnp.arange(x.size), segment == M
        truth_before = jnp.where((segment > 0)[:, None, None], truth[rows, :, segment - 1], 0.0)
        truth_after = jnp.where(last[:, None, None], 0.0, truth[rows, :, jnp.minimum(segment, M - 1)])
        moved = A[1:-1] @ of_states[jnp.arange(M - 1), :, jnp.arange(M - 1)]
        return (
            (W @ before, truth_before),
            (jnp.where(last[:, None, None], 0.0, W @ after), truth_after),
            (jnp.einsum("nli,nij,nlj->nl", W, prior, W) + nu, own_variances(kernel, x)),
            (moved, of_states[jnp.arange(1, M), :, jnp.arange(M - 1)]),
            (moved @ jnp.swapaxes(A[1:-1], 1, 2) + L[1:-1] @ jnp.swapaxes(L[1:-1], 1, 2), P[1:]),
        ), nu

    pairs, nu = found(kernel, jnp.asarray(Z), jnp.asarray(X))
    for ours, truth in pairs:
        np.testing.assert_allclose(ours, truth, rtol=1e-12, atol=1e-12)
    assert np.all(nu >= 0.0)
    np.testing.assert_allclose(nu[np.isin(X, Z)], 0.0, atol=1e-14)


@pytest.mark.parametrize("name", slow_but_for(["Wiener * Matern32"]))
def test_gradients_are_finite_and_leave_the_variance_of_f_as_it_is(name):
    # W Var(u, e) W′ + ν is k(0), whatever the inducing times: so are its derivatives, through every cancellation.
    kernel = EVERY[name]
    inner, outer = np.random.default_rng(0).normal(size=(2, X.size))
    # On an inducing time f has a kink as a function of that time where the process is rough: there, finite is enough.
    outer = np.where(np.isin(X, Z), 0.0, outer)

    def ours(kernel, z, x):
        _, segment, W, nu = projected(kernel, z, x)
        sde = kernel.sde()
        prior = with_segment(jnp.moveaxis(sde.dense(sde.covariance(z)), -1, 0), segment)
        total = outer @ (jnp.einsum("nli,nij,nlj->nl", W, prior, W) + nu)
        return jnp.sum(total), inner @ jnp.sum(W, axis=(1, 2)) + jnp.sum(inner @ nu)

    @jit
    def gradients(kernel, z, x):
        _, back = jax.vjp(lambda k, z: ours(k, z, x), kernel, z)
        truth = jax.grad(lambda k: jnp.sum(outer @ own_variances(k, x)))(kernel)
        return back((1.0, 0.0)), back((0.0, 1.0)), truth

    (by_kernel, by_z), any_direction, truth = gradients(kernel, jnp.asarray(Z), jnp.asarray(X))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(any_direction))
    for a, b in zip(jax.tree.leaves(by_kernel), jax.tree.leaves(truth), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(by_z, 0.0, atol=1e-8)


@pytest.mark.parametrize("name", ["two", "IntegratedWiener"])
def test_the_conditional_is_that_of_dense_algebra_on_all_inducing_states(name):
    # Locality included: the dense weights of states that are no neighbours vanish.
    kernel, z = EVERY[name], np.array([1.0, 2.2, 3.1, 4.0])

    @jit
    def both(kernel, z, x):
        _, segment, W, nu = projected(kernel, z, x)
        _, truth, spread = dense.conditional(kernel.sde(), z, x)
        diagonal = jnp.einsum("nl,lm->nlm", nu, jnp.eye(kernel.latents))
        return (W @ dense.from_states(kernel.sde(), z)[segment], truth), (diagonal, spread)

    for ours, truth in both(kernel, jnp.asarray(z), jnp.asarray(X)):
        np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-10)


def test_a_bridge_of_the_first_order_has_its_closed_form_to_all_digits():
    # Between times 1e-6 apart ν is 1e-6 of k(0) and less; relative, not absolute, accuracy.
    z, x = np.array([0.0, 1e-6, 3.0]), np.array([4e-7, 1.1, 2.9])
    rate = 1.0 / 1.7
    a, b = np.expm1(-2.0 * rate * (x - z[[0, 1, 1]])), np.expm1(-2.0 * rate * (z[[1, 2, 2]] - x))
    whole = np.expm1(-2.0 * rate * (z[[1, 2, 2]] - z[[0, 1, 1]]))
    nu = jit(lambda: projected(kn.Matern12(0.8, 1.7), jnp.asarray(z), jnp.asarray(x))[3])()
    np.testing.assert_allclose(nu[:, 0], -0.8 * a * b / whole, rtol=1e-8)
