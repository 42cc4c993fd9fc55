"""Products, solving, factors and eigenvalues of matrices of a few rows, number by number.

Under `vmap` over data or segments each number is a vector along them, and all of it plain loops: a call of a library
for each of a thousand matrices of two rows costs many times the arithmetic. Larger matrices are left to the library.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Float

# With more rows it takes longer to compile than it saves with a few hundred data.
LARGEST = 2
# Of a positive definite matrix there is less to write, and of a product least.
LARGEST_INVERSE, LARGEST_PRODUCT = 4, 5


def _eliminated(rows: list[list[Array]]) -> tuple[list[list[Array]], Array]:
    """X = A⁻¹ R and log |det A| from the rows of [A R], by elimination; the largest of each column is its pivot."""
    n = len(rows)
    for k in range(n):
        for i in range(k + 1, n):
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            both = list(zip(rows[k], rows[i], strict=True))
            rows[k] = [jnp.where(larger, low, high) for high, low in both]
            rows[i] = [jnp.where(larger, high, low) for high, low in both]
        for i in range(k + 1, n):
            share = rows[i][k] / rows[k][k]
            rows[i] = [
                *rows[i][: k + 1],
                *(x - share * y for x, y in zip(rows[i][k + 1 :], rows[k][k + 1 :], strict=True)),
            ]
    found: list[list[Array]] = []
    for i in reversed(range(n)):
        right = rows[i][n:]
        for k, above in enumerate(found, start=i + 1):
            right = [x - rows[i][k] * y for x, y in zip(right, above, strict=True)]
        found.insert(0, [x / rows[i][i] for x in right])
    return found, sum((jnp.log(jnp.abs(rows[i][i])) for i in range(1, n)), start=jnp.log(jnp.abs(rows[0][0])))


def solve(A: Float[Array, "n n"], R: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, ""]]:
    """A⁻¹ R and log |det A|."""
    n = A.shape[0]
    if n > LARGEST:
        factors = lu_factor(A)
        return lu_solve(factors, R), jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors[0]))))
    found, log_det = _eliminated(_numbers(jnp.concatenate([A, R], axis=1)))
    return jnp.stack([jnp.stack(row) for row in found]), log_det


def eliminated(A: Float[Array, "n n"], R: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, ""]]:
    """The same by plain arithmetic on whole rows, which one system in a loop is soonest done by."""
    n = A.shape[0]
    rows = list(jnp.concatenate([A, R], axis=1))
    for k in range(n):
        for i in range(k + 1, n):
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            rows[k], rows[i] = (jnp.where(larger, *pair) for pair in ((rows[i], rows[k]), (rows[k], rows[i])))
        for i in range(k + 1, n):
            rows[i] = rows[i] - rows[i][k] / rows[k][k] * rows[k]
    found: list[Array] = []
    for i in reversed(range(n)):
        right = rows[i][n:]
        for k, above in enumerate(found, start=i + 1):
            right = right - rows[i][k] * above
        found.insert(0, right / rows[i][i])
    return jnp.stack(found), jnp.log(jnp.abs(jnp.stack([row[i] for i, row in enumerate(rows)]))).sum()


def cholesky(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower factor of a positive definite matrix; not a number where it is not one."""
    return jnp.linalg.cholesky(A) if A.shape[0] > LARGEST else lower(cholesky_columns(A))


def product(X: Float[Array, "*batch i k"], Y: Float[Array, "*batch k j"]) -> Float[Array, "*batch i j"]:
    """X Y of many small matrices."""
    if X.shape[-1] > LARGEST_PRODUCT:
        return X @ Y
    return sum((X[..., :, k, None] * Y[..., None, k, :] for k in range(1, X.shape[-1])), X[..., :1] * Y[..., :1, :])


def inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """A⁻¹ and log det A of a positive definite matrix; not a number where it is not one."""
    n = A.shape[0]
    if n > LARGEST_INVERSE:
        root = jnp.linalg.cholesky(A)
        half = lax.linalg.triangular_solve(root, jnp.eye(n, dtype=A.dtype), left_side=True, lower=True)
        return half.T @ half, 2.0 * jnp.sum(jnp.log(jnp.diagonal(root)))
    columns = cholesky_columns(A)
    L = {(i, j): columns[j][i - j] for j in range(n) for i in range(j, n)}
    half = {}
    for j in range(n):
        for i in range(j, n):
            rest = sum((L[i, k] * half[k, j] for k in range(j, i)), start=-float(i == j))
            half[i, j] = -rest / L[i, i]
    product = lambda i, j: sum(half[k, i] * half[k, j] for k in range(max(i, j), n))  # noqa: E731
    entries = {(i, j): product(i, j) for i in range(n) for j in range(i + 1)}
    rows = [jnp.stack([entries[max(i, j), min(i, j)] for j in range(n)]) for i in range(n)]
    return jnp.stack(rows), 2.0 * sum(jnp.log(L[i, i]) for i in range(n))


def cholesky_columns(
    A: Float[Array, "n n"], least: Callable[[Array], Array] | None = None
) -> list[list[Float[Array, ""]]]:
    """The lower factor as numbers: column j holds its entries from the diagonal down. No pivot is below `least` of its
    diagonal entry.
    """
    entries, n, columns = _numbers(A), A.shape[0], []
    rest = {(i, j): entries[i][j] for i in range(n) for j in range(i + 1)}
    for j in range(n):
        pivot = rest[j, j] if least is None else jnp.maximum(rest[j, j], least(entries[j][j]))
        root = jnp.sqrt(pivot)
        below = [rest[i, j] / root for i in range(j + 1, n)]
        for i in range(j + 1, n):
            for k in range(j + 1, i + 1):
                rest[i, k] = rest[i, k] - below[i - j - 1] * below[k - j - 1]
        columns.append([root, *below])
    return columns


def lower(columns: list[list[Float[Array, ""]]]) -> Float[Array, "n n"]:
    """Such columns as a matrix."""
    size = len(columns)
    return jnp.stack([jnp.pad(jnp.stack(column), (size - len(column), 0)) for column in columns], axis=1)


def eigh(A: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues of a symmetric matrix, the smallest first, and its eigenvectors as columns; of two rows by the one
    rotation of Jacobi, with a derivative that is finite where the two are the same.
    """
    if A.shape[0] != 2:
        return jnp.linalg.eigh(A)
    (a, _), (b, c) = _numbers(A)
    half = 0.5 * (a - c)
    square = half**2 + b**2
    apart = square > 0.0
    length = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
    tangent = jnp.where(apart, b / jnp.where(apart, half + jnp.where(half >= 0.0, length, -length), 1.0), 0.0)
    cos = 1.0 / jnp.sqrt(1.0 + tangent**2)
    sin = tangent * cos
    first, second = a + tangent * b, c - tangent * b
    values, vectors = jnp.stack([second, first]), jnp.stack([jnp.stack([-sin, cos]), jnp.stack([cos, sin])])
    ascending = second <= first
    return jnp.where(ascending, values, values[::-1]), jnp.where(ascending, vectors, vectors[:, ::-1])


def _numbers(X: Float[Array, "n m"]) -> list[list[Array]]:
    # Split, not indexed: the derivative is then one concatenation, where that of each index is an array of zeros.
    n, m = X.shape
    numbers = [jnp.reshape(x, ()) for x in lax.split(jnp.reshape(X, (-1,)), (1,) * (n * m))]
    return [numbers[i * m : (i + 1) * m] for i in range(n)]
