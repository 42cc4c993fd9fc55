"""E log p(y | f) as rules and energies ask for it: its own derivative rule against plain differentiation."""

import jax
import jax.numpy as jnp
import pytest

from tests.chain.runs import assert_close
from tests.likelihoods.registry import LIKELIHOODS, jit, long, moments
from thiele.rules.latents import expected_log_prob


def problem(name):
    likelihood, ys = LIKELIHOODS[name]
    mean, var = (jnp.asarray(x) for x in moments(likelihood))
    size = likelihood.latents
    return likelihood, jnp.asarray(ys[-1]), jnp.reshape(mean, (size,)), jnp.reshape(var, (size, size))


def plainly(likelihood, y, mean, var):
    own = (mean[0], var[0, 0]) if likelihood.latents == 1 else (mean, var)
    return likelihood.expected_log_prob(y, *own, None)


def ours(likelihood, y, mean, var):
    return expected_log_prob(likelihood, y, mean, var, None)


@pytest.mark.parametrize("name", long(LIKELIHOODS))
def test_the_gradient_in_moments_and_in_parameters_is_the_likelihoods_own(name):
    likelihood, y, mean, var = problem(name)

    @jit
    def both(likelihood, mean, var):
        every = [jax.value_and_grad(lambda *a, f=f: f(a[0], y, *a[1:]), (0, 1, 2)) for f in (ours, plainly)]
        return [gradient(likelihood, mean, var) for gradient in every]

    found, expected = both(likelihood, mean, var)
    assert_close(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["poisson exp", "student-t", "heteroscedastic"])
def test_a_derivative_of_the_gradient_is_the_likelihoods_own(name):
    # What the energy's derivative asks of sites that follow the hyperparameters.
    likelihood, y, mean, var = problem(name)

    @jit
    def both(likelihood, mean, var):
        def slope(f):
            return lambda *args: jnp.sum(jnp.sin(jax.grad(lambda m: f(args[0], y, m, args[2]))(args[1])))

        return [jax.grad(slope(f), (0, 1, 2))(likelihood, mean, var) for f in (ours, plainly)]

    found, expected = both(likelihood, mean, var)
    assert_close(found, expected, rtol=1e-11)


def test_values_that_stay_cost_no_derivative():
    # A likelihood of which nothing is learnt: its parameters are not differentiated.
    likelihood, y, mean, var = problem("negative binomial exp")
    both = lambda f: jax.make_jaxpr(jax.grad(lambda m: f(likelihood, y, m, var)))(mean)  # noqa: E731
    counts = [len(list(_equations(both(f).jaxpr))) for f in (ours, plainly)]
    assert counts[0] <= 1.3 * counts[1]


def _equations(jaxpr):
    for equation in jaxpr.eqns:
        inner = [x for x in jax.tree.leaves(list(equation.params.values())) if hasattr(x, "jaxpr")]
        yield equation
        for sub in inner:
            yield from _equations(sub.jaxpr)
