r"""One step of each recursion on a chain, in matrix notation, for every number system.

`alg` is `matrices`, `lanes_of_scalars` or `lanes_of_blocks`. Vectors are matrices with one column. At a state with
prediction N(m, P) and information (Λ, h, c) on f = H x, write G = H P Hᵀ, v = c − H m, B = (I + Λ G)⁻¹; then

    M = B Λ,   ξ = M v + B h,        filtered: m + P Hᵀ ξ,   P − P Hᵀ M H P
    log of the factor: −½ log det(I + Λ G) − ½ vᵀ M v + hᵀ (H m + G Λ-terms)

Nothing is inverted but I + Λ G, so Q = 0, P = 0 and Λ = 0 are ordinary values.

Where the information is on mixtures f = B g of the outputs g = H x, with a B of each state's own, H above is B H. Where
f has noise ζ too, R = Cov ζ is part of G, and V = Cov(q, ζ) of what ties f to the next state: T = A P Hᵀ + V.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from jaxtyping import Array

from thiele.chain.roots import Root, resolve

Matrix = Any


class Step(NamedTuple):
    """What happens at one state: its information, then the move to the next. Q and Λ are folded (upper triangles).
    `log` is a constant that the log-normaliser gets here, where the step stands for many; `root` is that of Λ, where it
    is resolved by it.
    """

    A: Matrix
    Q: Matrix
    b: Matrix | None
    Lam: Matrix
    h: Matrix | None
    c: Matrix | None
    mix: Matrix | None = None
    R: Matrix | None = None
    V: Matrix | None = None
    log: Array | None = None
    root: Root | None = None


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
    """H as the information at one state sees it: mixed, where it is on mixtures, which may be of the state itself."""
    if step.mix is None:
        return H
    return step.mix if H is None else alg.mul(step.mix, H)


def of_state(alg: ModuleType, H: Matrix | None, X: Matrix) -> Matrix:
    """H X, or X where the state itself is mixed."""
    return X if H is None else alg.mul(H, X)


def spread_of_output(alg: ModuleType, H: Matrix, step: Step, state: Filter) -> Matrix:
    """P Hᵀ."""
    return state.p if step.mix is None else alg.mul(state.P, alg.transpose(emission(alg, H, step)))


def output_variance(alg: ModuleType, H: Matrix, step: Step, p: Matrix) -> Matrix:
    """G, from the emission matrix as the information sees it."""
    G = alg.symmetric(alg.mul(H, p))
    return G if step.R is None else alg.add(G, alg.unfold(step.R))


def with_next(alg: ModuleType, step: Step, p: Matrix) -> Matrix:
    """T: the covariance of the next state's prediction with f."""
    Ap = alg.mul(step.A, p)
    return Ap if step.V is None else alg.add(Ap, step.V)


def gain(alg: ModuleType, H: Matrix, step: Step, m: Matrix, p: Matrix) -> Gain:
    """M, ξ and the log factor of one state's information."""
    H = emission(alg, H, step)
    G = output_variance(alg, H, step, p)
    mu = alg.mul(H, m)
    Lam = alg.unfold(step.Lam)
    M, Bh, log_det = alg.resolve(Lam, G, step.h) if step.root is None else resolve(step.root, Lam, G, step.h)
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
    return absorbed(alg, H, state, start, step, p, gain(alg, H, step, state.m, p))


def absorbed(
    alg: ModuleType, H: Matrix, state: Filter, start: Map | None, step: Step, p: Matrix, found: Gain
) -> tuple[Filter, Map | None]:
    """`forward` with the gain at hand."""
    M, xi, log = found
    T = with_next(alg, step, p)
    m = alg.add(alg.mul(step.A, state.m), alg.mul(T, xi))
    if step.b is not None:
        m = alg.add(m, step.b)
    P = alg.add(alg.sub(alg.congruence(step.A, state.P), alg.congruence(T, M)), alg.unfold(step.Q))
    log = state.log + log if step.log is None else state.log + (log + step.log)
    moved = Filter(m, P, alg.mul(P, alg.transpose(H)) if step.mix is None else None, log)
    if start is None:
        return moved, None
    f = start.f if step.mix is None else alg.mul(step.mix, start.f)
    ft = alg.transpose(f)
    Phi = alg.sub(alg.mul(step.A, start.Phi), alg.mul(alg.mul(T, M), f))
    return moved, Map(
        Phi=Phi,
        f=of_state(alg, H, Phi),
        h=alg.add(start.h, alg.mul(ft, xi)),
        J=alg.add(start.J, alg.congruence(ft, M)),
    )


def backward(alg: ModuleType, H: Matrix, after: Backward, step: Step, p: Matrix, gain: Gain) -> Backward:
    """Carry information from the next state's prediction to this one's, adding this state's own.

    With the closed loop W = A − T M H: r = Hᵀ ξ + Wᵀ r',  N = Hᵀ M H + Wᵀ N' W. Multiplied out, with Y = N' T and
    U = M Yᵀ A − ½ (M + M Tᵀ Y M) H, that is N = Aᵀ N' A − Hᵀ U − Uᵀ H: two products with blocks, the rest is thin.
    """
    H = emission(alg, H, step)
    At = alg.transpose(step.A)
    Ht = alg.transpose(H)
    r = alg.mul(At, after.r)
    N = alg.congruence(At, after.N)
    T = with_next(alg, step, p)
    Y = alg.mul(after.N, T)
    own = own_curvature(alg, gain.M, T, Y)
    U = alg.sub(alg.mul(gain.M, alg.transpose(alg.mul(At, Y))), alg.mul(alg.scale(0.5, own), H))
    HtU = alg.mul(Ht, U)
    xi = alg.sub(gain.xi, alg.mul(gain.M, alg.mul(alg.transpose(T), after.r)))
    return Backward(alg.add(r, alg.mul(Ht, xi)), alg.symmetric(alg.sub(alg.sub(N, HtU), alg.transpose(HtU))))


