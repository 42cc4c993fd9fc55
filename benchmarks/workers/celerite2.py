"""celerite2 at its best: its C++ driver through numpy for values and means, its JAX interface for the gradient.

Its Matern-3/2 tends to the exact one as `eps` tends to 0, with an error of order eps^2 and a loss of digits that grows
with the span of the times over eps. From N = 1e3 to 1e6, 3e-4 keeps values, means and variances within 3e-8.

Two limits of release 0.3.3, both reported as they are. The posterior variance forms an N x N matrix, so that beyond
`DENSE_LIMIT` points only the mean is computed. The reverse pass of the C++ code gives wrong gradients when the terms
have more than four columns in all, which the agreement table of `benchmarks.gaussian` shows for the sum of four.
"""

from __future__ import annotations

import celerite2
import celerite2.jax
import jax
import jax.numpy as jnp
import numpy as np
from celerite2 import terms as numpy_terms
from celerite2.jax import terms as jax_terms

from benchmarks.workers.protocol import PROBLEMS, Call, serve

EPS = 3e-4
DENSE_LIMIT = 3000


def term(kernel: str, theta, terms, sqrt):
    total = terms.Matern32Term(sigma=sqrt(theta[0]), rho=theta[1], eps=EPS)
    if kernel == "sum4":
        total += terms.RealTerm(a=theta[2], c=1 / theta[3])
        total += terms.SHOTerm(sigma=sqrt(theta[4]), w0=theta[5], Q=theta[6])
        total += terms.ComplexTerm(a=theta[7], b=0.0, c=1 / theta[8], d=theta[9])
    return total


def computed(kernel: str, theta: np.ndarray, t: np.ndarray) -> celerite2.GaussianProcess:
    gp = celerite2.GaussianProcess(term(kernel, theta, numpy_terms, np.sqrt))
    gp.compute(t, diag=np.full(len(t), theta[-1]))
    return gp


class Celerite2:
    def versions(self) -> dict[str, str]:
        return {"celerite2": celerite2.__version__, "jax": jax.__version__}

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        theta = np.asarray(PROBLEMS[kernel].values)
        if operation == "value":
            return lambda: {"value": computed(kernel, theta, t).log_likelihood(y)}
        if operation == "condition":
            if len(t) > DENSE_LIMIT:
                return lambda: {"mean": computed(kernel, theta, t).predict(y)}
            return lambda: dict(
                zip(("mean", "var"), computed(kernel, theta, t).predict(y, return_var=True), strict=True)
            )

        def value(theta, t, y):
            gp = celerite2.jax.GaussianProcess(term(kernel, theta, jax_terms, jnp.sqrt))
            gp.compute(t, diag=jnp.full(len(t), theta[-1]))
            return gp.log_likelihood(y)

        both = jax.jit(jax.value_and_grad(value))
        arguments = [jnp.asarray(x) for x in (theta, t, y)]
        return lambda: dict(zip(("value", "gradient"), jax.block_until_ready(both(*arguments)), strict=True))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    serve(Celerite2())
