"""Small chains that cover the ways in which one can be built; a new entry inherits every test."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thiele.chain import Chain, Information, Move, PairInformation, Tabulated


class Case(NamedTuple):
    """`blocks` are sizes of blocks, `outputs` None for information on the whole state; `but` alters the result."""

    n: int = 7
    blocks: tuple[int, ...] = (2,)
    outputs: int | None = 1
    shift: bool = True
    centre: bool = True
    offset: bool = True
    but: object = None


def build(case, seed=0):
    """The chain and the information of a case."""
    rng = np.random.default_rng(seed)
    d, n = sum(case.blocks), case.n

    def semidefinite(size, *batch):
        root = rng.normal(size=(size, size, *batch))
        return jnp.asarray(np.einsum("ik...,jk...->ij...", root, root))

    A = tuple(jnp.asarray(0.5 * rng.normal(size=(1, b, b, n - 1))) for b in case.blocks)
    Q = tuple(semidefinite(b, n - 1)[None] for b in case.blocks)
    cov = tuple(semidefinite(b)[None] for b in case.blocks)
    offset = jnp.asarray(rng.normal(size=(d, n - 1))) if case.offset else None
    chain = Chain(jnp.asarray(rng.normal(size=d)), cov, Tabulated(), Move(A, Q, offset))
    width = d if case.outputs is None else case.outputs
    H = None if case.outputs is None else np.stack([np.arange(d) % width == l for l in range(width)]).astype(float)
    vector = lambda wanted: jnp.asarray(rng.normal(size=(width, n))) if wanted else None  # noqa: E731
    info = Information(semidefinite(width, n), vector(case.shift), vector(case.centre), H)
    return case.but(chain, info) if case.but else (chain, info)


def build_pairs(case, seed=1):
    """Information on the pairs of neighbours."""
    rng = np.random.default_rng(seed)
    size = 2 * sum(case.blocks)
    root = rng.normal(size=(size, size, case.n - 1))
    shift = rng.normal(size=(size, case.n - 1))
    return PairInformation(jnp.asarray(np.einsum("ikn,jkn->ijn", root, root)), jnp.asarray(shift))


def without_information(*states):
    def change(chain, info):
        keep = jnp.ones(info.precision.shape[-1]).at[jnp.asarray(states)].set(0.0)
        return chain, info._replace(precision=info.precision * keep, shift=info.shift * keep)

    return change


def deterministic(chain, info):
    return chain._replace(inputs=chain.inputs._replace(Q=jax.tree.map(jnp.zeros_like, chain.inputs.Q))), info


def singular_start(variance):
    """Only the direction (1, 1) of the first state varies, or nothing does."""

    def change(chain, info):
        return chain._replace(cov=(jnp.full((1, 2, 2), variance),)), info

    return change


def sharp(scale):
    def change(chain, info):
        return chain, info._replace(precision=scale * info.precision)

    return change


CASES = {
    "one block": Case(),
    "missing": Case(but=without_information(0, 3, 6)),
    "missing stretch": Case(but=without_information(1, 2, 3, 4, 5)),
    "nothing known": Case(but=without_information(0, 1, 2, 3, 4, 5, 6)),
    "deterministic": Case(but=deterministic),
    "singular start": Case(but=singular_start(1.0)),
    "certain start": Case(but=singular_start(0.0)),
    "sharp": Case(but=sharp(1e5)),
    "vague": Case(but=sharp(1e-12)),
    "blocks, no shift": Case(blocks=(2, 1), shift=False),
    "two outputs, no centre, no offset": Case(n=5, blocks=(1, 1), outputs=2, centre=False, offset=False),
    "information on the state": Case(n=5, outputs=None),
    "inducing states": Case(n=5, outputs=None, centre=False),
    "inducing states, some without data": Case(n=5, outputs=None, centre=False, but=without_information(0, 3, 4)),
    "inducing states, sharp": Case(n=5, outputs=None, centre=False, but=sharp(1e3)),
    "inducing states, singular start": Case(n=5, outputs=None, centre=False, but=singular_start(1.0)),
    "one inducing state": Case(n=1, outputs=None, centre=False),
    "large state": Case(n=5, blocks=(4, 5)),
    "large state, three outputs": Case(n=3, blocks=(9,), outputs=3),
    "one state": Case(n=1),
    "two states": Case(n=2),
}
# Cases of the shapes of the first share its compiled functions, so all schedules are run on them.
LANES = {
    "blocks, no shift": (3,),
    "two outputs, no centre, no offset": (2,),
    "information on the state": (2,),
    "inducing states": (1, 2),
    "inducing states, some without data": (1, 2),
    "inducing states, sharp": (1, 2),
    "inducing states, singular start": (1, 2),
    "one inducing state": (1,),
    "large state": (1,),
    "large state, three outputs": (2,),
    "one state": (1,),
    "two states": (2,),
}
SCHEDULES = [(name, lanes, "covariance") for name in CASES for lanes in LANES.get(name, (1, 3, 5))]
SCHEDULES += [(name, 1, "square_root") for name in CASES]
# The square-root form treats these as it treats the others, and takes long to compile for each shape.
SLOW = {"two outputs, no centre, no offset", "information on the state", "large state", "two states"}
SLOW |= {name for name in CASES if "inducing" in name}
