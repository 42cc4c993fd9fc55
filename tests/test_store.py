"""A saved fit is the fit; a file that is not whole, not ours or not of our time is refused in words."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import thiele as th
from thiele import store
from thiele.archives import NotSaved, unpacked

T = np.linspace(0.0, 10.0, 40)
Y = np.sin(T) + 0.1 * np.cos(29.0 * T)
COUNTS = np.round(np.exp(1.0 + np.sin(T)))
NEW = np.linspace(-1.0, 12.0, 30)
FIRST = Path(__file__).parent / "files" / "fit-1.thiele"


@pytest.fixture(scope="module")
def exact():
    return th.GP(th.Matern32(), th.Gaussian()).fit(T, Y, max_steps=3)


def saved(fit, folder):
    fit.save(folder / "a.thiele")
    return th.load(folder / "a.thiele")


def assert_same(found, fit):
    assert jax.tree.structure(found.model) == jax.tree.structure(fit.model)
    for a, b in zip(jax.tree.leaves(found.model), jax.tree.leaves(fit.model), strict=True):
        np.testing.assert_array_equal(a, b)
    covariates = {"exposure": 2.0} if fit.data.covariates else {}
    new = fit.clock.times(NEW)
    np.testing.assert_allclose(found.predict(new, **covariates).mean, fit.predict(new, **covariates).mean, rtol=1e-12)
    np.testing.assert_allclose(found.loo(), fit.loo(), rtol=1e-10)
    assert found.objective == fit.objective
    assert repr(found) == repr(fit)


def test_a_learnt_fit_comes_back_with_its_trace(exact, tmp_path):
    found = saved(exact, tmp_path)
    assert_same(found, exact)
    np.testing.assert_array_equal(found.trace.objective, exact.trace.objective)
    np.testing.assert_array_equal(found.learnt.vector, exact.learnt.vector)


def test_sites_covariates_marks_dates_and_the_order_of_rows_come_back(tmp_path):
    prior = th.priors.LogNormal(2.0, 0.5)
    kernel = 2.0 * th.Matern32(variance=th.fixed(0.5), lengthscale=th.param("3 days", prior=prior)) + th.Constant()
    order = np.random.default_rng(0).permutation(T.size)
    days = np.datetime64("2020-03-01T06:30", "m") + np.round(1440 * T[order]).astype("timedelta64[m]")
    y = np.where(np.arange(T.size) == 7, np.nan, COUNTS)
    model = th.GP(kernel, th.Poisson(), rule=th.PowerEP(power=0.5, quadrature=th.quadrature.GaussHermite(15)))
    fit = model.condition(days, y[order], exposure=1.0 + 0.1 * T[order])
    assert_same(saved(fit, tmp_path), fit)


@pytest.mark.slow
def test_inducing_times_come_back(tmp_path):
    fit = th.GP(th.Matern32(1.0, 2.0), th.Gaussian(0.1), inducing=8, mean=0.0).condition(T, Y)
    found = saved(fit, tmp_path)
    assert_same(found, fit)
    np.testing.assert_array_equal(found.inducing, fit.inducing)


NEEDED = {
    "kernels.Sum": lambda: th.Matern32() + th.SHO(),
    "kernels.Product": lambda: th.Matern32() * th.Cosine(),
    "kernels.Scale": lambda: 2.0 * th.Matern32(),
    "kernels.Stacked": lambda: th.Stack(th.Matern32(), th.Matern52()),
    "kernels.SpaceTime": lambda: th.SpaceTime(th.Matern32(), th.spatial.RBF(lengthscale=[1.0, 2.0]), [[0.0, 1.0]]),
    "kernels.Coregional": lambda: th.Coregional((th.Matern32(), th.Matern52()), [[1.0, 0.5], [0.2, 1.0]]),
    "spatial.Points": lambda: th.spatial.Points(th.fixed([[0.0, 1.0]])),
    "spatial.Inducing": lambda: th.spatial.Inducing(points=[[0.0, 1.0]], learn=True),
    "likelihoods.ByOutput": lambda: th.EachOutput(th.Gaussian(), th.Poisson()),
    "likelihoods.Ordinal": lambda: th.Ordinal(cutpoints=[-1.0, 0.5]),
    "likelihoods.Categorical": lambda: th.Categorical(3),
    "likelihoods.Shifted": lambda: store.likelihoods.Shifted(th.Poisson(), np.float64(0.5)),
    "inducing.Inducing": lambda: th.Inducing(5, at="quantiles"),
    "inducing.Places": lambda: store.inducing.Places(th.fixed([0.0, 1.0])),
    "model.GP": lambda: th.GP(th.Matern32(), th.Poisson(), mean="learn"),
    "priors.Gamma": lambda: th.priors.Gamma(2.0, 3.0),
    "priors.InverseGamma": lambda: th.priors.InverseGamma(2.0, 3.0),
    "priors.LogNormal": lambda: th.priors.LogNormal(2.0, 3.0),
    "priors.HalfNormal": lambda: th.priors.HalfNormal(2.0),
    "priors.Normal": lambda: th.priors.Normal(0.0, 3.0),
}


@pytest.mark.parametrize("name", [name for name in store.KNOWN if name != "rules.AbstractRule"])
def test_everything_that_has_settings_can_be_written_and_read(name):
    thing = NEEDED.get(name, store.KNOWN[name])()
    arrays = {}
    text = json.dumps(store._plain(thing, arrays), allow_nan=False)
    found = store._thing(json.loads(text), arrays)
    assert jax.tree.structure(found) == jax.tree.structure(thing)  # with marks and all that is no array
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(thing), strict=True):
        np.testing.assert_array_equal(a, b)


def test_equal_fits_make_equal_files(exact, tmp_path):
    exact.save(tmp_path / "a")
    exact.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_is_plain_json_and_arrays_without_pickle(exact, tmp_path):
    exact.save(tmp_path / "a.thiele")
    with zipfile.ZipFile(tmp_path / "a.thiele") as file:
        assert json.loads(file.read("thiele.json"))["format"] == "thiele fit"
        for name in file.namelist():
            if name.endswith(".npy"):
                np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False)
        np.testing.assert_array_equal(np.load(io.BytesIO(file.read("time.npy"))), T)


def test_the_first_format_is_read_for_ever():
    fit = th.load(FIRST)
    assert repr(fit.kernel) == "Sum(terms=(Matern32(variance=1., lengthscale=2.), Constant(variance=0.5)))"
    np.testing.assert_allclose(fit.predict([0.5, 3.0]).y_mean, [1.224040, 1.105490], atol=1e-6)


def changed(path, change):
    """The file with its JSON changed."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    contents = json.loads(parts["thiele.json"])
    change(contents)
    parts["thiele.json"] = json.dumps(contents).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, value in parts.items():
            file.writestr(name, value)


