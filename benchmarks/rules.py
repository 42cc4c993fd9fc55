"""`python -m benchmarks.rules`: every rule with every likelihood, against the posterior itself.

Writes the tables of docs/rules-and-likelihoods.md; `--only poisson gamma` prints those rows and writes nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.likelihoods.registry import LIKELIHOODS
from tests.rules.registry import NO_FIXED_POINT
from tests.sampling import Truth, slices
from thiele import dense_sites as dense
from thiele import kernels as kn
from thiele.energies import Data, observed
from thiele.inference import Inferred, infer
from thiele.rules import CVI, EKS, PL, VGP, Laplace, PowerEP
from thiele.steps import prior_chain

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules-and-likelihoods.md"
BEGIN, END = "<!-- tables: python -m benchmarks.rules -->", "<!-- end of tables -->"

RULES = {
    "CVI": CVI(),
    "PowerEP(1)": PowerEP(),
    "PowerEP(0.5)": PowerEP(0.5),
    "PL": PL(),
    "EKS": EKS(),
    "Laplace": Laplace(),
    "VGP": VGP(),
}
# One entry of the registry for each likelihood.
NAMES = (
    "gaussian",
    "student-t",
    "laplace",
    "bernoulli logit",
    "binomial logit",
    "poisson exp",
    "negative binomial exp",
    "zero-inflated poisson",
    "gamma",
    "exponential",
    "log-normal",
    "weibull",
    "beta",
    "ordinal logit",
    "categorical",
    "heteroscedastic",
    "product",
    "custom",
)
KERNELS = (kn.Matern32(1.0, 2.0), kn.Matern32(1.0, 4.0), kn.Matern32(1.0, 3.0), kn.Matern32(1.0, 5.0))
N, LENGTH = 32, 10.0
MOST_SWEEPS = 3000
REPEATS = 7


class Problem(NamedTuple):
    likelihood: Any
    kernel: Any
    times: jax.Array
    data: Data


class Cell(NamedTuple):
    """How one rule did on one likelihood; errors are in posterior standard deviations, time in milliseconds."""

    sweeps: int
    converged: bool
    repaired: int
    mean: float
    sd: float
    time: float


class Row(NamedTuple):
    name: str
    cells: dict[str, Cell | None]
    mean_error: float
    sd_error: float


def drawn(name: str) -> Problem:
    """Data that the model itself made, at irregular times."""
    likelihood = LIKELIHOODS[name].likelihood
    kernel = KERNELS[0] if likelihood.latents == 1 else kn.Stack(*KERNELS[: likelihood.latents])
    times = jnp.asarray(np.sort(np.random.default_rng(5).uniform(0.0, LENGTH, N)))
    first, second = jax.random.split(jax.random.key(5))
    f = jnp.linalg.cholesky(dense.gram(kernel, times)) @ jax.random.normal(first, (N * likelihood.latents,))
    f = f if likelihood.latents == 1 else f.reshape(N, likelihood.latents)
    y = jax.vmap(likelihood.sample)(jax.random.split(second, N), f)
    return Problem(likelihood, kernel, times, observed(np.asarray(y)))


def compiled(rule: Any, p: Problem) -> Callable[[], Inferred]:
    """Inference as a program, compiled and run once."""
    program = jax.jit(
        lambda kernel, data: infer(rule, p.likelihood, prior_chain(kernel.sde(), p.times), data, max_sweeps=MOST_SWEEPS)
    )
    jax.block_until_ready(program(p.kernel, p.data))
    return lambda: jax.block_until_ready(program(p.kernel, p.data))


def cell(run: Callable[[], Inferred], truth: Truth) -> Cell:
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - began)
    mean = np.asarray(found.marginals.mean).ravel()
    sd = np.sqrt(np.diagonal(np.asarray(found.marginals.var), axis1=1, axis2=2)).ravel()
    return Cell(
        int(found.sweeps),
        bool(found.converged),
        int(found.repaired),
        float(np.max(np.abs(mean - truth.mean) / truth.sd)),
        float(np.max(np.abs(sd / truth.sd - 1.0))),
        1e3 * min(seconds),  # what other work on the machine adds is not the method's
    )


def row(name: str) -> Row:
    p = drawn(name)
    runs = {
        label: None if (label.lower(), name) in NO_FIXED_POINT else compiled(rule, p) for label, rule in RULES.items()
    }
    truth = slices(p.likelihood, dense.gram(p.kernel, p.times), p.data, runs["PowerEP(1)"]().sites)
    cells = {label: None if run is None else cell(run, truth) for label, run in runs.items()}
    return Row(name, cells, 3.0 * float(np.max(truth.mean_error)), 3.0 * float(np.max(truth.sd_error)))


def table(title: str, rows: list[Row], show: Callable[[Cell], str], error: Callable[[Row], str] | None = None) -> str:
    """One quantity: a line for each likelihood, a column for each rule."""
    last = [] if error is None else ["sampling"]
    head = ["likelihood", *RULES, *last]
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for each in rows:
        shown = ["none" if c is None else show(c) if c.converged else f"({show(c)})" for c in each.cells.values()]
        lines.append(f"| {' | '.join([each.name, *shown, *([] if error is None else [error(each)])])} |")
    return "\n".join(lines)


def tables(rows: list[Row]) -> str:
    return "\n\n".join(
        [
            table(
                "Largest error of a posterior mean, in posterior standard deviations",
                rows,
                lambda c: f"{c.mean:.3f}",
                lambda r: f"{r.mean_error:.3f}",
            ),
            table(
                "Largest relative error of a posterior standard deviation",
                rows,
                lambda c: f"{c.sd:.3f}",
                lambda r: f"{r.sd_error:.3f}",
            ),
            table("Sweeps", rows, lambda c: f"{c.sweeps}{'*' if c.repaired else ''}"),
            table("Time of a warm inference, in milliseconds", rows, lambda c: f"{c.time:.1f}"),
        ]
    )


def write(text: str) -> None:
    """Put the tables between the markers of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, help="print these rows and write nothing")
    only = parser.parse_args().only
    rows = []
    with jax.enable_x64(True):
        for name in only or NAMES:
            began = time.perf_counter()
            rows.append(row(name))
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    text = tables(rows)
    print(text)
    if not only:
        write(text)


if __name__ == "__main__":
    main()
