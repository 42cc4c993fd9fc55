"""One function for a whole run: the same numbers as a plain loop, whatever asks for them, and no end of the process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from tests.chain.runs import assert_close, quick_jit
from thiele import one_function
from thiele.chain import Information, layouts, log_normaliser, outputs, posterior, whole_states
from thiele.steps import prior_chain

KERNELS = {"one number": th.Matern12(), "three": th.Matern52(1.3, 0.8), "a sum": th.Matern32() + th.Matern12(0.5, 3.0)}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def made(kernel, n):
    rng = np.random.default_rng(n)
    time, shift = jnp.asarray(np.sort(rng.uniform(0.0, 5.0, n))), jnp.asarray(rng.normal(size=(1, n)))

    def at(scale):
        chain = prior_chain(kernel.sde(), time)
        return chain, Information(scale * jnp.ones((1, 1, n)), scale * shift, H=chain.moves.sde.H)

    return at


def asked(kernel, n):
    at = made(kernel, n)

    def log_z(scale):
        return log_normaliser(*at(scale))

    def smoothed(scale):
        return jnp.sum(jnp.square(outputs(*at(scale))[0].mean))

    return {
        "value": log_z,
        "gradient": jax.grad(log_z),
        "moments": lambda scale: outputs(*at(scale)),
        "posterior": lambda scale: posterior(*at(scale)),
        "gradient of moments": jax.grad(smoothed),
        "second derivative": jax.grad(jax.grad(log_z)),
        "many at once": lambda scale: jax.vmap(smoothed)(scale * jnp.arange(1.0, 4.0)),
        "in a loop": lambda scale: jax.lax.fori_loop(0, 3, lambda _, s: s + 1e-3 * smoothed(s), scale),
        # Everything that a run reads is a constant of the program.
        "of constants": lambda scale: scale + smoothed(1.0),
        "last moments only": lambda scale: outputs(*at(scale))[0].mean[:, -1],
    }


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("name", KERNELS)
def test_the_same_as_a_plain_loop(name, n, monkeypatch):
    found = {}
    for tested in ((0, 0), (99, 0)):
        monkeypatch.setattr(one_function, "LAST_TESTED", tested)
        jax.clear_caches()
        everything = {key: quick_jit(function)(0.7) for key, function in asked(KERNELS[name], n).items()}
        found[tested] = everything
    assert_close(found[99, 0], found[0, 0])


def test_a_run_is_marked_and_a_run_that_reads_nothing_is_not():
    both = lambda c, x: ((c[0] * 0.5 + x["a"], c[1] * 0.9), c[0] * x["b"])  # noqa: E731
    no_row = lambda c, x: ((c[0] * 0.5, c[1] * 0.9), c[0])  # noqa: E731
    no_carry = lambda c, x: ((x["a"], x["b"]), x["a"])  # noqa: E731
    kept_apart = lambda c, x: ((c[0] + x["a"], c[1] * 0.9), x["b"])  # noqa: E731
    marked = "xla_cpu_small_call"
    rows = {"a": jnp.ones((20, 1)), "b": jnp.full((20, 1), 2.0)}
    start = jnp.ones(1), 2.0 * jnp.ones(1)
    for step, expected in ((both, True), (no_row, False), (no_carry, False), (kept_apart, False)):
        walk = jax.jit(lambda start, step=step: one_function.walk(step, start, rows))
        assert_close(walk(start), jax.lax.scan(step, start, rows))
        assert (marked in walk.lower(start).as_text()) == expected
    one_step = jax.jit(lambda start: one_function.walk(both, start, jax.tree.map(lambda x: x[:1], rows)))
    assert marked not in one_step.lower(start).as_text()


def arguments_of_run(function, *args):
    """How many arrays the marked function of a program takes; None: there is none."""

    def found(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.params.get("name") == "run":
                return len(eqn.invars)
            for inner in jax.tree.leaves(tuple(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
                count = found(inner) if hasattr(inner, "eqns") else None
                if count is not None:
                    return count
        return None

    return found(jax.make_jaxpr(function)(*args))


def test_a_run_takes_two_arrays_and_no_more():
    """A third, that nothing reads when all is optimised, would end the process."""
    rows = {"read": jnp.ones((20, 1)), "unread": jnp.ones((20, 1))}

    def from_around(c, factor):
        step = lambda c, x: (c * factor * x["read"] + 0.0 * jnp.sin(x["read"]), c)  # noqa: E731
        return one_function.walk(step, c, rows)

    c, factor = jnp.ones(1), jnp.array(0.5)
    assert arguments_of_run(lambda c: from_around(c, 0.5), c) == 2
    # What is known only when the program runs would be a third.
    assert arguments_of_run(from_around, c, factor) is None
    assert_close(jax.jit(from_around)(c, factor), from_around(c, 0.5))


def test_rounds_of_a_rule_whose_sites_follow_the_hyperparameters_end():
    """These once ended the process: what no step reads was passed on as arrays of their own."""
    t = np.linspace(0.0, 9.0, 60)
    model = th.GP(th.Matern52(1.0, 4.0), th.Poisson(), rule=th.PL())
    fit = model.fit(t, np.round(2.0 + np.sin(t)), schedule="paper", max_steps=2, settle=False, progress=False)
    assert np.isfinite(fit.objective)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_inducing_states_in_one_function(d, monkeypatch):
    rng = np.random.default_rng(d)
    n = 12
    square = lambda *batch: (lambda X: jnp.asarray(X @ np.swapaxes(X, -1, -2)))(rng.normal(size=(*batch, d, d)))  # noqa: E731
    start = whole_states.Start(jnp.asarray(rng.normal(size=d)), square())
    # Information of very different size, and none.
    size = 10.0 ** rng.uniform(-3.0, 6.0, (n, 1, 1)) * (np.arange(n) != 5)[:, None, None]
    rows = whole_states.Rows(
        A=jnp.asarray(0.4 * rng.normal(size=(n, d, d))),
        Q=square(n),
        b=jnp.asarray(rng.normal(size=(n, d))),
        Lam=size * square(n),
        h=jnp.asarray(rng.normal(size=(n, d))),
    )
    found = {}
    for largest in (5, 0):
        monkeypatch.setattr(whole_states, "LARGEST_IN_ONE_FUNCTION", largest)
        jax.clear_caches()
        found[largest] = quick_jit(lambda start, rows: whole_states.value_and_slopes(start, rows))(start, rows)
    assert_close(found[5], found[0])


def test_derivatives_of_moments_go_in_many_lanes(monkeypatch):
    """A loop that keeps a tape is no function of its own: in one lane it takes many times as long."""
    at = made(KERNELS["three"], 600)

    def smoothed(scale):
        found, log_z = outputs(*at(scale))
        return jnp.sum(jnp.square(found.mean)) + jnp.sum(jnp.sin(found.var)) + log_z

    found, scans = [], []
    for shortest in (4096, 512):
        monkeypatch.setattr(layouts, "SHORTEST_IN_LANES", shortest)
        jax.clear_caches()
        slope = jax.value_and_grad(smoothed)
        found.append(quick_jit(slope)(0.7))
        scans.append("length=600" in str(jax.make_jaxpr(slope)(0.7)))
    assert_close(found[1], found[0])
    # Nothing goes step by step but the boundaries of lanes and the steps within one.
    assert scans == ([True, False] if jax.default_backend() == "cpu" else [False, False])
