r"""Joint samples from the posterior of a chain, by correcting samples of the prior (Matheron's rule).

Draw x* from the prior and e ~ N(0, Λ); then x* + E[x | shift = h + Λ (c − H x*) − e, zero prior mean] is a draw from
the posterior. Only means are smoothed, so one set of covariances serves all draws and none has to be factorised but
the prior's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from thiele.chain.forms import Form, posterior
from thiele.chain.matrices import mul
from thiele.chain.smoothing import marginals_of
from thiele.chain.square_root import block_roots, semidefinite_root
from thiele.chain.types import Blocks, Chain, Information, Move, Moves
from thiele.tables import as_array


class _Centred(NamedTuple):
    """The same moves without their offsets: x' = A x + q."""

    moves: Moves

    def prepare(self, inputs: Any) -> Any:
        return self.moves.prepare(inputs)

    def __call__(self, prepared: Any) -> Move:
        return self.moves(prepared)._replace(b=None)


def sample_prior(chain: Chain, key: PRNGKeyArray, count: int) -> Float[Array, "count d n"]:
    """`count` independent draws of the whole chain before any information."""
    d, dtype = chain.mean.shape[0], chain.mean.dtype
    move = chain.moves(chain.moves.prepare(chain.inputs))
    steps = as_array(move.A[0]).shape[-1]
    noise = jax.random.normal(key, (steps + 1, d, count), dtype)
    first = chain.mean[:, None] + mul(_cast(block_roots(chain.cov), dtype), noise[0])
    A, root = (_leading(_cast(x, dtype)) for x in (move.A, block_roots(move.Q)))
    b = None if move.b is None else _leading(move.b.astype(dtype))

    def step(x: Array, row: tuple[Blocks, Blocks, Array | None, Array]) -> tuple[Array, Array]:
        A, root, b, z = row
        ahead = mul(A, x) + mul(root, z)
        if b is not None:
            ahead = ahead + b[:, None]
        return ahead, ahead

    _, rest = jax.lax.scan(step, first, (A, root, b, noise[1:]))
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 2, 0).swapaxes(1, 2)


def sample(
    chain: Chain, info: Information, key: PRNGKeyArray, count: int, lanes: int | None = None, form: Form | None = None
) -> Float[Array, "count d n"]:
    """`count` independent draws of the whole chain given its information; precisions must be positive semidefinite."""
    of_prior, of_sites = jax.random.split(key)
    prior = sample_prior(chain, of_prior, count)
    f = prior if info.H is None else jnp.einsum("li,sin->sln", jnp.asarray(info.H, prior.dtype), prior)
    f = f if info.mix is None else jnp.einsum("lgn,sgn->sln", info.mix, f)
    root = semidefinite_root(info.precision[None])[0]
    e = jnp.einsum("lmn,smn->sln", root, jax.random.normal(of_sites, f.shape, f.dtype))
    centre = -f if info.centre is None else info.centre - f
    shift = -e if info.shift is None else info.shift - e
    centred = chain._replace(mean=jnp.zeros_like(chain.mean), moves=_Centred(chain.moves))

    def correction(shift: Float[Array, "l n"], centre: Float[Array, "l n"]) -> Float[Array, "d n"]:
        corrected = Information(info.precision, shift, centre, info.H, info.mix)
        found, _ = posterior(centred, corrected, lanes, form, mapped=True)
        return marginals_of(found, centred).mean

    return prior + jax.vmap(correction)(shift, centre).astype(prior.dtype)


def _cast(blocks: Blocks, dtype: Any) -> Blocks:
    return tuple(as_array(stack).astype(dtype) for stack in blocks)


def _leading(x: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), x)
