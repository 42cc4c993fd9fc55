r"""One step of each recursion on a chain, in matrix notation, for every number system.

`alg` is `matrices`, `lanes_of_scalars` or `lanes_of_blocks`. Vectors are matrices with one column. At a state with
prediction N(m, P) and information (Λ, h, c) on f = H x, write G = H P Hᵀ, v = c − H m, B = (I + Λ G)⁻¹; then

    M = B Λ,   ξ = M v + B h,        filtered: m + P Hᵀ ξ,   P − P Hᵀ M H P
    log of the factor: −½ log det(I + Λ G) − ½ vᵀ M v + hᵀ (H m + G Λ-terms)

Nothing is inverted but I + Λ G, so Q = 0, P = 0 and Λ = 0 are ordinary values.

Where the information is on mixtures f = B g of the outputs g = H x, with a B of each state's own, H above is B H.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from jaxtyping import Array

Matrix = Any


class Step(NamedTuple):
    """What happens at one state: its information, then the move to the next. Q and Λ are folded (upper triangles).
    `log` is a constant that the log-normaliser gets here, where the step stands for many.
    """

    A: Matrix
    Q: Matrix
    b: Matrix | None
    Lam: Matrix
    h: Matrix | None
    c: Matrix | None
    mix: Matrix | None = None
    log: Array | None = None


class Filter(NamedTuple):
    """The prediction N(m, P) of a state from all before it. `p` = P Hᵀ is carried, not recomputed: the compiler would
    otherwise write its sum into every entry of the next covariance. With mixing it depends on the state, and is None
    while it is carried.
    """

    m: Matrix
    P: Matrix
    p: Matrix
    log: Array


class Map(NamedTuple):
    """How that prediction depends on the state at the start of the lane: m + Φ x₀, and the information (h, J) on x₀
    that the lane has gathered. `f` = H Φ.
    """

    Phi: Matrix
    f: Matrix
    h: Matrix
    J: Matrix


class Gain(NamedTuple):
    """The effect of one state's information on its prediction."""

    M: Matrix
    xi: Matrix
    log: Array


class Backward(NamedTuple):
    """Information from a state's own data and all after it, relative to the state's prediction: the gradient of the
    log-normaliser in m is r, in P it is ½ (r rᵀ − N).
    """

    r: Matrix
    N: Matrix


def emission(alg: ModuleType, H: Matrix, step: Step) -> Matrix:
    """H as the information at one state sees it: mixed, where it is on mixtures."""
    return H if step.mix is None else alg.mul(step.mix, H)


def spread_of_output(alg: ModuleType, H: Matrix, step: Step, state: Filter) -> Matrix:
    """P Hᵀ."""
    return state.p if step.mix is None else alg.mul(state.P, alg.transpose(emission(alg, H, step)))


def gain(alg: ModuleType, H: Matrix, step: Step, m: Matrix, p: Matrix) -> Gain:
    """M, ξ and the log factor of one state's information."""
    H = emission(alg, H, step)
    G = alg.symmetric(alg.mul(H, p))
    mu = alg.mul(H, m)
    M, Bh, log_det = alg.resolve(alg.unfold(step.Lam), G, step.h)
    v = alg.scale(-1.0, mu) if step.c is None else alg.sub(step.c, mu)
    Mv = alg.mul(M, v)
    log = -0.5 * log_det - 0.5 * alg.scalar(alg.mul(alg.transpose(v), Mv))
    if step.h is None:
        return Gain(M, Mv, log)
    # log ∫ N(f; μ, G) exp(h·f − ½ (f−c)ᵀ Λ (f−c)) df: the part that h adds is h·(μ + G (Mv + ½ B h)).
    inner = alg.add(mu, alg.mul(G, alg.add(Mv, alg.scale(0.5, Bh))))
    return Gain(M, alg.add(Mv, Bh), log + alg.scalar(alg.mul(alg.transpose(step.h), inner)))


def forward(alg: ModuleType, H: Matrix, state: Filter, start: Map | None, step: Step) -> tuple[Filter, Map | None]:
    """Absorb a state's information, then predict the next state."""
    p = spread_of_output(alg, H, step, state)
    M, xi, log = gain(alg, H, step, state.m, p)
    Ap = alg.mul(step.A, p)
    ApM = alg.mul(Ap, M)
    m = alg.add(alg.mul(step.A, state.m), alg.mul(Ap, xi))
    if step.b is not None:
        m = alg.add(m, step.b)
    P = alg.add(alg.sub(alg.congruence(step.A, state.P), alg.congruence(Ap, M)), alg.unfold(step.Q))
    log = state.log + log if step.log is None else state.log + (log + step.log)
    moved = Filter(m, P, alg.mul(P, alg.transpose(H)) if step.mix is None else None, log)
    if start is None:
        return moved, None
    f = start.f if step.mix is None else alg.mul(step.mix, start.f)
    ft = alg.transpose(f)
    Phi = alg.sub(alg.mul(step.A, start.Phi), alg.mul(ApM, f))
    return moved, Map(
        Phi=Phi,
        f=alg.mul(H, Phi),
        h=alg.add(start.h, alg.mul(ft, xi)),
        J=alg.add(start.J, alg.congruence(ft, M)),
    )


