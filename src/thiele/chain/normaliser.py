r"""The log-normaliser of a chain with information, and its derivative without a tape.

The gradient of log Z in every transition, noise and piece of information is a product of filtered moments and (r, N),
so it costs one forward and one backward recursion and no stored intermediate. It is attached as the derivative rule of
`log_normaliser`; being plain JAX itself, it can be differentiated again. The same recursions know the moments of the
outputs: who needs both asks `held_outputs`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thiele.chain.lanes import Pieces, lay_out, log_normaliser_of
from thiele.chain.layouts import Layout, choose_layout
from thiele.chain.matrices import pack_blocks
from thiele.chain.recursions import own_curvature, smoothed_output, with_next
from thiele.chain.smoothing import Outputs, outputs_in, pack_outputs
from thiele.chain.sweeps import Emit, Visit, sweep
from thiele.chain.types import Chain, Information, Move, Noise, Static, emission_apart, with_emission
from thiele.slopes import change, is_still


def log_normaliser(chain: Chain, info: Information, lanes: int | None = None) -> Float[Array, ""]:
    """log ∫ p(x) Π_i exp(shift_i·f_i − ½ (f_i − centre_i)ᵀ precision_i (f_i − centre_i)) dx."""
    d, outputs, n = chain.mean.shape[0], info.precision.shape[0], info.precision.shape[-1]
    layout = choose_layout(n, d, outputs, lanes)
    return _log_normaliser(layout, *emission_apart(chain, info))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _log_normaliser(layout: Layout, H: Static | None, chain: Chain, info: Information) -> Array:
    return log_normaliser_of(chain, lay_out(chain, with_emission(info, H), layout))


Arguments = tuple[Chain, Information]


@partial(_log_normaliser.defjvp, symbolic_zeros=True)
def _log_normaliser_jvp(
    layout: Layout, H: Static | None, primals: Arguments, tangents: Arguments
) -> tuple[Array, Array]:
    gradient, change = _value_and_change(layout, H, primals, tangents)
    return gradient.value, change


def _value_and_change(
    layout: Layout, H: Static | None, primals: Arguments, tangents: Arguments
) -> tuple[Gradient, Array]:
    chain, info = primals
    by_inputs = not all(map(is_still, jax.tree.leaves(tangents[0].inputs, is_leaf=is_still)))
    gradient = value_and_gradient(chain, with_emission(info, H), layout, inputs=by_inputs)
    slopes = gradient.by_chain._replace(inputs=gradient.by_inputs if by_inputs else ()), gradient.by_info
    along = tangents if by_inputs else (tangents[0]._replace(inputs=()), tangents[1])
    return gradient, change(slopes, along)


def held_outputs(chain: Chain, info: Information, lanes: int | None = None) -> tuple[Outputs, Float[Array, ""]]:
    """The marginals of the outputs, held: only the log-normaliser beside them has a derivative, by the same pass."""
    d, count, n = chain.mean.shape[0], info.precision.shape[0], info.precision.shape[-1]
    layout = choose_layout(n, d, count, lanes)
    return _held_outputs(layout, *emission_apart(chain, info))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _held_outputs(layout: Layout, H: Static | None, chain: Chain, info: Information) -> tuple[Outputs, Array]:
    return outputs_in(layout, chain, with_emission(info, H))


@partial(_held_outputs.defjvp, symbolic_zeros=True)
def _held_outputs_jvp(
    layout: Layout, H: Static | None, primals: Arguments, tangents: Arguments
) -> tuple[tuple[Outputs, Array], tuple[Outputs, Array]]:
    gradient, change = _value_and_change(layout, H, primals, tangents)
    still = jax.tree.map(jnp.zeros_like, gradient.outputs)
    return (gradient.outputs, gradient.value), (still, change)


class Gradient(NamedTuple):
    """log Z and its gradient: in the chain's mean, covariance and the leaves of `moves`; in its inputs (None unless
    asked for); in the information. `outputs` are what the same pass knows of these.
    """

    value: Array
    by_chain: Chain
    by_inputs: Any
    by_info: Information
    outputs: Outputs


def value_and_gradient(chain: Chain, info: Information, layout: Layout, inputs: bool = False) -> Gradient:
    """log Z with its gradient, by one forward and one backward recursion."""
    problem = lay_out(chain, info, layout)
    alg, H, d, n = layout.algebra, problem.emission(), problem.d, info.precision.shape[-1]
    count, batch = info.precision.shape[0], layout.batch

    def at_one_step(visit: Visit) -> tuple[Any, ...]:
        step, (m, P, p, _), (M, xi, _), (r, N) = visit
        filtered = alg.add(m, alg.mul(p, xi))
        spread = alg.sub(P, alg.congruence(p, M))
        D = alg.sub(alg.mul(r, alg.transpose(r)), N)
        of_mean = alg.mul_within(r, alg.transpose(filtered), step.A)
        moved = alg.mul(step.A, spread)
        if step.V is not None:
            moved = alg.sub(moved, alg.mul(step.V, alg.mul(M, alg.transpose(p))))
        by_A = alg.add(of_mean, alg.mul_within(D, moved, step.A))
        by_Q = alg.fold(alg.scale(0.5, D))
        seen = smoothed_output(alg, H, step, visit.before, visit.gain, visit.after)
        f, V, g, cross, *_ = seen
        seen = tuple(x for x in seen if x is not None)
        away = f if step.c is None else alg.sub(f, step.c)
        by_Lam = alg.scale(-0.5, alg.add(alg.mul(away, alg.transpose(away)), V))
        by_c = alg.mul(alg.unfold(step.Lam), away)
        if step.mix is None:
            return by_A, by_Q, r, seen, by_Lam, by_c, None, None
        # E (h − Λ (f − c)) gᵀ: of the slope of the log density in f, times what is mixed.
        slope = alg.scale(-1.0, by_c) if step.h is None else alg.sub(step.h, by_c)
        pulled = alg.mul(alg.unfold(step.Lam), alg.transpose(cross))
        by_mix = alg.sub(alg.mul(slope, alg.transpose(g)), pulled)
        if step.R is None:
            return by_A, by_Q, r, seen, by_Lam, by_c, by_mix, None
        T = with_next(alg, step, p)
        Y = alg.mul(N, T)
        by_R = alg.scale(0.5, alg.sub(alg.mul(slope, alg.transpose(slope)), own_curvature(alg, M, T, Y)))
        by_V = alg.add(alg.mul(r, alg.transpose(slope)), alg.mul(Y, M))
        return by_A, by_Q, r, seen, by_Lam, by_c, by_mix, (by_R, by_V)

    def gather(piece: Pieces, found: tuple[Any, ...]) -> tuple[Any, Any]:
        by_A, by_Q, r, seen, by_Lam, by_c, by_mix, by_noise = found
        move, pull = jax.vjp(lambda moves, x: moves(moves.prepare(x)), chain.moves, piece.inputs)
        slope = Move(
            A=alg.pack_blocks(by_A, move.A),
            Q=alg.pack_blocks(alg.unfold(by_Q), move.Q),
            b=None if move.b is None else alg.pack(r, (d, 1), batch)[:, 0],
        )
        by_moves, by_inputs = pull(slope)
        along = (
            by_inputs if inputs else None,
            alg.pack(by_Lam, (count, count), batch),
            None if info.centre is None else alg.pack(by_c, (count, 1), batch)[:, 0],
            None if info.mix is None else alg.pack(by_mix, info.mix.shape[:2], batch),
            None
            if by_noise is None
            else Noise(*(alg.pack(x, (k, count), batch) for x, k in zip(by_noise, (count, d), strict=True))),
            pack_outputs(problem, seen),
        )
        return along, by_moves

    swept = sweep(chain, problem, Emit(at_one_step, gather))
    by_inputs, by_Lam, by_c, by_mix, by_noise, seen = swept.results
    r0, N0 = swept.first.r[:, 0], swept.first.N[:, :, 0]
    by_cov = pack_blocks(0.5 * (jnp.outer(r0, r0) - N0), chain.cov)
    join = lambda x: None if x is None else layout.join(x, n)  # noqa: E731
    found = Outputs(*(layout.join(x, n) for x in seen))
    return Gradient(
        value=swept.log,
        by_chain=Chain(r0, by_cov, swept.totals, ()),
        by_inputs=jax.tree.map(lambda g, x: layout.join(g, x.shape[-1]), by_inputs, chain.inputs) if inputs else None,
        by_info=Information(
            join(by_Lam),
            None if info.shift is None else found.mean,
            join(by_c),
            mix=join(by_mix),
            noise=jax.tree.map(join, by_noise),
        ),
        outputs=found,
    )
