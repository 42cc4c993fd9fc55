r"""The schedule: a chain cut into lanes that advance together, each lane in chunks.

Lanes. Each lane first runs from an unknown start x₀, with zero covariance, and carries the map from x₀ and the
information on it. That makes a lane one step of a shorter chain on the lane's boundaries, which is solved as it is.
Once the map has decayed below rounding (a lane forgets where it began) it is no longer carried. With one lane this is
the textbook recursion. What is known at every step takes a second run from the known starts: `thiele.chain.sweeps`.

Chunks. Transitions exist for one chunk at a time.

Trees. On a GPU lanes are short and many, and the chain on their boundaries is cut into lanes again, until it is short.
A lane is one chunk, and for small states a run along it is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from thiele.chain.layouts import Layout
from thiele.chain.matrices import dense
from thiele.chain.recursions import Filter, Map, Step, forward
from thiele.chain.roots import Root, root
from thiele.chain.types import Chain, Information, Move, Moves, Noise, Tabulated


class Pieces(NamedTuple):
    """A chain and its information in chunks: every leaf is (chunks, ..., steps, lanes)."""

    inputs: Any
    precision: Array
    shift: Array | None
    centre: Array | None
    mix: Array | None
    noise: Noise | None = None
    root: Root | None = None


class Problem(NamedTuple):
    """A chain with its information, laid out; `steps` where they are at hand already, as one chunk."""

    moves: Moves
    layout: Layout
    H: np.ndarray | None
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
            R=None if piece.noise is None else alg.fold(alg.unpack(piece.noise.cov)),
            V=None if piece.noise is None else alg.unpack(piece.noise.cross),
            root=None if piece.root is None else Root(*map(alg.unpack, piece.root)),
        )

    def _prepare(self, inputs: Any) -> Any:
        if self.layout.tree or self.layout.lanes == 1:
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
        """H as the number system writes it; None where mixtures are of the state itself."""
        return None if self.H is None else self.layout.algebra.selection(self.H, self.dtype)

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
    H = np.eye(d) if info.H is None and info.mix is None else info.H
    found = lax.stop_gradient(root(info.precision)) if layout.rooted(info.precision.shape[0]) else None
    seen = info.precision, info.shift, info.centre, info.mix, info.noise, found
    pieces = Pieces(*jax.tree.map(layout.split, (chain.inputs, *seen)))
    return Problem(chain.moves, layout, H, d, chain.mean.dtype, pieces)


def filter_step(problem: Problem) -> Callable[..., Any]:
    """The step of a forward pass: absorb what is known at a state, predict the next."""
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
    # A kernel reads what is the same for all lanes from one place, and nothing need be filled with it.
    layout, d, K = problem.layout, problem.d, 1 if problem.layout.flat else problem.layout.lanes
    alg, dtype = layout.algebra, problem.dtype
    zero, eye = jnp.zeros((d, d, K), dtype), jnp.broadcast_to(jnp.eye(d, dtype=dtype)[:, :, None], (d, d, K))
    empty = jnp.zeros((d, K), dtype)
    H = jnp.asarray(np.eye(d) if problem.H is None else problem.H, dtype)
    HPhi = jnp.broadcast_to(H[:, :, None], (*H.shape, K))
    column = alg.unpack(empty[:, None])
    start = Map(alg.unpack(eye), alg.unpack(HPhi), column, alg.fold(alg.unpack(zero)))
    tiny = jnp.finfo(dtype).eps * 1e-3
    plain, full = filter_step(problem), _map_step(problem)

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
    """The chain on the first states of the lanes, laid out, and the log factor that the reduction has taken and that is
    not in its steps.
    """
    layout = problem.layout.of_boundaries(problem.d)
    if layout.flat is None:
        short, info, log = boundary_chain(chain, problem)
        return lay_out(short, info, layout), log
    # What one kernel leaves is what the next one reads: nothing is stacked only to be taken apart. The last move leads
    # nowhere, and does no harm.
    state, start = run_from_unknown_starts(problem)
    row = lambda X: {key: value[None] for key, value in X.items()}  # noqa: E731
    taken = state.log[None]
    steps = Step(row(start.Phi), row(state.P), row(state.m), row(start.J), row(start.h), c=None, log=taken)
    nothing = Pieces((), None, None, None, None)
    upper = Problem(Tabulated(), layout, np.eye(problem.d), problem.d, problem.dtype, nothing, steps)
    return upper, jnp.zeros((), problem.dtype)


def log_normaliser_of(chain: Chain, problem: Problem) -> Array:
    """The log-normaliser by the forward recursion alone, in one lane or through the boundaries of many."""
    if problem.layout.lanes > 1:
        upper, log = boundary_problem(chain, problem)
        return log + log_normaliser_of(chain, upper)
    step = filter_step(problem)

    def chunk(carry: Filter, piece: Pieces) -> tuple[Filter, None]:
        return problem.layout.walk(step, carry, problem.chunk(piece))[0], None

    start = problem.filter_from(chain.mean[:, None], dense(chain.cov)[:, :, None])
    return jnp.sum(problem.along_chunks(chunk, start).log)
