r"""The schedule: a chain cut into lanes that advance together, each lane in chunks.

Lanes. Each lane first runs from an unknown start x₀, with zero covariance, and carries the map from x₀ and the
information on it. That makes a lane one step of a shorter chain on the lane's boundaries, which is solved as it is.
Once the map has decayed below rounding (a lane forgets where it began) it is no longer carried. A second run from the
known starts then fills the lanes.

Chunks. Transitions exist for one chunk at a time. The forward pass keeps the prediction at the head of each chunk; the
backward pass runs a chunk forward again and then backward. Memory is that of the results plus one chunk.

With one lane this is the textbook recursion.

Trees. On a GPU lanes are short and many, and the chain on their boundaries is cut into lanes again, until it is short.
A lane is one chunk, and for small states a run along it is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thiele.chain import matrices
from thiele.chain.layouts import Layout as Layout
from thiele.chain.layouts import choose_layout as choose_layout
from thiele.chain.recursions import (
    Backward,
    Filter,
    Gain,
    Map,
    Step,
    backward,
    emission,
    forward,
    gain,
    spread_of_output,
)
from thiele.chain.types import Chain, Information, Move, Moves, Tabulated


class Pieces(NamedTuple):
    """A chain and its information in chunks: every leaf is (chunks, ..., steps, lanes)."""

    inputs: Any
    precision: Array
    shift: Array | None
    centre: Array | None
    mix: Array | None


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


class Emit(NamedTuple):
    """What a sweep reports: `at_one_step` of a visit, as the number system writes it; `gather(piece, found)` makes of
    these, with trailing axes `layout.batch`, the results along one chunk, and totals to be summed over the chunks.
    """

    at_one_step: Callable[[Visit], Any]
    gather: Callable[[Pieces, Any], tuple[Any, Any]]


class Problem(NamedTuple):
    """A chain with its information, laid out; `steps` where they are at hand already, as one chunk."""

    moves: Moves
    layout: Layout
    H: np.ndarray
    d: int
    dtype: Any
    pieces: Pieces
    steps: Step | None = None

    def chunk(self, piece: Pieces) -> Step:
        """The steps of one chunk as the number system writes them, in the form that `walk` goes along."""
        if self.steps is not None:
            return self.steps
        alg = self.layout.algebra
        column = lambda x: None if x is None else alg.unpack(x[:, None])  # noqa: E731
        move = self.moves(self._prepare(piece.inputs))
        return Step(
            A=alg.unpack(move.A),
            Q=alg.fold(alg.unpack(move.Q)),
            b=column(move.b),
            Lam=alg.fold(alg.unpack(piece.precision)),
            h=column(piece.shift),
            c=column(piece.centre),
            mix=None if piece.mix is None else alg.unpack(piece.mix),
        )

    def _prepare(self, inputs: Any) -> Any:
        if self.layout.tree:
            return self.moves.prepare(inputs)
        rows = jax.tree.map(lambda x: jnp.moveaxis(x, -2, 0), inputs)
        # A loop of its own: what leaves it is stored, where the compiler would otherwise compute it in every use.
        _, found = jax.lax.scan(lambda _, row: (None, self.moves.prepare(row)), None, rows)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2), found)

    def along_chunks(self, chunk: Callable[..., Any], carry: Any) -> Any:
        """What `chunk` carries past the last piece."""
        if self.layout.tree:
            return chunk(carry, self.piece())[0]
        return jax.lax.scan(chunk, carry, self.pieces)[0]

    def piece(self) -> Pieces:
        """The first of the pieces."""
        return jax.tree.map(lambda x: x[0], self.pieces)

    def emission(self) -> Any:
        """H as the number system writes it."""
        if self.layout.flat:
            # Numbers, not arrays: a kernel captures none.
            H = self.H.astype(self.dtype)
            return {(int(i), int(j)): H[i, j] for i, j in np.argwhere(H)}
        return self.layout.algebra.selection(self.H, self.dtype)

    def ends_from(self, m: Array, P: Array, r: Array, N: Array) -> Ends:
        """Lanes that start from N(m, P) and are followed by (r, N), (d, lanes) and (d, d, lanes)."""
        alg = self.layout.algebra
        return Ends(self.filter_from(m, P), Backward(alg.unpack(r[:, None]), alg.fold(alg.unpack(N))))

    def filter_from(self, m: Array, P: Array) -> Filter:
        """The carry of a forward pass that starts at N(m, P), (d, lanes) and (d, d, lanes)."""
        alg = self.layout.algebra
        log = jnp.zeros(m.shape[-1], self.dtype)
        p = None
        if self.pieces.mix is None:
            p = alg.unpack(jnp.einsum("ij...,lj->il...", P, jnp.asarray(self.H, self.dtype)))
        return Filter(alg.unpack(m[:, None]), alg.fold(alg.unpack(P)), p, log)


def lay_out(chain: Chain, info: Information, layout: Layout) -> Problem:
    """Cut a chain and its information into lanes and chunks."""
    d = chain.mean.shape[0]
    H = np.eye(d) if info.H is None else info.H
    split = lambda x: None if x is None else layout.split(x)  # noqa: E731
    pieces = Pieces(
        jax.tree.map(layout.split, chain.inputs),
        *(split(x) for x in (info.precision, info.shift, info.centre, info.mix)),
    )
    return Problem(chain.moves, layout, H, d, chain.mean.dtype, pieces)


def _filter_step(problem: Problem) -> Callable[..., Any]:
    alg, H = problem.layout.algebra, problem.emission()

    def step(carry: Filter, row: Step) -> tuple[Filter, None]:
        moved, _ = forward(alg, H, carry._replace(P=alg.unfold(carry.P)), None, row)
        return moved._replace(P=alg.fold(moved.P)), None

    return step


def _map_step(problem: Problem) -> Callable[..., Any]:
    alg, H = problem.layout.algebra, problem.emission()

    def step(carry: tuple[Filter, Map], row: Step) -> tuple[tuple[Filter, Map], None]:
        state, start = carry[0]._replace(P=alg.unfold(carry[0].P)), carry[1]._replace(J=alg.unfold(carry[1].J))
        state, start = forward(alg, H, state, start, row)
        return (state._replace(P=alg.fold(state.P)), start._replace(J=alg.fold(start.J))), None

    return step


def run_from_unknown_starts(problem: Problem) -> tuple[Filter, Map]:
    """Each lane to its end, with the map from its first state and the information on it."""
    layout, d, K = problem.layout, problem.d, problem.layout.lanes
    alg, dtype = layout.algebra, problem.dtype
    zero, eye = jnp.zeros((d, d, K), dtype), jnp.broadcast_to(jnp.eye(d, dtype=dtype)[:, :, None], (d, d, K))
    empty = jnp.zeros((d, K), dtype)
    HPhi = jnp.broadcast_to(jnp.asarray(problem.H, dtype)[:, :, None], (*problem.H.shape, K))
    column = alg.unpack(empty[:, None])
    start = Map(alg.unpack(eye), alg.unpack(HPhi), column, alg.fold(alg.unpack(zero)))
    tiny = jnp.finfo(dtype).eps * 1e-3
    plain, full = _filter_step(problem), _map_step(problem)

    def without_map(carry: tuple[Filter, Map], steps: Step) -> tuple[Filter, Map]:
        state, start = carry
        forgotten = start._replace(Phi=jax.tree.map(jnp.zeros_like, start.Phi), f=jax.tree.map(jnp.zeros_like, start.f))
        return layout.walk(plain, state, steps)[0], forgotten

    def with_map(carry: tuple[Filter, Map], steps: Step) -> tuple[Filter, Map]:
        return layout.walk(full, carry, steps)[0]

    def chunk(carry: tuple[Filter, Map], piece: Pieces) -> tuple[tuple[Filter, Map], None]:
        steps = problem.chunk(piece)
        if layout.tree:
            # A short lane has not forgotten its start, and the host would wait for the answer.
            return with_map(carry, steps), None
        size = jnp.stack([jnp.max(jnp.abs(entry)) for entry in jax.tree.leaves(carry[1].Phi)])
        return jax.lax.cond(jnp.max(size) < tiny, without_map, with_map, carry, steps), None

    return problem.along_chunks(chunk, (problem.filter_from(empty, zero), start))


def boundary_chain(chain: Chain, problem: Problem) -> tuple[Chain, Information, Array]:
    """The chain on the first states of the lanes, its information, and the log factor that the reduction has taken."""
    state, start = run_from_unknown_starts(problem)
    alg, d = problem.layout.algebra, problem.d
    pack = lambda X, shape: alg.pack(X, shape, (problem.layout.lanes,))  # noqa: E731
    move = Move(
        A=(pack(start.Phi, (d, d))[None],),
        Q=(pack(alg.unfold(state.P), (d, d))[None],),
        b=pack(state.m, (d, 1))[:, 0],
    )
    info = Information(precision=pack(alg.unfold(start.J), (d, d)), shift=pack(start.h, (d, 1))[:, 0])
    inner = jax.tree.map(lambda x: x[..., :-1], move)
    return Chain(chain.mean, chain.cov, Tabulated(), inner), info, jnp.sum(state.log)


def boundary_problem(chain: Chain, problem: Problem) -> tuple[Problem, Array]:
    """The chain on the first states of the lanes, laid out, and the log factor that the reduction has taken."""
    layout = problem.layout.of_boundaries(problem.d)
    if layout.flat is None:
        short, info, log = boundary_chain(chain, problem)
        return lay_out(short, info, layout), log
    # What one kernel leaves is what the next one reads: nothing is stacked only to be taken apart. The last move leads
    # nowhere, and does no harm.
    state, start = run_from_unknown_starts(problem)
    row = lambda X: {key: value[None] for key, value in X.items()}  # noqa: E731
    steps = Step(A=row(start.Phi), Q=row(state.P), b=row(state.m), Lam=row(start.J), h=row(start.h), c=None)
    nothing = Pieces((), None, None, None, None)
    upper = Problem(Tabulated(), layout, np.eye(problem.d), problem.d, problem.dtype, nothing, steps)
    return upper, jnp.sum(state.log)


def find_ends(chain: Chain, problem: Problem) -> Ends:
    """Starts and ends of the lanes; for one lane the prior and nothing."""
    d, dtype = problem.d, problem.dtype
    nothing = Backward(jnp.zeros((d, 1), dtype), jnp.zeros((d, d, 1), dtype))
    if problem.layout.lanes == 1:
        return problem.ends_from(chain.mean[:, None], matrices.dense(chain.cov)[:, :, None], *nothing)
    upper, _ = boundary_problem(chain, problem)
    if upper.layout.flat is None:
        m, P, r, N = _predictions(chain, upper, problem.layout.lanes)
        ends = [jnp.concatenate([x[..., 1:], last], axis=-1) for x, last in zip((r, N), nothing, strict=True)]
        return problem.ends_from(m, P, *ends)
    alg, H = problem.layout.algebra, problem.emission()

    def around(visit: Visit) -> tuple[Any, ...]:
        return visit.before.m, alg.fold(visit.before.P), visit.after.r, alg.fold(visit.after.N)

    _, seen, _ = _visit_flat(upper, *find_ends(chain, upper), upper.piece(), around)
    m, P, r, N = jax.tree.map(lambda x: x[0], seen)
    p = alg.mul(alg.unfold(P), alg.transpose(H)) if problem.pieces.mix is None else None
    return Ends(Filter(m, P, p, jnp.zeros(problem.layout.lanes, dtype)), Backward(r, N))


def log_normaliser_of(chain: Chain, problem: Problem) -> Array:
    """The log-normaliser by the forward recursion alone, in one lane or through the boundaries of many."""
    if problem.layout.lanes > 1:
        upper, log = boundary_problem(chain, problem)
        return log + log_normaliser_of(chain, upper)
    step = _filter_step(problem)

    def chunk(carry: Filter, piece: Pieces) -> tuple[Filter, None]:
        return problem.layout.walk(step, carry, problem.chunk(piece))[0], None

    start = problem.filter_from(chain.mean[:, None], matrices.dense(chain.cov)[:, :, None])
    return jnp.sum(problem.along_chunks(chunk, start).log)


def _back_step(problem: Problem) -> Callable[..., Any]:
    alg, H = problem.layout.algebra, problem.emission()

    def back(after: Backward, x: tuple[Step, Any, Gain]) -> tuple[Backward, Backward]:
        row, p, found = x
        moved = backward(alg, H, after._replace(N=alg.unfold(after.N)), row, p, found)
        return moved._replace(N=alg.fold(moved.N)), after

    return back


AtOneStep = Callable[[Visit], Any]


def _visit(
    problem: Problem, head: Filter, after: Backward, piece: Pieces, at_one_step: AtOneStep
) -> tuple[Backward, Any, Filter]:
    """One chunk forward and backward, from what precedes it and what follows it."""
    layout, alg, H = problem.layout, problem.layout.algebra, problem.emission()
    step = _filter_step(problem)

    def keep(carry: Filter, row: Step) -> tuple[Filter, Filter]:
        return step(carry, row)[0], carry

    steps = problem.chunk(piece)
    last, before = layout.walk(keep, head, steps)
    before = before._replace(P=alg.unfold(before.P))
    before = before._replace(p=alg.each(lambda s, b: spread_of_output(alg, H, s, b))(steps, before))
    found = alg.each(lambda s, m, p: gain(alg, H, s, m, p))(steps, before.m, before.p)
    after, afters = layout.walk(_back_step(problem), after, (steps, before.p, found), reverse=True)
    visits = Visit(steps, before, found, afters._replace(N=alg.unfold(afters.N)))
    return after, alg.each(at_one_step)(visits), last


def _visit_flat(
    problem: Problem, head: Filter, after: Backward, piece: Pieces, at_one_step: AtOneStep
) -> tuple[Backward, Any, Filter]:
    """`_visit` where a walk is one kernel, which waits for memory: only m and P are kept on the way forward, and on the
    way back only what is asked for.
    """
    layout, alg, H = problem.layout, problem.layout.algebra, problem.emission()
    step, back = _filter_step(problem), _back_step(problem)

    def keep(carry: Filter, row: Step) -> tuple[Filter, tuple[Any, Any]]:
        return step(carry, row)[0], (carry.m, carry.P)

    def back_from(after: Backward, x: tuple[Step, tuple[Any, Any]]) -> tuple[Backward, Any]:
        row, (m, P) = x
        P = alg.unfold(P)
        p = alg.mul(P, alg.transpose(emission(alg, H, row)))
        found = gain(alg, H, row, m, p)
        moved, _ = back(after, (row, p, found))
        visit = Visit(row, Filter(m, P, p, found.log), found, after._replace(N=alg.unfold(after.N)))
        return moved, at_one_step(visit)

    steps = problem.chunk(piece)
    last, kept = layout.walk(keep, head, steps)
    after, found = layout.walk(back_from, after, (steps, kept), reverse=True)
    return after, found, last


class Swept(NamedTuple):
    """What a sweep returns: `emit`'s results and totals, (r, N) at the first state of each lane, the log-normaliser."""

    results: Any
    totals: Any
    first: Backward
    log: Array


