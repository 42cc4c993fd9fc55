"""Linear algebra with every entry written out: the number system for small states in many lanes.

A matrix is a dictionary from (row, column) to an array that holds that entry for all lanes; a missing key is a
structural zero and costs nothing. Everything is elementwise over lanes, so a whole step of a recursion compiles to
plain vector loops, with no call to a matrix routine. Symmetric matrices are built from their upper triangle and share
the arrays below it: they cannot lose symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thiele.chain.types import Blocks
from thiele.tables import as_array, size, table

Matrix = dict[tuple[int, int], Array]


def mul(X: Matrix, Y: Matrix) -> Matrix:
    """X Y."""
    rows: dict[int, list[tuple[int, Array]]] = {}
    for (k, j), value in Y.items():
        rows.setdefault(k, []).append((j, value))
    out: Matrix = {}
    for (i, k), left in X.items():
        for j, right in rows.get(k, ()):
            _accumulate(out, (i, j), left * right)
    return out


def mul_within(X: Matrix, Y: Matrix, like: Matrix) -> Matrix:
    """The entries of X Y that lie where `like` has its own."""
    found = mul(X, Y)
    return {key: found[key] for key in like if key in found}


def _accumulate(out: Matrix, key: tuple[int, int], term: Array) -> None:
    out[key] = out[key] + term if key in out else term


def transpose(X: Matrix) -> Matrix:
    """Xᵀ."""
    return {(j, i): value for (i, j), value in X.items()}


def add(X: Matrix, Y: Matrix) -> Matrix:
    """X + Y."""
    out = dict(X)
    for key, value in Y.items():
        _accumulate(out, key, value)
    return out


def sub(X: Matrix, Y: Matrix) -> Matrix:
    """X − Y."""
    out = dict(X)
    for key, value in Y.items():
        out[key] = out[key] - value if key in out else -value
    return out


def scale(a: float | Array, X: Matrix) -> Matrix:
    """a X."""
    return {key: a * value for key, value in X.items()}


def symmetric(X: Matrix) -> Matrix:
    """The matrix whose upper triangle is X's."""
    upper = {key: value for key, value in X.items() if key[0] <= key[1]}
    return upper | {(j, i): value for (i, j), value in upper.items()}


def congruence(A: Matrix, P: Matrix) -> Matrix:
    """A P Aᵀ, upper triangle only, then mirrored."""
    AP = mul(A, P)
    out: Matrix = {}
    for (i, k), left in AP.items():
        for (j, l), right in A.items():
            if k == l and i <= j:
                _accumulate(out, (i, j), left * right)
    return symmetric(out)


def resolve(Lam: Matrix, G: Matrix, h: Matrix | None) -> tuple[Matrix, Matrix, Array]:
    """With B = (I + Λ G)⁻¹: B Λ (symmetric), B h, log det(I + Λ G), for at most three outputs.

    Two by Cayley and Hamilton: det(I + Λ G) = 1 + tr Λ G + det Λ det G and B Λ = (Λ + det Λ adj G) / det(I + Λ G), sums
    of what is not negative. Elimination would divide by the pivots of a matrix that is not symmetric, which may be
    anything. Three: `_resolve_three`.
    """
    outputs = 1 + max(i for i, _ in G)
    product = mul(Lam, G)
    x = lambda i, j: product.get((i, j), 0.0)  # noqa: E731
    if outputs == 1:
        det = 1.0 + product[0, 0]
        return {(0, 0): Lam[0, 0] / det}, {key: value / det for key, value in (h or {}).items()}, jnp.log(det)
    if outputs == 3:
        return _resolve_three(Lam, G, h)
    if outputs > 3:
        raise NotImplementedError(f"lanes of scalars have at most three outputs, got {outputs}")
    volume = _det(Lam)
    det = 1.0 + x(0, 0) + x(1, 1) + volume * _det(G)
    upper = {(0, 0): G[1, 1], (1, 1): G[0, 0], **({(0, 1): -G[0, 1]} if (0, 1) in G else {})}
    both = add({key: value for key, value in Lam.items() if key[0] <= key[1]}, scale(volume, upper))
    BLam = symmetric({key: value / det for key, value in both.items()})
    Bh: Matrix = {}
    if h:
        first, second = (h.get((i, 0), jnp.zeros_like(det)) for i in range(2))
        Bh = {
            (0, 0): (first + x(1, 1) * first - x(0, 1) * second) / det,
            (1, 0): (second + x(0, 0) * second - x(1, 0) * first) / det,
        }
    return BLam, Bh, jnp.log(det)


def _det(X: Matrix) -> Array | float:
    """Of a symmetric matrix of two rows."""
    diagonal = X.get((0, 0), 0.0) * X.get((1, 1), 0.0)
    return diagonal - X[0, 1] ** 2 if (0, 1) in X else diagonal