def test_files_that_cannot_be_read_say_why(exact, tmp_path):
    path = tmp_path / "a.thiele"

    def refused(*words):
        with pytest.raises(NotSaved) as problem:
            th.load(path)
        assert str(path) in str(problem.value)
        for word in words:
            assert word in str(problem.value)

    path.write_text("time,count\n1,2\n")
    refused("no saved fit")
    path.write_bytes(b"")
    refused("no saved fit")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("other.txt", "x")
    refused("without thiele.json")

    def again(change):
        exact.save(path)
        changed(path, change)

    again(lambda c: c.update(format="something else"))
    refused("another kind")
    again(lambda c: c.update(version=99))
    refused("newer thiele", "99", "install a newer thiele")
    again(lambda c: c["model"].update({"is": "os.system"}))
    refused("os.system", "does not know")
    again(lambda c: c["model"]["kernel"]["variance"].update(number=-1.0))
    refused("damaged", "positive")
    again(lambda c: c.pop("data"))
    refused("damaged", "data")
    again(lambda c: c["data"].update(time="nowhere"))
    refused("damaged", "nowhere")


def test_every_cut_and_every_flipped_byte_is_noticed_or_harmless(exact, tmp_path):
    path = tmp_path / "a.thiele"
    exact.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in rng.integers(0, len(whole), 20):
        path.write_bytes(whole[:cut])
        with pytest.raises(NotSaved):
            th.load(path)
    for place in rng.integers(0, len(whole), 60):
        broken = bytearray(whole)
        broken[place] ^= 0xFF
        path.write_bytes(bytes(broken))
        try:
            contents, arrays = unpacked(path.read_bytes(), path, {"thiele fit": 1})
        except NotSaved:
            continue
        # What the checksums do not cover (dates, flags of the archive) changes nothing that is read.
        assert contents["format"] == "thiele fit"
        np.testing.assert_array_equal(arrays["y"], exact.data.y)


def test_an_array_of_objects_is_never_unpickled(exact, tmp_path):
    path = tmp_path / "a.thiele"
    exact.save(path)
    trap = io.BytesIO()
    np.save(trap, np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["y.npy"] = trap.getvalue()
    with zipfile.ZipFile(path, "w") as file:
        for name, value in parts.items():
            file.writestr(name, value)
    with pytest.raises(NotSaved, match="damaged"):
        th.load(path)


def test_code_of_a_users_own_is_not_saved(exact, tmp_path):
    custom = th.GP(th.Matern32(1.0, 1.0), th.Custom(lambda y, f: -0.5 * (y - f) ** 2))
    with pytest.raises(TypeError, match=r"cannot save .*only what thiele itself defines"):
        dataclasses.replace(exact, model=custom).save(tmp_path / "a.thiele")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(exact, tmp_path):
    with pytest.raises(FileNotFoundError, match="folder that exists"):
        exact.save(tmp_path / "nowhere" / "a.thiele")
    with pytest.raises(IsADirectoryError, match="must be a file"):
        exact.save(tmp_path)


KILLED = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, thiele as th
from thiele import archives
path = sys.argv[1]
t = np.linspace(0.0, 1.0, 20000)
model = th.GP(th.Matern12(1.0, 0.1), th.Gaussian(0.1), mean=0.0)
fits = [model.condition(t, np.full(t.size, value)) for value in (1.0, 2.0)]
fits[0].save(path)
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

def patched(name):
    def run():
        setattr(os, name, die)
        fits[1].save(path)
    return run

def half_written():
    class Half:
        def __init__(self, *how): self.file = open(*how)
        def __enter__(self): return self
        def __exit__(self, *_): pass
        def write(self, payload): self.file.write(payload[: len(payload) // 2]); self.file.flush(); die()
    archives.open = Half
    fits[1].save(path)

def forever():
    while True:
        for fit in fits:
            fit.save(path)

def killed(run, after=None):
    child = os.fork()
    if child == 0:
        run()
        os._exit(1)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    _, arrays = archives.unpacked(open(path, "rb").read(), path, {"thiele fit": 1})
    assert len(set(arrays["y"])) == 1 and arrays["y"].size == t.size
    print(arrays["y"][0])

for run in (half_written, patched("fsync"), patched("replace")):
    killed(run)
for _ in range(15):
    killed(forever, random.uniform(0.0, 0.15))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, to be killed at a chosen place")
def test_killed_at_any_moment_the_old_file_or_the_new_one_is_there_whole(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "a.thiele")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split()]
    assert len(found) == 18
    assert found[:3] == [1.0, 1.0, 1.0]  # before the new one was in its place
    assert set(found) <= {1.0, 2.0}
