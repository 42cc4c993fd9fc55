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


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 4))
def walk(lanes: int, step: Step, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` of an elementwise `step` in every lane at once.

    What is carried is (lanes,), and at the start (1,) where it is the same in all; `xs`, and what is kept of each step,
    are (1, n), lane after lane. A last lane that is not full goes on with zeros.
    """
    run, loop = partial(in_kernel, lanes, step, reverse), partial(in_loop, lanes, step, reverse)
    return jax.lax.platform_dependent(carry, xs, cuda=run, rocm=run, default=loop)


@walk.defjvp
def _walk_jvp(
    lanes: int, step: Step, reverse: bool, primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Any, Any]:
    # Derivatives of this derivative-free recursion are rare: second ones of the likelihood, first ones of moments.
    return jax.jvp(partial(in_loop, lanes, step, reverse), primals, tangents)


def in_loop(lanes: int, step: Step, reverse: bool, carry: Any, xs: Any) -> tuple[Any, Any]:
    """The same by XLA."""
    n = jax.tree.leaves(xs)[0].shape[-1]
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, lanes), carry)
    steps = -(-n // lanes)
    rows = jax.tree.map(lambda x: jnp.pad(x[0], (0, lanes * steps - n)).reshape(lanes, steps).T, xs)
    carry, ys = jax.lax.scan(step, carry, rows, reverse=reverse)
    return carry, jax.tree.map(lambda y: y.T.reshape(1, -1)[:, :n], ys)


def in_kernel(lanes: int, step: Step, reverse: bool, carry: Any, xs: Any, interpret: bool = False) -> tuple[Any, Any]:
    """The same by one kernel."""
    # Slow to import, and of no use without a GPU.
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    starts, form_of_carry = jax.tree.flatten(carry)
    rows, form_of_row = jax.tree.flatten(xs)
    n = rows[0].shape[-1]
    steps = -(-n // lanes)
    at_one = lambda x: jax.ShapeDtypeStruct((lanes,), x.dtype)  # noqa: E731
    of_step = jax.eval_shape(step, *jax.tree.map(at_one, (carry, xs)))
    kept, form_of_kept = jax.tree.flatten(of_step[1])

    def kernel(*refs: Any) -> None:
        parts = iter(refs)
        start, row, end, keep = ([next(parts) for _ in group] for group in (starts, rows, starts, kept))
        lane = pallas.program_id(0) * LANES_IN_A_BLOCK + jnp.arange(LANES_IN_A_BLOCK, dtype=jnp.int32)
        there = lane < lanes

        def place(i: Array) -> tuple[Array, Array]:
            inner = steps - 1 - i if reverse else i
            at = lane * steps + inner
            return at, there & (at < n) & (inner >= 0) & (inner < steps)

        def read(i: Array) -> list[Array]:
            at, inside = place(i)
            return [triton.load(ref.at[0, at], mask=inside, other=0) for ref in row]

        def body(i: Array, x: tuple[list[Array], list[Array]]) -> tuple[list[Array], list[Array]]:
            carried, now = x
            # Read ahead: memory answers while this step is computed.
            following = read(i + 1)
            moved, out = step(form_of_carry.unflatten(carried), form_of_row.unflatten(now))
            at, inside = place(i)
            for ref, value in zip(keep, jax.tree.leaves(out), strict=True):
                triton.store(ref.at[0, at], value, mask=inside)
            return jax.tree.leaves(moved), following

        same = jnp.zeros_like(lane)
        carried = [triton.load(ref.at[lane if ref.shape[0] > 1 else same], mask=there, other=0) for ref in start]
        carried, _ = jax.lax.fori_loop(jnp.int32(0), jnp.int32(steps), body, (carried, read(jnp.int32(0))))
        for ref, value in zip(end, carried, strict=True):
            triton.store(ref.at[lane], value, mask=there)

    found = pallas.pallas_call(
        kernel,
        grid=(-(-lanes // LANES_IN_A_BLOCK),),
        out_shape=[at_one(x) for x in starts] + [jax.ShapeDtypeStruct((1, n), x.dtype) for x in kept],
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )(*starts, *rows)
    return form_of_carry.unflatten(found[: len(starts)]), form_of_kept.unflatten(found[len(starts) :])
