"""The numerical checks of docs/paper-notes.md: the error of each corrected formula, then of the one in print."""

from __future__ import annotations

import numpy as np

import thiele as th

RNG = np.random.default_rng(0)


def report(claim: str, difference: float, printed: float | None = None, tolerance: float = 1e-12) -> None:
    """`difference` is the error of the corrected formula; `printed` that of the formula in the paper."""
    assert difference < tolerance, (claim, difference)
    print(f"{claim}: {difference:.1e}" + ("" if printed is None else f" (as printed: {printed:.1e})"))


def spd(d: int) -> np.ndarray:
    """A random positive definite matrix."""
    G = RNG.normal(size=(d, d))
    return G @ G.T + np.eye(d)


def conditionals() -> None:
    """Appendix A.2: s | (u_m, u_{m+1}) by R and T, against the dense conditional of the process."""
    kernel, (z0, x, z1) = th.Matern52(1.3, 0.7), (0.0, 0.4, 1.0)
    sde = kernel.sde()

    def step(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
        pairs = sde.transition(a, b - a)
        return tuple(np.asarray(sde.dense([pair[i] for pair in pairs])) for i in (0, 1))

    (A0, Q0), (A1, _), (A, Q) = step(z0, x), step(x, z1), step(z0, z1)
    T = Q0 - Q0 @ A1.T @ np.linalg.solve(Q, A1 @ Q0)
    R = np.hstack([A0 - Q0 @ A1.T @ np.linalg.solve(Q, A), Q0 @ A1.T @ np.linalg.inv(Q)])
    P = np.asarray(sde.Pinf)
    joint = np.block([[P, P @ A.T], [A @ P, P]])
    cross = np.hstack([A0 @ P, P @ A1.T])
    W = np.linalg.solve(joint, cross.T).T
    H = sde.H
    nu = (H @ T @ H.T).item()
    exact = (H @ (P - W @ cross.T) @ H.T).item()
    report("A.2  R", np.abs(R - W).max())
    report("C.5  the variance of f_n given v is nu, not nu squared", abs(nu - exact), abs(nu**2 - exact))
    # Under the prior of v the variance of f_n must be that of the kernel, 1.3.
    right, printed = ((H @ R @ M @ R.T @ H.T).item() + nu for M in (joint, np.linalg.inv(joint)))
    report("C.5  W S W' + nu, not W S^-1 W' + nu", abs(right - 1.3), abs(printed - 1.3))


def moment_matching() -> None:
    """Section 4.2: moments of a tilted distribution of v in the plane, by a fine grid."""
    mu, S, W, nu = np.array([0.3, -0.5]), np.array([[0.8, 0.3], [0.3, 0.5]]), np.array([[0.7, -1.2]]), 0.1
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def evidence(mean: float) -> float:  # of p(y = 1 | f) = 1/(1 + e^-f), f ~ N(mean, W S W' + nu)
        f = mean + np.sqrt((W @ S @ W.T).item() + nu) * nodes
        return float(weights @ (1 / (1 + np.exp(-f))))

    m, h = (W @ mu).item(), 1e-4
    g1 = (np.log(evidence(m + h)) - np.log(evidence(m - h))) / (2 * h)
    g2 = (np.log(evidence(m + h)) - 2 * np.log(evidence(m)) + np.log(evidence(m - h))) / h**2
    mean, cov = mu + (S @ W.T).ravel() * g1, S + S @ W.T @ W @ S * g2

    L = np.linalg.cholesky(S)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel()
    v = mu + grid @ L.T
    lik = np.array([weights @ (1 / (1 + np.exp(-((W @ x).item() + np.sqrt(nu) * nodes)))) for x in v]) * mass
    lik /= lik.sum()
    exact = lik @ v
    spread = (v - exact).T @ ((v - exact) * lik[:, None])
    wrong = mu + W.ravel() * g1, S + W.T @ W * g2
    # Differences over a step of 1e-4 carry about 7 digits.
    report("4.2  mean mu + S W' dlogZ", np.abs(mean - exact).max(), np.abs(wrong[0] - exact).max(), 1e-6)
    report("4.2  covariance S + S W' d2logZ W S", np.abs(cov - spread).max(), np.abs(wrong[1] - spread).max(), 1e-6)


def natural_parameters() -> None:
    """Sections 2.2 and 4.1: with a Gaussian likelihood one full CVI step must give the exact posterior."""
    S, W, noise, y, mu = spd(3), RNG.normal(size=(1, 3)), 0.4, 1.7, RNG.normal(size=3)
    g2 = W.T @ W * (-0.5 / noise)
    g1 = W.ravel() * (y - (W @ mu).item()) / noise - 2 * g2 @ mu
    exact = np.linalg.inv(np.linalg.inv(S) + W.T @ W / noise)
    mean = exact @ W.ravel() * y / noise
    found, as_is = (np.linalg.inv(np.linalg.inv(S) + precision) for precision in (-2 * g2, g2))
    report("4.1  the site's precision is -2 g2", np.abs(found - exact).max(), np.abs(as_is - exact).max())
    report("4.1  its mean", np.abs(found @ g1 - mean).max())


def smoother() -> None:
    """Appendix B.1: three scalar states with sites on pairs; the smoothed variance of the middle one."""
    A, Q, P = 0.8, 0.5, 0.5 / (1 - 0.64)
    prior = np.linalg.inv(P * A ** np.abs(np.subtract.outer(range(3), range(3))))
    J = [spd(2), spd(2)]
    full = prior.copy()
    for i in (0, 1):
        full[i : i + 2, i : i + 2] += J[i]
    exact = np.linalg.inv(full)[1, 1]

    # Precisions of q^f(u_1) with t_0 in it, of p(u_2 | u_1), and of the pair with t_1.
    first = np.array([[1 / P + A * A / Q, -A / Q], [-A / Q, 1 / Q]]) + J[0]
    f1 = first[1, 1] - first[0, 1] ** 2 / first[0, 0]
    move = np.array([[A * A / Q, -A / Q], [-A / Q, 1 / Q]])
    pair = move + J[1] + np.diag([f1, 0.0])
    s2 = 1 / np.linalg.inv(full)[2, 2]

    def middle(joint: np.ndarray) -> float:
        """The variance of u_1 under joint(u_1, u_2) / marginal(u_2) times the smoothed q(u_2)."""
        marginal = joint[1, 1] - joint[0, 1] ** 2 / joint[0, 0]
        return np.linalg.inv(joint + np.diag([0.0, s2 - marginal]))[0, 0]

    report("B.1  the smoother's pair holds its site", abs(middle(pair) - exact), abs(middle(pair - J[1]) - exact))


def energy() -> None:
    """Appendix C.3: two equal data in one segment, Gaussian noise: tied sites are exact, so the energy must be."""
    y, noise, prior = 0.9, 0.3, 1.0
    both = prior + noise * np.eye(2)
    exact = -0.5 * (np.full(2, y) @ np.linalg.solve(both, np.full(2, y)) + np.linalg.slogdet(2 * np.pi * both)[1])
    shift, precision = 2 * y / noise, 2 / noise  # of the tied site of the two

    def log_mean(power: float, mean: float, var: float) -> float:
        """log E exp(power (shift v - precision v²/2)) for v ~ N(mean, var)."""
        total, pull = 1 / var + power * precision, mean / var + power * shift
        return 0.5 * (pull**2 / total - mean**2 / var - np.log(var * total))

    cavity = 1 / (1 / prior + 0.5 * precision)
    centre = cavity * 0.5 * shift
    lik = -0.5 * (np.log(2 * np.pi * (cavity + noise)) + (y - centre) ** 2 / (cavity + noise))
    site = log_mean(1.0, 0.0, prior)
    right = 2 * lik - 2 * log_mean(0.5, centre, cavity) + site
    printed = 2 * lik - log_mean(1.0, centre, cavity) + site
    report("C.3  a share of the site for each datum", abs(right - exact), abs(printed - exact))


def counts() -> None:
    """Appendix D: what the tables say of sizes."""
    week = th.QuasiPeriodic(lengthscale=2.0, order=0.5, harmonics=6)
    rough = th.Matern52() + week + week
    week = th.QuasiPeriodic(lengthscale=2.0, order=1.5, harmonics=6)
    smooth = th.Matern52() + week + week
    print(f"D    motorcycle holds {len(th.data.motorcycle().time)} values")
    print(f"D    airline's state: {rough.sde().dim} with Matern-1/2, {smooth.sde().dim} with Matern-3/2")


if __name__ == "__main__":
    conditionals()
    moment_matching()
    natural_parameters()
    smoother()
    energy()
    counts()
