"""The transition of a linear SDE in arithmetic of 60 digits and more, as the truth that tests compare with."""

import mpmath
import numpy as np


def transition(drift, diffusion, step):
    """(A, Q) by Van Loan's exponential of [[F, D], [0, -F']], halved until it is small and then doubled."""
    with mpmath.workdps(120):
        F, D, h = mpmath.matrix(drift), mpmath.matrix(diffusion), mpmath.mpf(step)
        n = F.rows
        halvings = max(0, int(mpmath.ceil(mpmath.log(1 + h * mpmath.mnorm(F, 1), 2))))
        short = h / 2**halvings
        both = mpmath.zeros(2 * n)
        both[:n, :n], both[:n, n:], both[n:, n:] = F * short, D * short, -F.T * short
        exponential = mpmath.expm(both, method="taylor")
        A = exponential[:n, :n]
        Q = exponential[:n, n:] * A.T
        for _ in range(halvings):
            A, Q = A * A, Q + A * Q * A.T
        return _array(A), _array(Q)


def _array(matrix):
    return np.array(matrix.tolist(), dtype=float)


def scaled_error(Q, reference):
    """The largest |Q - reference|_ij in units of the standard deviations √(reference_ii reference_jj)."""
    scale = np.sqrt(np.diag(reference))
    return np.max(np.abs(Q - reference) / np.outer(scale, scale))