def backward(alg: ModuleType, H: Matrix, after: Backward, step: Step, p: Matrix, gain: Gain) -> Backward:
    """Carry information from the next state's prediction to this one's, adding this state's own.

    With closed-loop E = I − Hᵀ M pᵀ: r = Hᵀ ξ + E Aᵀ r',  N = Hᵀ M H + E Aᵀ N' A Eᵀ. Multiplied out, with u = Aᵀ N' A p
    and V = M uᵀ − ½ (M + M pᵀ u M) H, that is N = Aᵀ N' A − Hᵀ V − Vᵀ H: two products with blocks, the rest is thin.
    """
    H = emission(alg, H, step)
    At = alg.transpose(step.A)
    Ht = alg.transpose(H)
    r = alg.mul(At, after.r)
    N = alg.congruence(At, after.N)
    ut = alg.transpose(alg.mul(At, alg.mul(after.N, alg.mul(step.A, p))))
    own = alg.add(gain.M, alg.congruence(gain.M, alg.symmetric(alg.mul(ut, p))))
    V = alg.sub(alg.mul(gain.M, ut), alg.mul(alg.scale(0.5, own), H))
    HtV = alg.mul(Ht, V)
    xi = alg.sub(gain.xi, alg.mul(gain.M, alg.mul(alg.transpose(p), r)))
    return Backward(alg.add(r, alg.mul(Ht, xi)), alg.symmetric(alg.sub(alg.sub(N, HtV), alg.transpose(HtV))))


class Loop(NamedTuple):
    """What `backward` does to later information (r', N'), as an affine map: r = own.r + Wᵀ r', N = own.N + Wᵀ N' W."""

    W: Matrix
    own: Backward


def closed_loop(alg: ModuleType, H: Matrix, step: Step, p: Matrix, gain: Gain) -> Loop:
    """W = A Eᵀ = A − A p M H, and what the state's own information adds."""
    H = emission(alg, H, step)
    Ht, MH = alg.transpose(H), alg.mul(gain.M, H)
    return Loop(
        alg.sub(step.A, alg.mul(alg.mul(step.A, p), MH)),
        Backward(alg.mul(Ht, gain.xi), alg.symmetric(alg.mul(Ht, MH))),
    )


def backward_in_loop(alg: ModuleType, after: Backward, loop: Loop) -> Backward:
    """`backward` with all that does not depend on later information done before."""
    Wt = alg.transpose(loop.W)
    return Backward(alg.add(loop.own.r, alg.mul(Wt, after.r)), alg.add(loop.own.N, alg.congruence(Wt, after.N)))


class Smoothed(NamedTuple):
    """f = H x given everything, N(f, V); with mixing also the mean g of what is mixed, and Cov(g, f)."""

    f: Matrix
    V: Matrix
    g: Matrix | None = None
    cross: Matrix | None = None


def smoothed_output(alg: ModuleType, H: Matrix, step: Step, before: Filter, gain: Gain, after: Backward) -> Smoothed:
    """The output at one state: (r, N) carried back over the move, onto the filtered state."""
    pt = alg.transpose(before.p)
    filtered = alg.add(before.m, alg.mul(before.p, gain.xi))
    # Cov(g, x) as filtered, then over the move to the next state.
    HP = pt if step.mix is None else alg.mul(H, before.P)
    Hspread = alg.sub(HP, alg.mul(alg.mul(alg.mul(H, before.p), gain.M), pt))
    carried = alg.mul(Hspread, alg.transpose(step.A))
    g = alg.add(alg.mul(H, filtered), alg.mul(carried, after.r))
    if step.mix is None:
        V = alg.sub(alg.mul(Hspread, alg.transpose(H)), alg.congruence(carried, after.N))
        return Smoothed(g, alg.symmetric(V))
    of_f = alg.mul(step.mix, Hspread)
    ahead = alg.mul(alg.mul(step.mix, carried), after.N)
    cross = alg.sub(alg.mul(of_f, alg.transpose(H)), alg.mul(ahead, alg.transpose(carried)))
    V = alg.mul(cross, alg.transpose(step.mix))
    return Smoothed(alg.mul(step.mix, g), alg.symmetric(V), g, alg.transpose(cross))
