"""A whole run of a recursion in one kernel of a GPU: a lane is a thread, which keeps what it carries in registers.

A loop of XLA launches several kernels a step, each of which reads and writes all that is carried; at a few microseconds
a launch that is most of the time. Lanes lie one after another in memory as they do in the chain, so nothing is
transposed: the steps that a thread reads next are in the cache. What a thread writes for another kernel lies step by
step, (steps, lanes): neighbours then write at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

Step = Callable[[Any, Any], tuple[Any, Any]]

# One warp a block: with few lanes the blocks still spread over the device.
LANES_IN_A_BLOCK = 32


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 4))
def walk(lanes: int, step: Step, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` of an elementwise `step` in every lane at once.

    What is carried is (lanes,), at the start also (1,) where it is the same in all, or the shorter (steps, lanes) of
    another walk, one of whose states is the start of each lane here; `xs`, and what is kept of each step, are (1, n),
    lane after lane. A last lane that is not full goes on with zeros.
    """
    run, loop = partial(in_kernel, lanes, step, reverse), partial(in_loop, lanes, step, reverse)
    return jax.lax.platform_dependent(carry, xs, cuda=run, rocm=run, default=loop)


@walk.defjvp
def _walk_jvp(
    lanes: int, step: Step, reverse: bool, primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Any, Any]:
    # Derivatives of this derivative-free recursion are rare: second ones of the likelihood, first ones of moments.
    return jax.jvp(partial(in_loop, lanes, step, reverse), primals, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def there_and_back(
    lanes: int, ahead: Step, back: Step, apart: bool, carry: Any, after: Any, xs: Any
) -> tuple[Any, Any, Any]:
    """A walk by `ahead` from `carry`, then one in reverse by `back` from `after`, which gets (x, what `ahead` kept
    there): the two ends, and what `back` keeps, (1, n) or, for another walk to start from, step by step and `apart`.
    """
    run = partial(both_in_kernel, lanes, ahead, back, apart)
    loop = partial(both_in_loop, lanes, ahead, back, apart)
    return jax.lax.platform_dependent(carry, after, xs, cuda=run, rocm=run, default=loop)


@there_and_back.defjvp
def _there_and_back_jvp(
    lanes: int,
    ahead: Step,
    back: Step,
    apart: bool,
    primals: tuple[Any, Any, Any],
    tangents: tuple[Any, Any, Any],
) -> tuple[Any, Any]:
    return jax.jvp(partial(both_in_loop, lanes, ahead, back, apart), primals, tangents)


def _length(rows: list[Array]) -> int:
    return next(row.shape[1] for row in rows if row.shape[0] == 1)


def _starts(lanes: int, carry: Any) -> Any:
    """What each lane starts from, (lanes,)."""

    def of_lanes(x: Array) -> Array:
        return x.T.reshape(-1)[:lanes] if x.ndim == 2 else jnp.broadcast_to(x, lanes)

    return jax.tree.map(of_lanes, carry)


def _by_step(lanes: int, xs: Any) -> Any:
    """(1, n), lane after lane, as (steps, lanes)."""
    n = _length(jax.tree.leaves(xs))
    steps = -(-n // lanes)
    return jax.tree.map(lambda x: jnp.pad(x[0], (0, lanes * steps - n)).reshape(lanes, steps).T, xs)


def _in_line(ys: Any, n: int) -> Any:
    return jax.tree.map(lambda y: y.T.reshape(1, -1)[:, :n], ys)


def in_loop(lanes: int, step: Step, reverse: bool, carry: Any, xs: Any) -> tuple[Any, Any]:
    """`walk` by XLA."""
    carry, ys = jax.lax.scan(step, _starts(lanes, carry), _by_step(lanes, xs), reverse=reverse)
    return carry, _in_line(ys, _length(jax.tree.leaves(xs)))


def both_in_loop(
    lanes: int, ahead: Step, back: Step, apart: bool, carry: Any, after: Any, xs: Any
) -> tuple[Any, Any, Any]:
    """`there_and_back` by XLA."""
    rows = _by_step(lanes, xs)
    last, kept = jax.lax.scan(ahead, _starts(lanes, carry), rows)
    first, found = jax.lax.scan(back, _starts(lanes, after), (rows, kept), reverse=True)
    return last, first, found if apart else _in_line(found, _length(jax.tree.leaves(xs)))


def in_kernel(lanes: int, step: Step, reverse: bool, carry: Any, xs: Any, interpret: bool = False) -> tuple[Any, Any]:
    """`walk` by one kernel."""
    n = _length(jax.tree.leaves(xs))
    of_end, of_step = _kept(lanes, step, carry, xs)

    def kernel(block: _Block, carry: Any, xs: Any, end: Any, keep: Any) -> None:
        block.store(end, block.run(step, block.load(carry), xs, keep, reverse))

    results = of_end, jax.tree.map(partial(_in, (1, n)), of_step)
    return _launch(kernel, lanes, n, (carry, xs), results, interpret)


def both_in_kernel(
    lanes: int, ahead: Step, back: Step, apart: bool, carry: Any, after: Any, xs: Any, interpret: bool = False
) -> tuple[Any, Any, Any]:
    """`there_and_back` by one kernel: what it has read on the way there is still in the cache on the way back."""
    n = _length(jax.tree.leaves(xs))
    step_by_step = -(-n // lanes), lanes
    last, of_step = _kept(lanes, ahead, carry, xs)
    kept = jax.tree.map(partial(_in, step_by_step), of_step)
    first, found = _kept(lanes, back, after, (xs, kept))

    def kernel(block: _Block, carry: Any, after: Any, xs: Any, last: Any, first: Any, found: Any, kept: Any) -> None:
        block.store(last, block.run(ahead, block.load(carry), xs, kept))
        block.wait()
        block.store(first, block.run(back, block.load(after), (xs, kept), found, reverse=True))

    results = last, first, jax.tree.map(partial(_in, step_by_step if apart else (1, n)), found), kept
    return _launch(kernel, lanes, n, (carry, after, xs), results, interpret)[:3]


def _in(shape: tuple[int, ...], x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, x.dtype)


def _kept(lanes: int, step: Step, carry: Any, xs: Any) -> tuple[Any, Any]:
    """The shapes, in all lanes, of what a step carries on and of what it keeps."""
    return jax.eval_shape(step, *jax.tree.map(partial(_in, (lanes,)), (carry, xs)))


def _launch(
    kernel: Callable[..., None], lanes: int, n: int, arguments: tuple[Any, ...], results: Any, interpret: bool
) -> Any:
    # Slow to import, and of no use without a GPU.
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    leaves, form = jax.tree.flatten(arguments)
    shapes, form_of_results = jax.tree.flatten(results)

    def of_refs(*refs: Any) -> None:
        given, made = form.unflatten(refs[: len(leaves)]), form_of_results.unflatten(refs[len(leaves) :])
        kernel(_Block(pallas.program_id(0), lanes, n, triton, interpret), *given, *made)

    found = pallas.pallas_call(
        of_refs,
        grid=(-(-lanes // LANES_IN_A_BLOCK),),
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )(*leaves)
    return form_of_results.unflatten(found)


class _Block:
    """The lanes of one block, inside a kernel: where they lie, access to them, and their walks."""

    def __init__(self, number: Array, lanes: int, n: int, access: Any, interpret: bool):
        self.access, self.n, self.steps, self.interpret = access, n, -(-n // lanes), interpret
        self.lane = number * LANES_IN_A_BLOCK + jnp.arange(LANES_IN_A_BLOCK, dtype=jnp.int32)
        self.there = self.lane < lanes

    def run(self, step: Step, carry: Any, rows: Any, keep: Any, reverse: bool = False) -> Any:
        """All steps in turn, from `carry`: what is carried past the last."""
        nth = lambda i: self.steps - 1 - i if reverse else i  # noqa: E731

        def body(i: Array, x: tuple[Any, Any]) -> tuple[Any, Any]:
            carried, now = x
            # Read ahead: memory answers while this step is computed.
            following = self._read(rows, nth(i + 1))
            moved, out = step(carried, now)
            self._write(keep, nth(i), out)
            return moved, following

        begin = carry, self._read(rows, nth(jnp.int32(0)))
        return jax.lax.fori_loop(jnp.int32(0), jnp.int32(self.steps), body, begin)[0]

    def wait(self) -> None:
        """Until all that threads of the block have written can be read."""
        if not self.interpret:
            self.access.debug_barrier()

    def load(self, starts: Any) -> Any:
        """What the lanes start from: the same for all, or of each lane, or step by step of another walk."""

        def place(ref: Any) -> Any:
            if len(ref.shape) == 2:
                return ref.at[self.lane % ref.shape[0], self.lane // ref.shape[0]]
            return ref.at[self.lane if ref.shape[0] > 1 else jnp.zeros_like(self.lane)]

        return jax.tree.map(lambda ref: self.access.load(place(ref), mask=self.there, other=0), starts)

    def store(self, refs: Any, values: Any) -> None:
        """What the lanes end with."""
        jax.tree.map(lambda ref, value: self.access.store(ref.at[self.lane], value, mask=self.there), refs, values)

    def _read(self, refs: Any, i: Array) -> Any:
        """Step `i` of the lanes; zeros beyond the end of a lane."""

        def read(ref: Any) -> Array:
            at, inside = self._place(ref, i)
            return self.access.load(at, mask=inside, other=0)

        return jax.tree.map(read, refs)

    def _write(self, refs: Any, i: Array, values: Any) -> None:
        """Step `i` of the lanes."""

        def write(ref: Any, value: Array) -> None:
            at, inside = self._place(ref, i)
            self.access.store(at, value, mask=inside)

        jax.tree.map(write, refs, values)

    def _place(self, ref: Any, i: Array) -> tuple[Any, Array]:
        at, inside = self.lane * self.steps + i, self.there & (i >= 0) & (i < self.steps)
        if ref.shape[0] == 1:
            return ref.at[0, at], inside & (at < self.n)
        return ref.at[jnp.clip(i, 0, self.steps - 1), self.lane], inside