def own_curvature(alg: ModuleType, M: Matrix, T: Matrix, Y: Matrix) -> Matrix:
    """M + M Tᵀ Y M: minus the second derivative of the log-normaliser in the mean of f."""
    return alg.add(M, alg.congruence(M, alg.symmetric(alg.mul(alg.transpose(T), Y))))


class Loop(NamedTuple):
    """What `backward` does to later information (r', N'), as an affine map: r = own.r + Wᵀ r', N = own.N + Wᵀ N' W.

    Wᵀ is kept: a product with the transpose of what lies in memory is the slowest of a step.
    """

    Wt: Matrix
    own: Backward


def closed_loop(alg: ModuleType, H: Matrix, step: Step, p: Matrix, gain: Gain) -> Loop:
    """W = A − T M H, and what the state's own information adds."""
    H = emission(alg, H, step)
    Ht, MH = alg.transpose(H), alg.mul(gain.M, H)
    return Loop(
        alg.transpose(alg.sub(step.A, alg.mul(with_next(alg, step, p), MH))),
        Backward(alg.mul(Ht, gain.xi), alg.symmetric(alg.mul(Ht, MH))),
    )


def backward_in_loop(alg: ModuleType, after: Backward, loop: Loop) -> Backward:
    """`backward` with all that does not depend on later information done before."""
    r, N = alg.mul(loop.Wt, after.r), alg.congruence(loop.Wt, after.N)
    return Backward(alg.add(loop.own.r, r), alg.add(loop.own.N, N))


class Smoothed(NamedTuple):
    """f = H x given everything, N(f, V); with mixing also the mean g of what is mixed, and Cov(g, f). With noise of
    its own, also what the later information says: r' of the next state's prediction, and −∂r'/∂f as Z.
    """

    f: Matrix
    V: Matrix
    g: Matrix | None = None
    cross: Matrix | None = None
    r: Matrix | None = None
    Z: Matrix | None = None


def smoothed_output(alg: ModuleType, H: Matrix, step: Step, before: Filter, gain: Gain, after: Backward) -> Smoothed:
    """The output at one state: (r, N) carried back over the move, onto the filtered state."""
    if step.R is not None:
        return _smoothed_noisy_output(alg, H, step, before, gain, after)
    pt = alg.transpose(before.p)
    filtered = alg.add(before.m, alg.mul(before.p, gain.xi))
    # Cov(g, x) as filtered, then over the move to the next state.
    HP = pt if step.mix is None else of_state(alg, H, before.P)
    Hspread = alg.sub(HP, alg.mul(alg.mul(of_state(alg, H, before.p), gain.M), pt))
    carried = alg.mul(Hspread, alg.transpose(step.A))
    g = alg.add(of_state(alg, H, filtered), alg.mul(carried, after.r))
    if step.mix is None:
        V = alg.sub(alg.mul(Hspread, alg.transpose(H)), alg.congruence(carried, after.N))
        return Smoothed(g, alg.symmetric(V))
    of_f = alg.mul(step.mix, Hspread)
    ahead = alg.mul(alg.mul(step.mix, carried), after.N)
    seen = of_f if H is None else alg.mul(of_f, alg.transpose(H))
    cross = alg.sub(seen, alg.mul(ahead, alg.transpose(carried)))
    V = alg.mul(cross, alg.transpose(step.mix))
    return Smoothed(alg.mul(step.mix, g), alg.symmetric(V), g, alg.transpose(cross))


def _smoothed_noisy_output(
    alg: ModuleType, H: Matrix, step: Step, before: Filter, gain: Gain, after: Backward
) -> Smoothed:
    """The same where f has noise that it shares with the move: with E = I − M G and Z = N' T E,

    f = H m + G ξ + Eᵀ Tᵀ r',   V = G E − Eᵀ Tᵀ Z,   Cov(x, f) = p E − (P Aᵀ − p M Tᵀ) Z.
    """
    Hf, p, M, At = emission(alg, H, step), before.p, gain.M, alg.transpose(step.A)
    G, T = output_variance(alg, Hf, step, p), with_next(alg, step, p)
    Tt = alg.transpose(T)
    shrunk = lambda X: alg.sub(X, alg.mul(alg.mul(X, M), G))  # noqa: E731 - X E
    Z = shrunk(alg.mul(after.N, T))
    pulled = alg.mul(Tt, after.r)
    score = alg.sub(gain.xi, alg.mul(M, pulled))
    f = alg.add(alg.add(alg.mul(Hf, before.m), pulled), alg.mul(G, score))
    TtZ = alg.mul(Tt, Z)
    V = alg.sub(shrunk(G), alg.sub(TtZ, alg.mul(G, alg.mul(M, TtZ))))
    x = alg.add(before.m, alg.add(alg.mul(p, score), alg.mul(before.P, alg.mul(At, after.r))))
    cross = alg.sub(alg.add(shrunk(p), alg.mul(p, alg.mul(M, TtZ))), alg.mul(before.P, alg.mul(At, Z)))
    return Smoothed(f, alg.symmetric(V), of_state(alg, H, x), of_state(alg, H, cross), after.r, Z)
