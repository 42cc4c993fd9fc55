"""Information on mixtures of the outputs is information on the outputs themselves, written another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thiele.chain import Chain, Information, Move, Tabulated, log_normaliser, outputs, posterior, sample

RNG = np.random.default_rng(12)
N, L = 9, 2
H = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
G, D = H.shape


def problem():
    A = (0.8 * np.eye(2)[None, :, :, None] + 0.1 * RNG.standard_normal((2, 2, 2, N - 1)),)
    root = RNG.standard_normal((2, 2, 2, N - 1))
    Q = (jnp.asarray(np.einsum("gijn,gkjn->gikn", root, root)),)
    chain = Chain(jnp.asarray(RNG.standard_normal(D)), (jnp.eye(2)[None].repeat(2, 0),), Tabulated(), Move(A, Q))
    root = RNG.standard_normal((L, L, N))
    precision = np.einsum("ijn,kjn->ikn", root, root)
    precision[..., 3] = 0.0  # nothing is observed there
    shift = RNG.standard_normal((L, N)) * (np.arange(N) != 3)
    parts = (precision, shift, RNG.standard_normal((L, N)), RNG.standard_normal((L, G, N)))
    return chain, *(jnp.asarray(x) for x in parts)


def symmetric(precision):
    """What a derivative in a symmetric matrix is about."""
    return 0.5 * (precision + jnp.swapaxes(precision, 0, 1))


def mixed(precision, shift, centre, mix):
    precision = symmetric(precision)
    return Information(precision, shift, centre, H, mix)


def summed(precision, shift, centre, mix):
    """The same on g: B′ Λ B and B′ (h + Λ c), and the constant −½ c′ Λ c."""
    precision = symmetric(precision)
    pulled = jnp.einsum("lmn,mn->ln", precision, centre)
    J = jnp.einsum("lgn,lmn,mhn->ghn", mix, precision, mix)
    return Information(J, jnp.einsum("lgn,ln->gn", mix, shift + pulled), None, H), -0.5 * jnp.sum(centre * pulled)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("lanes", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_values_moments_and_gradients_agree(lanes):
    chain, *parts = problem()

    def by_mixtures(chain, *parts):
        return log_normaliser(chain, mixed(*parts), lanes)

    def by_sums(chain, *parts):
        info, constant = summed(*parts)
        return log_normaliser(chain, info, 1) + constant

    @jax.jit
    def both(chain, *parts):
        every = tuple(range(len(parts) + 1))
        values = [jax.value_and_grad(f, every)(chain, *parts) for f in (by_mixtures, by_sums)]
        found, _ = outputs(chain, mixed(*parts), lanes)
        whole, _ = outputs(chain, summed(*parts)[0], 1)
        states = [posterior(chain, info, n)[0] for info, n in ((mixed(*parts), lanes), (summed(*parts)[0], 1))]
        return values, found, whole, states

    (ours, theirs), found, whole, states = both(chain, *parts)
    mix = parts[-1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), ours, theirs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), *states)
    np.testing.assert_allclose(found.mixed, whole.mean, atol=1e-10)
    np.testing.assert_allclose(found.mean, jnp.einsum("lgn,gn->ln", mix, whole.mean), atol=1e-10)
    np.testing.assert_allclose(found.cross, jnp.einsum("ghn,lhn->gln", whole.var, mix), atol=1e-10)
    np.testing.assert_allclose(found.var, jnp.einsum("lgn,ghn,mhn->lmn", mix, whole.var, mix), atol=1e-10)


@pytest.mark.slow
def test_draws_have_the_mean_of_the_posterior():
    chain, *parts = problem()
    n = 20_000
    draws = np.einsum("gi,sin->sgn", H, sample(chain, mixed(*parts), jax.random.key(0), n))
    found, _ = outputs(chain, summed(*parts)[0], 1)
    sd = np.sqrt(np.einsum("ggn->gn", found.var))
    assert np.max(np.abs(draws.mean(axis=0) - found.mean) / sd) < 5.0 / np.sqrt(n)
    assert np.max(np.abs(draws.std(axis=0) / sd - 1.0)) < 5.0 / np.sqrt(2.0 * n)


def test_a_square_root_form_is_refused():
    chain, *parts = problem()
    with pytest.raises(ValueError, match="`form` must be"):
        log_normaliser(chain, mixed(*parts), form="square_root")
