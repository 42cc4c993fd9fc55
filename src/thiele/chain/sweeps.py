r"""What is known at every step: each lane once more, forward from its known start and backward from its known end.

The forward pass keeps the prediction of every state, or, where these would fill the memory or are soon made again, only
that at the head of each chunk, and the backward pass runs a chunk forward again and then backward. Memory is then that
of the results plus one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from thiele.chain.lanes import Pieces, Problem, boundary_problem, filter_step, lay_out
from thiele.chain.layouts import Layout
from thiele.chain.matrices import dense
from thiele.chain.one_kernel import there_and_back
from thiele.chain.recursions import (
    Backward,
    Filter,
    Gain,
    Step,
    absorbed,
    backward,
    backward_in_loop,
    closed_loop,
    emission,
    gain,
    spread_of_output,
)
from thiele.chain.types import Chain, Information


class Ends(NamedTuple):
    """What each lane starts from and what follows it, as the number system writes them."""

    start: Filter
    end: Backward


class Visit(NamedTuple):
    """All that is known at one step."""

    step: Step
    before: Filter
    gain: Gain
    after: Backward


AtOneStep = Callable[[Visit], Any]


class Emit(NamedTuple):
    """What a sweep reports: `at_one_step` of a visit, as the number system writes it; `gather(piece, found)` makes of
    these, with trailing axes `layout.batch`, the results along one chunk, and totals to be summed over the chunks.
    `thin`: it is fewer numbers a step than the state has entries.
    """

    at_one_step: AtOneStep
    gather: Callable[[Pieces, Any], tuple[Any, Any]]
    thin: bool = False


def _ends(problem: Problem, m: Array, P: Array, r: Array, N: Array) -> Ends:
    """Lanes that start from N(m, P) and are followed by (r, N), (d, lanes) and (d, d, lanes)."""
    alg = problem.layout.algebra
    return Ends(problem.filter_from(m, P), Backward(alg.unpack(r[:, None]), alg.fold(alg.unpack(N))))


def _find_ends(chain: Chain, problem: Problem) -> Ends:
    """Starts and ends of the lanes; for one lane the prior and nothing."""
    d, dtype = problem.d, problem.dtype
    nothing = Backward(jnp.zeros((d, 1), dtype), jnp.zeros((d, d, 1), dtype))
    if problem.layout.lanes == 1:
        return _ends(problem, chain.mean[:, None], dense(chain.cov)[:, :, None], *nothing)
    upper, _ = boundary_problem(chain, problem)
    if upper.layout.flat is None:
        m, P, r, N = _predictions(chain, upper, problem.layout.lanes)
        ends = [jnp.concatenate([x[..., 1:], last], axis=-1) for x, last in zip((r, N), nothing, strict=True)]
        return _ends(problem, m, P, *ends)
    alg, H = problem.layout.algebra, problem.emission()

    def around(visit: Visit) -> tuple[Any, ...]:
        return visit.before.m, alg.fold(visit.before.P), visit.after.r, alg.fold(visit.after.N)

    _, (m, P, r, N), _ = _visit_in_kernel(upper, *_find_ends(chain, upper), upper.piece(), around, apart=True)
    p = alg.mul(alg.unfold(P), alg.transpose(H)) if problem.pieces.mix is None else None
    return Ends(Filter(m, P, p, jnp.zeros(1, dtype)), Backward(r, N))


def _back_step(problem: Problem) -> Callable[..., Any]:
    alg, H = problem.layout.algebra, problem.emission()

    def back(after: Backward, x: tuple[Step, Any, Gain]) -> tuple[Backward, Backward]:
        row, p, found = x
        moved = backward(alg, H, after._replace(N=alg.unfold(after.N)), row, p, found)
        return moved._replace(N=alg.fold(moved.N)), after

    return back


def _ahead(problem: Problem, head: Filter, piece: Pieces) -> tuple[Filter, Filter]:
    """One chunk forward: what follows it, and the prediction of every state in it."""
    step = filter_step(problem)

    def keep(carry: Filter, row: Step) -> tuple[Filter, Filter]:
        return step(carry, row)[0], carry

    return problem.layout.walk(keep, head, problem.chunk(piece))


def _back(
    problem: Problem, before: Filter, after: Backward, piece: Pieces, at_one_step: AtOneStep
) -> tuple[Backward, Any]:
    """One chunk backward, from its predictions and what follows it."""
    layout, alg, H = problem.layout, problem.layout.algebra, problem.emission()
    steps = problem.chunk(piece)
    before = before._replace(P=alg.unfold(before.P))
    before = before._replace(p=alg.each(lambda s, b: spread_of_output(alg, H, s, b))(steps, before))
    found = alg.each(lambda s, m, p: gain(alg, H, s, m, p))(steps, before.m, before.p)
    if alg.in_loops(steps.A):
        loops = alg.each(lambda s, p, found: closed_loop(alg, H, s, p, found))(steps, before.p, found)
        after, afters = layout.walk(lambda a, loop: (backward_in_loop(alg, a, loop), a), after, loops, reverse=True)
    else:
        after, afters = layout.walk(_back_step(problem), after, (steps, before.p, found), reverse=True)
    visits = Visit(steps, before, found, afters._replace(N=alg.unfold(afters.N)))
    return after, alg.each(at_one_step)(visits)


def _visit(problem: Problem, head: Filter, after: Backward, piece: Pieces, emit: Emit) -> tuple[Backward, Any, Filter]:
    """One chunk forward and backward, from what precedes it and what follows it."""
    if problem.layout.flat:
        return _visit_in_kernel(problem, head, after, piece, emit.at_one_step)
    last, seen = _see_ahead(problem, head, piece, emit)
    return *_see_back(problem, seen, after, piece, emit), last


def _visit_in_kernel(
    problem: Problem, head: Filter, after: Backward, piece: Pieces, at_one_step: AtOneStep, apart: bool = False
) -> tuple[Backward, Any, Filter]:
    """`_visit` where both walks are one kernel; `apart`: what is found is for another to start from."""
    walks = _keeping(problem), _emitting(problem, at_one_step)
    last, after, found = there_and_back(problem.layout.lanes, *walks, apart, head, after, problem.chunk(piece))
    return after, found, last


def _see_ahead(problem: Problem, head: Filter, piece: Pieces, emit: Emit) -> tuple[Filter, Any]:
    """One chunk forward: what follows it, and what the way back asks of every step."""
    if not problem.layout.in_walk(emit.thin):
        return _ahead(problem, head, piece)
    return problem.layout.walk(_keeping(problem), head, problem.chunk(piece))


def _see_back(problem: Problem, seen: Any, after: Backward, piece: Pieces, emit: Emit) -> tuple[Backward, Any]:
    """One chunk backward, from that and what follows it."""
    if not problem.layout.in_walk(emit.thin):
        return _back(problem, seen, after, piece, emit.at_one_step)
    back = _emitting(problem, emit.at_one_step)
    return problem.layout.walk(back, after, (problem.chunk(piece), seen), reverse=True)


def _keeping(problem: Problem) -> Callable[..., Any]:
    """A step forward that keeps m and P, and what follows from them where that is more than reading it again."""
    alg, H, gains = problem.layout.algebra, problem.emission(), problem.layout.keeps_gains

    def keep(carry: Filter, row: Step) -> tuple[Filter, tuple[Any, Any, Any]]:
        state = carry._replace(P=alg.unfold(carry.P))
        p = spread_of_output(alg, H, row, state)
        found = gain(alg, H, row, state.m, p)
        moved, _ = absorbed(alg, H, state, None, row, p, found)
        return moved._replace(P=alg.fold(moved.P)), (carry.m, carry.P, (p, found) if gains else None)

    return keep


def _emitting(problem: Problem, at_one_step: AtOneStep) -> Callable[..., Any]:
    """A step backward that gets what `_keeping` kept there, and keeps only what is asked for."""
    alg, H, back = problem.layout.algebra, problem.emission(), _back_step(problem)

    def back_from(after: Backward, x: tuple[Step, tuple[Any, Any, Any]]) -> tuple[Backward, Any]:
        row, (m, P, kept) = x
        P = alg.unfold(P)
        if kept is None:
            p = alg.mul(P, alg.transpose(emission(alg, H, row)))
            kept = p, gain(alg, H, row, m, p)
        p, found = kept
        moved, _ = back(after, (row, p, found))
        visit = Visit(row, Filter(m, P, p, found.log), found, after._replace(N=alg.unfold(after.N)))
        return moved, at_one_step(visit)

    return back_from


class Swept(NamedTuple):
    """What a sweep returns: `emit`'s results and totals, (r, N) at the first state of each lane, the log-normaliser."""

    results: Any
    totals: Any
    first: Backward
    log: Array


