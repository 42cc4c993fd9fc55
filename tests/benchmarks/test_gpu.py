"""The table of devices: its words, and the baseline that it compares with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thiele as th
from benchmarks import gpu, parallel_scan
from benchmarks.workers.protocol import irregular_series


def found(lanes=0.01, scan=0.06, apart=0.0):
    answer = [-100.0, 2.0]
    there = {
        "lanes": {"seconds": lanes, "answer": answer},
        "scan": {"seconds": scan, "answer": [answer[0] * (1.0 + apart), 2.0]},
    }
    return {"cpu": there, "gpu": {way: {"none": True} for way in there}}


def result(operation, n=10**6, **changes):
    return {"n": n, "precision": "float64", "operation": operation, "found": found(**changes)}


def test_a_row_says_none_where_there_is_no_gpu():
    row = gpu.row({"n": 10**4, "precision": "float64", "operation": "value"}, found(apart=1e-9))
    assert row == ("1e4", "float64", "value", "10 ms", "60 ms", "6.0", "none", "none", "none", "1e-09")
    assert len(row) == len(gpu.COLUMNS)


def test_aims_are_compared_with_what_was_measured_at_a_million():
    assert gpu.aims([result("value", n=10**5)]) == []
    said = gpu.aims([result("value"), result("condition", lanes=0.03), {"task": "coal", "found": {}}])
    assert said == [
        "cpu: the likelihood is 6.0 times as fast as the scan (as aimed)",
        "cpu: conditioning takes 3.0 times the likelihood (aim: 2)",
    ]


def test_log_likelihoods_that_differ_are_called_wrong():
    assert gpu.wrong([result("value", apart=1e-12)]) == []
    assert gpu.wrong([result("value", apart=1e-6)])[0].startswith("WRONG: cpu")


def test_what_could_not_be_done_is_said_in_words():
    trouble = {"task": "airline", "found": {"cpu": {"lanes": {"unable": "no data"}}}}
    assert gpu.troubles([trouble]) == ["cpu, lanes, airline: no data"]


def test_missing_packages_are_named_instead_of_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "NEEDED", ("numpy", "no_such_package"))
    assert gpu.main([]) == 1
    assert "no_such_package" in capsys.readouterr().err


@pytest.mark.parametrize("product", parallel_scan.PRODUCTS)
def test_the_scan_gives_the_exact_likelihood_and_posterior(product):
    t, y = irregular_series(7)
    kernel, noise = th.Matern32(variance=1.2, lengthscale=1.5), 0.1
    exact = th.GP(kernel, th.Gaussian(variance=noise))
    with jax.enable_x64(True):
        rate = jnp.sqrt(3.0) / kernel.lengthscale
        F = jnp.array([[0.0, 1.0], [-(rate**2), -2.0 * rate]])
        stationary = kernel.variance * jnp.diag(jnp.array([1.0, rate**2]))
        A = jnp.stack([jax.scipy.linalg.expm(F * step) for step in np.diff(t)])
        Q = stationary - A @ stationary @ jnp.swapaxes(A, -1, -2)
        h, mul = jnp.array([1.0, 0.0]), parallel_scan.PRODUCTS[product]
        problem = parallel_scan.Problem(A, Q, stationary, h, jnp.asarray(noise), jnp.asarray(y))
        value = float(parallel_scan.log_likelihood(problem, mul))
        mean, variance = (np.asarray(x) for x in parallel_scan.conditioned(problem, mul))
    predicted = exact.condition(t, y).predict(t)
    assert value == pytest.approx(float(exact.log_likelihood(t, y)), rel=1e-10)
    np.testing.assert_allclose(mean, predicted.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance, predicted.var, rtol=1e-8)
