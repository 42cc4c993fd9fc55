r"""Any time-invariant linear SDE, by Taylor series and doubling.

A = exp(FΔ),  Q = ∫₀^Δ exp(Fs) D exp(Fs)' ds,  D = L Qc L'.

The step is halved until ‖F‖Δ <= 1/2. There A is a Taylor series and Q = Σ Δ^{k+1}/(k+1)! M_k with M_0 = D and
M_{k+1} = F M_k + M_k F'. Then Q ← Q + A Q A' and A ← A A as often as the step was halved: sums of positive semidefinite
terms, accurate for tiny steps and for huge ones.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thiele.tables import Times, along

TERMS = 16  # of a Taylor series whose argument has norm 1/2 (A) or 1 (Q, relative to its leading term)


def discretise(
    drift: np.ndarray, diffusion: np.ndarray, step: Times, doublings: int = 40
) -> tuple[Float[Array, "1 dim dim *times"], Float[Array, "1 dim dim *times"]]:
    """(A, Q) of the SDE with F = `drift` and L Qc L' = `diffusion`, both of shape (dim, dim), for every step.

    A step is treated as if it had at most the length 2^doublings / (2 ‖F‖).
    """

    @jax.custom_jvp
    def of_step(step: Array) -> tuple[Array, Array]:
        return _series_and_doubling(drift, diffusion, step, doublings)

    @of_step.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        # dA/dΔ = F A and dQ/dΔ = A D A'. Differentiating the doublings would keep every one of them in memory.
        (step,), (change,) = primals, tangents
        A, Q = of_step(step)
        F, D = (along(jnp.asarray(m)[None], step) for m in (drift, diffusion))
        return (A, Q), (change * _matmul(F, A), change * _congruence(A, D))

    return of_step(step)


def _series_and_doubling(drift: np.ndarray, diffusion: np.ndarray, step: Times, doublings: int) -> tuple[Array, Array]:
    norm = float(np.linalg.norm(drift, 1))
    reduced = jnp.minimum(norm * step, 0.5 * 2.0**doublings)
    halvings = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(2.0 * reduced, 1.0))), 0.0)
    # Time is measured in units of 1/norm, so that no power of the step overflows.
    A, Q = _taylor(drift / norm, diffusion / norm, reduced * 0.5**halvings)

    def double(state: tuple[Array, Array], done: Array) -> tuple[tuple[Array, Array], None]:
        more = done < halvings

        def doubled(A: Array, Q: Array) -> tuple[Array, Array]:
            return jnp.where(more, _matmul(A, A), A), jnp.where(more, Q + _congruence(A, Q), Q)

        # Dense data need no doubling at all: then the branch costs nothing.
        return jax.lax.cond(jnp.any(more), doubled, lambda A, Q: (A, Q), *state), None

    (A, Q), _ = jax.lax.scan(double, (A, Q), jnp.arange(doublings))
    return A, Q


def _taylor(F: np.ndarray, D: np.ndarray, step: Times) -> tuple[Array, Array]:
    dim = F.shape[0]
    # A chain of integrators has noise of order step^(2 dim - 1): its leading term must be within the series.
    terms = 2 * dim + TERMS
    power, moment = np.eye(dim), D
    powers, moments = [], []
    for k in range(terms):
        powers.append(power / math.factorial(k))
        moments.append(moment / math.factorial(k + 1))
        power, moment = F @ power, F @ moment + moment @ F.T
    return _polynomial(powers, step), step * _polynomial(moments, step)


def _matmul(a: Float[Array, "1 i j *times"], b: Float[Array, "1 j k *times"]) -> Float[Array, "1 i k *times"]:
    # A sum over the shared axis fuses into one loop, where a dot call on tiny matrices would not.
    return sum(a[:, :, j, None] * b[:, None, j] for j in range(a.shape[2]))


def _congruence(a: Float[Array, "1 i j *times"], p: Float[Array, "1 j j *times"]) -> Float[Array, "1 i i *times"]:
    return _matmul(_matmul(a, p), jnp.swapaxes(a, 1, 2))


def _polynomial(coefficients: list[np.ndarray], step: Times) -> Float[Array, "1 dim dim *times"]:
    total = jnp.zeros((*coefficients[0].shape, *jnp.shape(step)))
    for coefficient in coefficients[::-1]:
        total = total * step + along(jnp.asarray(coefficient), step)
    return total[None]
