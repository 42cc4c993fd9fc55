"""A whole run of a recursion in one kernel of a GPU: a lane is a thread, which keeps what it carries in registers.

A loop of XLA launches several kernels a step, each of which reads and writes all that is carried; at a few microseconds
a launch that is most of the time. Lanes lie one after another in memory as they do in the chain, so nothing is
transposed: the steps that a thread reads next are in the cache.
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


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 4, 5))
def walk(
    lanes: int, step: Step, carry: Any, xs: Any, reverse: bool = False, interleaved: bool = False
) -> tuple[Any, Any]:
    """`jax.lax.scan` of an elementwise `step` in every lane at once.

    What is carried is (lanes,), and at the start (1,) where it is the same in all; `xs`, and what is kept of each step,
    are (1, n), lane after lane. A last lane that is not full goes on with zeros. What is kept only for another walk is
    better `interleaved`, (steps, lanes), and is recognised by that: neighbours are then written and read at once.
    """
    run = partial(in_kernel, lanes, step, reverse, interleaved=interleaved)
    loop = partial(in_loop, lanes, step, reverse, interleaved=interleaved)
    return jax.lax.platform_dependent(carry, xs, cuda=run, rocm=run, default=loop)


@walk.defjvp
def _walk_jvp(
    lanes: int,
    step: Step,
    reverse: bool,
    interleaved: bool,
    primals: tuple[Any, Any],
    tangents: tuple[Any, Any],
) -> tuple[Any, Any]:
    # Derivatives of this derivative-free recursion are rare: second ones of the likelihood, first ones of moments.
    return jax.jvp(partial(in_loop, lanes, step, reverse, interleaved=interleaved), primals, tangents)


def _length(rows: list[Array]) -> int:
    return next(row.shape[1] for row in rows if row.shape[0] == 1)


def in_loop(lanes: int, step: Step, reverse: bool, carry: Any, xs: Any, interleaved: bool = False) -> tuple[Any, Any]:
    """The same by XLA."""
    n = _length(jax.tree.leaves(xs))
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, lanes), carry)
    steps = -(-n // lanes)

    def by_step(x: Array) -> Array:
        return jnp.pad(x[0], (0, lanes * steps - n)).reshape(lanes, steps).T if x.shape[0] == 1 else x

    carry, ys = jax.lax.scan(step, carry, jax.tree.map(by_step, xs), reverse=reverse)
    return carry, ys if interleaved else jax.tree.map(lambda y: y.T.reshape(1, -1)[:, :n], ys)


def in_kernel(
    lanes: int,
    step: Step,
    reverse: bool,
    carry: Any,
    xs: Any,
    interleaved: bool = False,
    interpret: bool = False,
) -> tuple[Any, Any]:
    """The same by one kernel."""
    # Slow to import, and of no use without a GPU.
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    starts, form_of_carry = jax.tree.flatten(carry)
    rows, form_of_row = jax.tree.flatten(xs)
    n = _length(rows)
    steps = -(-n // lanes)
    at_one = lambda x: jax.ShapeDtypeStruct((lanes,), x.dtype)  # noqa: E731
    of_step = jax.eval_shape(step, *jax.tree.map(at_one, (carry, xs)))
    kept, form_of_kept = jax.tree.flatten(of_step[1])

    def kernel(*refs: Any) -> None:
        parts = iter(refs)
        start, row, end, keep = ([next(parts) for _ in group] for group in (starts, rows, starts, kept))
        block = _Block(pallas.program_id(0), lanes, steps, n, triton)
        nth = lambda i: steps - 1 - i if reverse else i  # noqa: E731

        def body(i: Array, x: tuple[list[Array], list[Array]]) -> tuple[list[Array], list[Array]]:
            carried, now = x
            # Read ahead: memory answers while this step is computed.
            following = block.read(row, nth(i + 1))
            moved, out = step(form_of_carry.unflatten(carried), form_of_row.unflatten(now))
            block.write(keep, nth(i), jax.tree.leaves(out))
            return jax.tree.leaves(moved), following

        begin = block.load(start), block.read(row, nth(jnp.int32(0)))
        carried, _ = jax.lax.fori_loop(jnp.int32(0), jnp.int32(steps), body, begin)
        block.store(end, carried)

    of_steps = (steps, lanes) if interleaved else (1, n)
    shapes = [at_one(x) for x in starts] + [jax.ShapeDtypeStruct(of_steps, x.dtype) for x in kept]
    found = pallas.pallas_call(
        kernel,
        grid=(-(-lanes // LANES_IN_A_BLOCK),),
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )(*starts, *rows)
    return form_of_carry.unflatten(found[: len(starts)]), form_of_kept.unflatten(found[len(starts) :])


class _Block:
    """The lanes of one block, inside a kernel: where they lie, and access to them."""

    def __init__(self, number: Array, lanes: int, steps: int, n: int, access: Any):
        self.access, self.steps, self.n = access, steps, n
        self.lane = number * LANES_IN_A_BLOCK + jnp.arange(LANES_IN_A_BLOCK, dtype=jnp.int32)
        self.there = self.lane < lanes

    def load(self, refs: list[Any]) -> list[Array]:
        """What the lanes start from; the same for all where there is one."""
        same = jnp.zeros_like(self.lane)
        at = [ref.at[self.lane if ref.shape[0] > 1 else same] for ref in refs]
        return [self.access.load(place, mask=self.there, other=0) for place in at]

    def store(self, refs: list[Any], values: list[Array]) -> None:
        """What the lanes end with."""
        for ref, value in zip(refs, values, strict=True):
            self.access.store(ref.at[self.lane], value, mask=self.there)

    def read(self, refs: list[Any], i: Array) -> list[Array]:
        """Step `i` of the lanes; zeros beyond the end of a lane."""
        places = [self._place(ref, i) for ref in refs]
        return [self.access.load(at, mask=inside, other=0) for at, inside in places]

    def write(self, refs: list[Any], i: Array, values: list[Array]) -> None:
        """Step `i` of the lanes."""
        for ref, value in zip(refs, values, strict=True):
            at, inside = self._place(ref, i)
            self.access.store(at, value, mask=inside)

    def _place(self, ref: Any, i: Array) -> tuple[Any, Array]:
        at, inside = self.lane * self.steps + i, self.there & (i >= 0) & (i < self.steps)
        if ref.shape[0] == 1:
            return ref.at[0, at], inside & (at < self.n)
        return ref.at[jnp.clip(i, 0, self.steps - 1), self.lane], inside
