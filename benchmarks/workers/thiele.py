"""thiele: the model is rebuilt from the hyperparameters inside the compiled function, as for the peers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import thiele as th
from benchmarks.workers.protocol import PROBLEMS, Call, serve


def model(kernel: str, theta) -> th.GP:
    noise = th.Gaussian(variance=theta[-1])
    matern32 = th.Matern32(variance=theta[0], lengthscale=theta[1])
    if kernel == "matern32":
        return th.GP(kernel=matern32, likelihood=noise)
    matern12 = th.Matern12(variance=theta[2], lengthscale=theta[3])
    sho = th.SHO(variance=theta[4], frequency=theta[5], quality=theta[6])
    subband = th.Subband(variance=theta[7], lengthscale=theta[8], frequency=theta[9], order=0.5)
    return th.GP(kernel=matern32 + matern12 + sho + subband, likelihood=noise)


class Thiele:
    def versions(self) -> dict[str, str]:
        return {"thiele": th.__version__, "jax": jax.__version__}

    def call(self, kernel: str, operation: str, t: np.ndarray, y: np.ndarray) -> Call:
        theta = jnp.asarray(PROBLEMS[kernel].values)

        times, values = jnp.asarray(t), jnp.asarray(y)

        # The data are arguments, as for the peers: as constants the compiler would work on them ahead of time.
        def value(theta, times, values):
            return model(kernel, theta).log_likelihood(times, values)

        if operation == "value":
            compiled = jax.jit(value)
            return lambda: {"value": compiled(theta, times, values).block_until_ready()}
        if operation == "gradient":
            both = jax.jit(jax.value_and_grad(value))
            return lambda: dict(
                zip(("value", "gradient"), jax.block_until_ready(both(theta, times, values)), strict=True)
            )

        given = model(kernel, np.asarray(theta))

        def condition():
            p = given.condition(t, y).predict(t)
            return dict(zip(("mean", "var"), jax.block_until_ready((p.mean, p.var)), strict=True))

        return condition


if __name__ == "__main__":
    # The choice of this script, as a user may make it, so that the gradient comes back in float64.
    jax.config.update("jax_enable_x64", True)
    serve(Thiele())