def sweep(chain: Chain, problem: Problem, ends: Ends, emit: Emit) -> Swept:
    """Run every lane forward and backward."""
    layout, alg = problem.layout, problem.layout.algebra
    step, visit = _filter_step(problem), _visit_flat if problem.layout.flat else _visit

    def visit_chunk(after: Backward, piece: Pieces, head: Filter) -> tuple[Backward, Any, Any, Filter]:
        after, found, last = visit(problem, head, after, piece, emit.at_one_step)
        return after, *emit.gather(piece, found), last

    start, end = ends
    one = problem.piece()
    if layout.chunks == 1:
        first, results, totals, last = visit_chunk(end, one, start)
        results = jax.tree.map(lambda x: x[None], results)
    else:

        def to_next_chunk(carry: Filter, piece: Pieces) -> tuple[Filter, Filter]:
            return layout.walk(step, carry, problem.chunk(piece))[0], carry

        def chunk(carry: tuple[Backward, Any], x: tuple[Pieces, Filter]) -> tuple[tuple[Backward, Any], Any]:
            after, totals = carry
            after, results, more, _ = visit_chunk(after, *x)
            return (after, jax.tree.map(jnp.add, totals, more)), results

        last, heads = jax.lax.scan(to_next_chunk, start, problem.pieces)
        shapes = jax.eval_shape(lambda piece: visit_chunk(end, piece, start)[2], one)
        totals = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        (first, totals), results = jax.lax.scan(chunk, (end, totals), (problem.pieces, heads), reverse=True)
    r = alg.pack(first.r, (problem.d, 1), (layout.lanes,))[:, 0]
    N = alg.pack(alg.unfold(first.N), (problem.d, problem.d), (layout.lanes,))
    return Swept(results, totals, Backward(r, N), jnp.sum(last.log))


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

    swept = sweep(chain, problem, find_ends(chain, problem), Emit(at_one_step, gather))
    return tuple(layout.join(x, n) for x in swept.results)