def sweep(chain: Chain, problem: Problem, emit: Emit) -> Swept:
    """Run every lane forward and backward."""
    layout, alg = problem.layout, problem.layout.algebra
    start, end = _find_ends(chain, problem)
    if layout.chunks == 1:
        one = problem.piece()
        first, found, last = _visit(problem, start, end, one, emit)
        results, totals = emit.gather(one, found)
        results = jax.tree.map(lambda x: x[None], results)
    else:
        first, results, totals, last = _sweep_chunks(problem, start, end, emit)
    r = alg.pack(first.r, (problem.d, 1), (layout.lanes,))[:, 0]
    N = alg.pack(alg.unfold(first.N), (problem.d, problem.d), (layout.lanes,))
    return Swept(results, totals, Backward(r, N), jnp.sum(last.log))


def _sweep_chunks(problem: Problem, start: Filter, end: Backward, emit: Emit) -> tuple[Backward, Any, Any, Filter]:
    """All chunks forward, then all backward. What the way forward leaves are the predictions of all states, or only
    that of each chunk's first, from which the others are made again.
    """
    layout, step = problem.layout, filter_step(problem)
    kept = layout.keeps(problem.d, problem.pieces.precision.shape[1], problem.dtype)

    def ahead(carry: Filter, piece: Pieces) -> tuple[Filter, Filter]:
        if kept:
            return _see_ahead(problem, carry, piece, emit)
        return layout.walk(step, carry, problem.chunk(piece))[0], carry

    def back(after: Backward, piece: Pieces, seen: Filter) -> tuple[Backward, Any, Any]:
        if kept:
            after, found = _see_back(problem, seen, after, piece, emit)
        else:
            after, found, _ = _visit(problem, seen, after, piece, emit)
        return after, *emit.gather(piece, found)

    def back_to_previous(carry: tuple[Backward, Any], x: tuple[Pieces, Filter]) -> tuple[tuple[Backward, Any], Any]:
        after, results, more = back(carry[0], *x)
        return (after, jax.tree.map(jnp.add, carry[1], more)), results

    last, seen = jax.lax.scan(ahead, start, problem.pieces)
    of_first = jax.tree.map(lambda x: x[0], (problem.pieces, seen))
    shapes = jax.eval_shape(lambda x: back(end, *x)[2], of_first)
    totals = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    (first, totals), results = jax.lax.scan(back_to_previous, (end, totals), (problem.pieces, seen), reverse=True)
    return first, results, totals, last


def predictions(chain: Chain, info: Information, layout: Layout) -> tuple[Array, Array, Array, Array]:
    """At every state: the prediction N(m, P) from those before, and (r, N) from itself and those after."""
    return _predictions(chain, lay_out(chain, info, layout), info.precision.shape[-1])


def _predictions(chain: Chain, problem: Problem, n: int) -> tuple[Array, Array, Array, Array]:
    layout, alg, d = problem.layout, problem.layout.algebra, problem.d

    def at_one_step(visit: Visit) -> tuple[Any, ...]:
        own = backward(alg, problem.emission(), visit.after, visit.step, visit.before.p, visit.gain)
        return visit.before.m, visit.before.P, own.r, own.N

    def gather(_: Pieces, found: tuple[Any, ...]) -> tuple[Any, Any]:
        shapes = ((d, 1), (d, d)) * 2
        m, P, r, N = (alg.pack(x, shape, layout.batch) for x, shape in zip(found, shapes, strict=True))
        return (m[:, 0], P, r[:, 0], N), ()

    swept = sweep(chain, problem, Emit(at_one_step, gather))
    return tuple(layout.join(x, n) for x in swept.results)
