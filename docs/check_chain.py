"""The formulas of docs/chain.md, in a few lines of numpy, against dense algebra and against the library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thiele.chain import Chain, Information, Move, Tabulated, log_normaliser, posterior

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(0)
D, N = 3, 6
H = np.array([[1.0, 0.0, 1.0]])


def report(claim: str, *differences: np.ndarray) -> None:
    """The largest entry of all differences."""
    worst = max(float(np.max(np.abs(x))) for x in differences)
    assert worst < 1e-9, (claim, worst)
    print(f"{claim}: {worst:.1e}")


def problem() -> tuple[np.ndarray, ...]:
    """P0, A, Q, Λ, c: the last noise is zero and one state has no information, as ordinary cases."""
    roots = RNG.normal(size=(N, D, D))
    P0, Q = roots[0] @ roots[0].T, np.einsum("nij,nkj->nik", roots[1:], roots[1:])
    Q[-1] = 0.0
    precision = RNG.uniform(0.5, 2.0, size=N)
    precision[2] = 0.0
    return P0, 0.5 * RNG.normal(size=(N - 1, D, D)), Q, precision, RNG.normal(size=N)


def dense(P0: np.ndarray, A: np.ndarray, Q: np.ndarray, precision: np.ndarray, c: np.ndarray) -> tuple:
    """Mean, covariance and log-normaliser of all states at once."""
    K = np.zeros((N, N, D, D))
    K[0, 0] = P0
    for i in range(N - 1):
        for j in range(i + 1):
            K[i + 1, j] = A[i] @ K[i, j]
            K[j, i + 1] = K[i + 1, j].T
        K[i + 1, i + 1] = A[i] @ K[i, i] @ A[i].T + Q[i]
    K = K.transpose(0, 2, 1, 3).reshape(N * D, N * D)
    G = np.kron(np.eye(N), H)
    S = np.eye(N) + np.diag(precision) @ G @ K @ G.T
    B = np.linalg.solve(S, np.diag(precision))
    log = -0.5 * np.linalg.slogdet(S)[1] - 0.5 * c @ B @ c
    return K @ G.T @ B @ c, K - K @ G.T @ B @ G @ K, log


def main() -> None:
    """Both passes as the page writes them."""
    P0, A, Q, precision, c = problem()
    mean, cov, log_exact = dense(P0, A, Q, precision, c)
    m, P, log, seen = np.zeros((D, 1)), P0, 0.0, []
    for i in range(N):
        p = P @ H.T
        G, v = (H @ p).item(), c[i] - (H @ m).item()
        M = precision[i] / (1 + precision[i] * G)
        log += -0.5 * np.log(1 + precision[i] * G) - 0.5 * v * M * v
        seen.append((m, P, p, M, M * v))
        m, P = m + p * M * v, P - p @ p.T * M
        if i < N - 1:
            m, P = A[i] @ m, A[i] @ P @ A[i].T + Q[i]
    report("log-normaliser", log - log_exact)

    r, W = np.zeros((D, 1)), np.zeros((D, D))
    moments, pairs = [], []
    for i in reversed(range(N)):
        m, P, p, M, xi = seen[i]
        if i < N - 1:
            D_ = r @ r.T - W  # attached to the prediction of state i + 1
            filtered, spread = m + p * xi, P - p @ p.T * M
            pairs.append((r @ filtered.T + D_ @ A[i] @ spread, 0.5 * D_))
            E = np.eye(D) - H.T @ p.T * M
            r, W = H.T * xi + E @ A[i].T @ r, H.T @ H * M + E @ A[i].T @ W @ A[i] @ E.T
        else:
            r, W = H.T * xi, H.T @ H * M
        moments.append((m + P @ r, P - P @ W @ P))
    moments, pairs = moments[::-1], pairs[::-1]
    blocks = [slice(i * D, (i + 1) * D) for i in range(N)]
    report("mean m + P r", *(x[0][:, 0] - mean[b] for x, b in zip(moments, blocks, strict=True)))
    report("covariance P - P N P", *(x[1] - cov[b, b] for x, b in zip(moments, blocks, strict=True)))

    trailing = lambda x: jnp.asarray(np.moveaxis(x, 0, -1))  # noqa: E731
    info = Information(jnp.asarray(precision)[None, None], None, jnp.asarray(c)[None], H)

    def value(A: jax.Array, Q: jax.Array) -> jax.Array:
        chain = Chain(jnp.zeros(D), (jnp.asarray(P0)[None],), Tabulated(), Move((A[None],), (Q[None],)))
        return log_normaliser(chain, info)

    by_A, by_Q = jax.grad(value, argnums=(0, 1))(trailing(A), trailing(Q))
    report("gradient in A", np.moveaxis(by_A, -1, 0) - np.array([x[0] for x in pairs]))
    report("gradient in Q", np.moveaxis(by_Q, -1, 0) - np.array([x[1] for x in pairs]))
    i, j, h = 1, 2, 1e-5
    up, down = A.copy(), A.copy()
    up[0, i, j] += h
    down[0, i, j] -= h
    slope = (dense(P0, up, Q, precision, c)[2] - dense(P0, down, Q, precision, c)[2]) / (2 * h)
    report("gradient in A against a difference", np.asarray(slope - pairs[0][0][i, j]) * (abs(slope) > 1e-3))

    chain = Chain(jnp.zeros(D), (jnp.asarray(P0)[None],), Tabulated(), Move((trailing(A)[None],), (trailing(Q)[None],)))
    for lanes in (1, 2, 3):
        found, value_ = posterior(chain, info, lanes)
        report(f"the library, lanes={lanes}", value_ - log_exact, found.r0 - r[:, 0], found.N0 - W)


if __name__ == "__main__":
    main()
