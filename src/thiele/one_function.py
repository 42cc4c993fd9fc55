"""A whole run of a recursion in one function of a CPU.

At every step of a loop XLA asks for each operation in turn, which with small states is most of the time. What a call
marked as small calls, it writes into one function instead, as it does of its own accord with the smallest of loops. The
writer of such functions knows plain arithmetic only, and ends the process where it meets a parameter that nothing
reads. So all that is carried is one array, and all rows are another, which are read if anything is, and there is no
third: what a step takes from around it would be one. A barrier keeps the two from being constants, which the optimiser
would read elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Float

Step = Callable[[Any, Any], tuple[Any, Any]]

# What XLA itself writes on the calls that it makes of small loops, and what keeps it from undoing them.
MARK = {"xla_cpu_small_call": "true", "inlineable": "false"}
# Later ones are given plain loops, until they are seen to take the mark as these do.
LAST_TESTED = 0, 11


@partial(jax.custom_jvp, nondiff_argnums=(0, 3))
def walk(step: Step, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` of a `step` of plain arithmetic on few numbers."""
    starts, form_of_carry = jax.tree.flatten(carry)
    rows, form_of_row = jax.tree.flatten(xs)
    n = rows[0].shape[0]
    of_one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)  # noqa: E731
    traced, (_, kept) = jax.make_jaxpr(step, return_shape=True)(carry, jax.tree.map(of_one, xs))
    kept, form_of_kept = jax.tree.flatten(kept)
    width = sum(x.size for x in kept)
    reads = partial(_reads, traced.jaxpr, len(starts))
    # Whichever of the two ends and what is kept is asked for, it must read start and rows; one step may not.
    both = all(map(any, reads(True, False))) and (width == 0 or any(reads(False, True)[0]))
    closed_over = any(isinstance(x, Tracer) for x in traced.consts)
    if jax.__version_info__[:2] > LAST_TESTED or n == 1 or not both or closed_over:
        return jax.lax.scan(step, carry, xs, reverse=reverse)
    read, dtype = reads(True, True)[1], starts[0].dtype
    unread = [np.zeros(x.shape[1:], x.dtype) for x in rows]
    wanted = list(compress(unread, read))

    def run(start: Float[Array, " c"], rows: Float[Array, "n r"]) -> tuple[Array, Array]:
        def body(i: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
            carried, seen = x
            at = n - 1 - i if reverse else i
            there = iter(_apart(jax.lax.dynamic_index_in_dim(rows, at, keepdims=False), wanted))
            row = [next(there) if used else nothing for used, nothing in zip(read, unread, strict=True)]
            moved, out = step(form_of_carry.unflatten(_apart(carried, starts)), form_of_row.unflatten(row))
            moved, out = (_joined(jax.tree.leaves(x), dtype) for x in (moved, out))
            return moved, jax.lax.dynamic_update_index_in_dim(seen, out, at, 0)

        return jax.lax.fori_loop(0, n, body, (start, jnp.zeros((n, width), dtype)))

    columns = jnp.concatenate([x.reshape(n, -1) for x in compress(rows, read)], axis=1)
    found: Any = jax.jit(run)(*jax.lax.optimization_barrier((_joined(starts, dtype), columns)))
    last, seen = (set_xla_metadata(x, **MARK) for x in found)
    return form_of_carry.unflatten(_apart(last, starts)), form_of_kept.unflatten(_apart(seen, kept))


@walk.defjvp
def _walk_jvp(step: Step, reverse: bool, primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    # Derivatives of this derivative-free recursion are rare: second ones of the likelihood, first ones of moments.
    return jax.jvp(partial(jax.lax.scan, step, reverse=reverse), primals, tangents)


def at_once(function: Callable[..., Any], *args: Array) -> Any:
    """`function` of some small arrays, which is plain arithmetic and reads them all."""
    if jax.__version_info__[:2] > LAST_TESTED:
        return function(*args)
    leaves, form = jax.tree.flatten(jax.eval_shape(function, *args))
    dtype = args[0].dtype
    run = lambda x: _joined(jax.tree.leaves(function(*_apart(x, list(args)))), dtype)  # noqa: E731
    found = jax.jit(run)(jax.lax.optimization_barrier(_joined(list(args), dtype)))
    return form.unflatten(_apart(set_xla_metadata(found, **MARK), leaves))


def _reads(step: Jaxpr, carried: int, moved: bool, kept: bool) -> tuple[list[bool], list[bool]]:
    """Which of what is carried, and which of a row, the step reads for what it carries on, what it keeps, or both."""
    wanted = [moved] * carried + [kept] * (len(step.outvars) - carried)
    used = dce_jaxpr(step, wanted)[1]
    return used[:carried], used[carried:]


def _joined(arrays: list[Array], dtype: Any) -> Float[Array, " c"]:
    """All numbers in one array."""
    return jnp.concatenate([jnp.ravel(x) for x in arrays]) if arrays else jnp.zeros(0, dtype)


def _apart(joined: Float[Array, "*n c"], like: list[Any]) -> list[Array]:
    """The inverse of `_joined`, along the last axis."""
    found, start = [], 0
    for x in like:
        found.append(joined[..., start : start + x.size].reshape(*joined.shape[:-1], *x.shape))
        start += x.size
    return found