def _resolve_three(Lam: Matrix, G: Matrix, h: Matrix | None) -> tuple[Matrix, Matrix, Array]:
    """`resolve` by minors. With cofactors K of Λ and C of G, and X = Λ G,

        det(I + X) = 1 + tr X + tr K C + det Λ det G,
        adj(I + X) Λ = Λ + mix(K, G) + det Λ C,    adj(I + X) = I + tr X I − X + C K,

    where mix(K, G)ᵢⱼ = Σ εᵢₘₖ εⱼₙₗ Kₖₗ Gₘₙ is tr X Λ − X Λ without its cancellation.
    """
    K, C, X = _cofactors(Lam), _cofactors(G), mul(Lam, G)
    trace = _sum(X[i, i] for i in range(3) if (i, i) in X)
    volume = _sum(Lam[0, j] * K[0, j] for j in range(3) if (0, j) in Lam)
    of_G = _sum(G[0, j] * C[0, j] for j in range(3))
    det = 1.0 + trace + _sum(K[key] * C[key] for key in K) + volume * of_G
    upper = [(i, j) for i in range(3) for j in range(i, 3)]
    both = {key: _mixed(K, G, *key) + volume * C[key] + Lam.get(key, 0.0) for key in upper}
    BLam = symmetric({key: value / det for key, value in both.items()})
    if not h:
        return BLam, {}, jnp.log(det)
    adjoint = add(sub(scale(1.0 + trace, h), mul(X, h)), mul(C, mul(K, h)))
    return BLam, {key: value / det for key, value in adjoint.items()}, jnp.log(det)


def _cofactors(X: Matrix) -> Matrix:
    """Of a symmetric matrix of three rows."""
    x = lambda i, j: X.get((i % 3, j % 3), 0.0)  # noqa: E731
    return symmetric(
        {
            (i, j): jnp.asarray(x(i + 1, j + 1) * x(i + 2, j + 2) - x(i + 1, j + 2) * x(i + 2, j + 1))
            for i in range(3)
            for j in range(i, 3)
        }
    )


def _mixed(K: Matrix, G: Matrix, i: int, j: int) -> Array:
    """Σ εᵢₘₖ εⱼₙₗ Kₖₗ Gₘₙ: the two orders of the other indices have opposite signs."""
    k = lambda a, b: K[(i + a) % 3, (j + b) % 3]  # noqa: E731
    g = lambda a, b: G[(i + a) % 3, (j + b) % 3]  # noqa: E731
    return k(2, 2) * g(1, 1) - k(2, 1) * g(1, 2) - k(1, 2) * g(2, 1) + k(1, 1) * g(2, 2)


def _sum(terms: Iterator[Array]) -> Array:
    return sum(terms, start=jnp.zeros(()))


def scalar(X: Matrix) -> Array | float:
    """The entry of a 1 × 1 matrix; a structural zero is 0."""
    return X.get((0, 0), 0.0)


def selection(H: np.ndarray, dtype: jnp.dtype) -> Matrix:
    """The emission matrix as this number system writes it: numbers, not arrays, of which a kernel captures none."""
    H = np.asarray(H, dtype)
    return {(int(i), int(j)): H[i, j] for i, j in np.argwhere(H)}


def unpack(array: Array | Blocks | None) -> Matrix | None:
    """Split an array (rows, columns, ...) or stacks of blocks into entries."""
    if array is None:
        return None
    if not isinstance(array, tuple):
        return {(i, j): array[i, j] for i in range(array.shape[0]) for j in range(array.shape[1])}
    return {key: value for key, value in _entries(array) if value is not None}


def _entries(blocks: Blocks) -> Iterator[tuple[tuple[int, int], Array | None]]:
    start = 0
    for stack in blocks:
        g, b = size(stack)
        for i, j, k in np.ndindex(b, b, g):
            if isinstance(stack, tuple):
                value = None if stack[i][j] is None else stack[i][j][k]
            else:
                value = stack[k, i, j]
            yield (start + k * b + i, start + k * b + j), value
        start += g * b


def pack(X: Matrix, shape: tuple[int, int], batch: tuple[int, ...]) -> Array:
    """The inverse of `unpack` for a dense matrix; structural zeros become zeros."""
    some = next(iter(X.values()))
    zero = jnp.zeros(batch, some.dtype)
    entries = [jnp.broadcast_to(X.get(key, zero), batch) for key in np.ndindex(*shape)]
    return jnp.stack(entries).reshape(*shape, *batch)


def pack_blocks(X: Matrix, like: Blocks) -> Blocks:
    """The blocks of X that lie where `like` has its own, in the same form."""
    entries, out = _entries(like), []
    for stack in like:
        g, b = size(stack)
        found = [[[next(entries) for _ in range(g)] for _ in range(b)] for _ in range(b)]
        rows = [[None if x[0][1] is None else jnp.stack([X[key] for key, _ in x]) for x in row] for row in found]
        out.append(table(rows) if isinstance(stack, tuple) else as_array(table(rows)))
    return tuple(out)


def fold(X: Matrix) -> Matrix:
    """A symmetric matrix as a loop carries it: its upper triangle."""
    return {key: value for key, value in X.items() if key[0] <= key[1]}


def unfold(X: Matrix) -> Matrix:
    """The inverse of `fold`."""
    return symmetric(X)


def in_loops(A: Any) -> bool:
    """Never: in registers a product costs less than reading d² numbers."""
    return False


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of one lane at one step, applied to all: it is elementwise already."""
    return function


def walk(step: Callable[..., Any], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`jax.lax.scan` along the last but one axis of `xs`, in every lane of the last axis."""
    return jax.lax.scan(step, carry, by_step(xs), reverse=reverse)


def by_step(xs: Any) -> Any:
    """The steps first, as loops go along them."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, -2, 0), xs)
