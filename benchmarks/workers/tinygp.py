"""tinygp at its best: the quasiseparable solver, times known to be sorted, float64, everything in one `jit`.

Conditioning on a sum of kernels raises an AssertionError in release 0.3.1, because the transitions of a sum are blocks.
`Joined` gives tinygp the same kernel with one dense block, through its own interface for custom kernels. It is used for
conditioning and for the gradient, which it makes twice as fast; the value is no faster with it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import tinygp
from tinygp import GaussianProcess
from tinygp.kernels import quasisep

from benchmarks.workers.protocol import PROBLEMS, Call, serve


def _dense(blocks):
    return jax.scipy.linalg.block_diag(*jax.tree.leaves(blocks))


class Joined(quasisep.Wrapper):
    """The same process with dense transitions."""

    def stationary_covariance(self):
        return _dense(self.kernel.stationary_covariance())

    def transition_matrix(self, X1, X2):
        return _dense(self.kernel.transition_matrix(X1, X2))


def gp(kernel: str, theta, t, joined: bool = False) -> GaussianProcess:
    total = quasisep.Matern32(scale=theta[1], sigma=jnp.sqrt(theta[0]))
    if kernel == "sum4":
        total += quasisep.Exp(scale=theta[3], sigma=jnp.sqrt(theta[2]))
        total += quasisep.SHO(omega=theta[5], quality=theta[6], sigma=jnp.sqrt(theta[4]))
        total += quasisep.Celerite(a=theta[7], b=0.0, c=1 / theta[8], d=theta[9])
        if joined:
            total = Joined(total)
    return GaussianProcess(total, t, diag=theta[-1], assume_sorted=True)


class TinyGP:
    def versions(self) -> dict[str, str]:
        return {"tinygp": tinygp.__version__, "jax": jax.__version__}

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        theta, t, y = (jnp.asarray(x) for x in (PROBLEMS[kernel].values, t, y))

        def value(theta, t, y):
            return gp(kernel, theta, t, joined=operation == "gradient").log_probability(y)

        def condition(theta, t, y):
            posterior = gp(kernel, theta, t, joined=True).condition(y, diag=0.0).gp
            return posterior.loc, posterior.variance

        if operation == "value":
            compiled = jax.jit(value)
            return lambda: {"value": compiled(theta, t, y).block_until_ready()}
        names, function = {
            "gradient": (("value", "gradient"), jax.jit(jax.value_and_grad(value))),
            "condition": (("mean", "var"), jax.jit(condition)),
        }[operation]
        return lambda: dict(zip(names, jax.block_until_ready(function(theta, t, y)), strict=True))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    serve(TinyGP())
