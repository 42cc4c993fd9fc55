"""smolgp on a CPU: its sequential Kalman solver, faster than its associative scan for values and gradients.

Float64, everything in one `jit`. The data are arguments of the compiled function: were they constants, XLA would sort
them while it compiles, which it does slowly.
"""

from __future__ import annotations

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import smolgp
from smolgp import kernels

from benchmarks.workers.protocol import PROBLEMS, Call, serve


def gp(kernel: str, theta, t) -> smolgp.GaussianProcess:
    total = kernels.Matern32(scale=theta[1], sigma=jnp.sqrt(theta[0]))
    if kernel == "sum4":
        total += kernels.Exp(scale=theta[3], sigma=jnp.sqrt(theta[2]))
        total += kernels.SHO(omega=theta[5], quality=theta[6], sigma=jnp.sqrt(theta[4]))
        total += kernels.Cosine(scale=2 * jnp.pi / theta[9], sigma=jnp.sqrt(theta[7])) * kernels.Exp(scale=theta[8])
    return smolgp.GaussianProcess(total, t, noise=theta[-1])


class SmolGP:
    def versions(self) -> dict[str, str]:
        return {"smolgp": version("smolgp"), "jax": jax.__version__}

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        theta, t, y = (jnp.asarray(x) for x in (PROBLEMS[kernel].values, t, y))

        def value(theta, t, y):
            return gp(kernel, theta, t).log_probability(y)

        def condition(theta, t, y):
            posterior = gp(kernel, theta, t).condition(y).gp
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
    serve(SmolGP())
