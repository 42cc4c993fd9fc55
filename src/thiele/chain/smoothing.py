r"""What the chain knows after all information is in: posterior, marginals of states and pairs, marginals of outputs.

All come from the filtered moments N(m, P) and the later information (r, N): the state is N(m + P r, P − P N P). No
covariance is inverted, so deterministic states and noise-free data are ordinary cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain.lanes import Pieces, Problem, lay_out
from thiele.chain.layouts import Layout, choose_layout, choose_layout_of_derivatives
from thiele.chain.matrices import dense
from thiele.chain.recursions import smoothed_output
from thiele.chain.sweeps import Emit, Visit, sweep
from thiele.chain.types import Chain, Information, Posterior, Static, emission_apart, with_emission

Arguments = tuple[Chain, Information]


def posterior(
    chain: Chain, info: Information, lanes: int | None = None, mapped: bool = False
) -> tuple[Posterior, Float[Array, ""]]:
    """The posterior at every state, and the log-normaliser."""
    d, n = chain.mean.shape[0], info.precision.shape[-1]
    layout = choose_layout(n, d, info.precision.shape[0], lanes)._replace(mapped=mapped)
    problem = lay_out(chain, info, layout)
    alg = layout.algebra

    def at_one_step(visit: Visit) -> tuple[Any, ...]:
        _, (m, P, p, _), (M, xi, _), (r, N) = visit
        filtered = alg.sub(P, alg.congruence(p, M))
        return alg.add(m, alg.mul(p, xi)), alg.fold(filtered), r, alg.fold(N)

    def gather(_: Pieces, found: tuple[Any, ...]) -> tuple[Any, Any]:
        m, P, r, N = found
        vectors = [alg.pack(x, (d, 1), layout.batch)[:, 0] for x in (m, r)]
        squares = [alg.pack(alg.unfold(x), (d, d), layout.batch) for x in (P, N)]
        return (vectors[0], squares[0], vectors[1], squares[1]), ()

    swept = sweep(chain, problem, Emit(at_one_step, gather))
    m, P, r, N = (layout.join(x, n) for x in swept.results)
    return Posterior(m, P, r, N, swept.first.r[:, 0], swept.first.N[:, :, 0]), swept.log


class Outputs(NamedTuple):
    """Marginals N(mean_i, var_i) of f_i = H x_i given all information; where f_i = mix_i g_i, the mean of g_i and
    Cov(g_i, f_i) too; where f_i has noise of its own, also the later information: r of the prediction of x_{i+1}, and
    minus the derivative of r in the mean of f_i as Z.
    """

    mean: Float[Array, "l n"]
    var: Float[Array, "l l n"]
    mixed: Float[Array, "g n"] | None = None
    cross: Float[Array, "g l n"] | None = None
    r: Float[Array, "d n"] | None = None
    Z: Float[Array, "d l n"] | None = None


def outputs(chain: Chain, info: Information, lanes: int | None = None) -> tuple[Outputs, Float[Array, ""]]:
    """The marginals of the outputs at every state, without the states' own, and the log-normaliser."""
    d, count, n = chain.mean.shape[0], info.precision.shape[0], info.precision.shape[-1]
    layout = choose_layout(n, d, count, lanes)
    along = choose_layout_of_derivatives(layout, n, d, count)
    if along == layout:
        return outputs_in(layout, chain, info)
    return _outputs(layout, along, *emission_apart(chain, info))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _outputs(
    layout: Layout, along: Layout, H: Static | None, chain: Chain, info: Information
) -> tuple[Outputs, Float[Array, ""]]:
    return outputs_in(layout, chain, with_emission(info, H))


@_outputs.defjvp
def _(layout: Layout, along: Layout, H: Static | None, primals: Arguments, tangents: Arguments) -> tuple[Any, Any]:
    return jax.jvp(lambda chain, info: outputs_in(along, chain, with_emission(info, H)), primals, tangents)


def outputs_in(layout: Layout, chain: Chain, info: Information) -> tuple[Outputs, Float[Array, ""]]:
    """The same in a given layout."""
    n = info.precision.shape[-1]
    problem = lay_out(chain, info, layout)
    alg, H = layout.algebra, problem.emission()

    def at_one_step(visit: Visit) -> tuple[Any, ...]:
        seen = smoothed_output(alg, H, visit.step, visit.before, visit.gain, visit.after)
        return tuple(x for x in seen if x is not None)

    def gather(_: Pieces, seen: tuple[Any, ...]) -> tuple[Any, Any]:
        return pack_outputs(problem, seen), ()

    swept = sweep(chain, problem, Emit(at_one_step, gather, thin=True))
    return Outputs(*(layout.join(x, n) for x in swept.results)), swept.log


def pack_outputs(problem: Problem, seen: Sequence[Any]) -> tuple[Array, ...]:
    """What `Outputs` holds at the steps of one chunk, of which two, four or six are there."""
    layout = problem.layout
    pack = lambda X, shape: layout.algebra.pack(X, shape, layout.batch)  # noqa: E731
    count = problem.pieces.precision.shape[1]
    found = pack(seen[0], (count, 1))[:, 0], pack(seen[1], (count, count))
    mixed = problem.d if problem.H is None else problem.H.shape[0]
    for k, of in zip((2, 4), (mixed, problem.d), strict=True):
        if len(seen) > k:
            found = *found, pack(seen[k], (of, 1))[:, 0], pack(seen[k + 1], (of, count))
    return found


class Marginals(NamedTuple):
    """Moments of states and of neighbouring pairs: `cross` is Cov(x_{i+1}, x_i)."""

    mean: Float[Array, "d n"]
    cov: Float[Array, "d d n"]
    cross: Float[Array, "d d n-1"]


def marginals(chain: Chain, info: Information, lanes: int | None = None) -> Marginals:
    """Posterior moments of every state and of every pair of neighbours."""
    found, _ = posterior(chain, info, lanes)
    return marginals_of(found, chain)


def marginals_of(found: Posterior, chain: Chain) -> Marginals:
    """The same from a posterior that is at hand."""
    move = chain.moves(chain.moves.prepare(chain.inputs))
    A, Q = dense(move.A), dense(move.Q)
    m, P, r, N = found.m[..., :-1], found.P[..., :-1], found.r[..., :-1], found.N[..., :-1]
    AP = _mul(A, P)
    back_r = jnp.einsum("ki...,k...->i...", A, r)
    last = found.P[..., -1:]
    # P − (A P)ᵀ N (A P): the later information, carried back over the move.
    NAP = _mul(N, AP)
    cov = P - jnp.einsum("ki...,kj...->ij...", AP, NAP)
    mean = m + jnp.einsum("ij...,j...->i...", P, back_r)
    predicted = jnp.einsum("ij...,kj...->ik...", AP, A) + Q
    cross = AP - _mul(predicted, NAP)
    cov = 0.5 * (cov + jnp.swapaxes(cov, 0, 1))
    return Marginals(
        mean=jnp.concatenate([mean, found.m[:, -1:]], axis=-1),
        cov=jnp.concatenate([cov, last], axis=-1),
        cross=cross,
    )


def _mul(X: Array, Y: Array) -> Array:
    return jnp.einsum("ij...,jk...->ik...", X, Y)
