"""Many series fitted together are the series fitted one by one."""

import numpy as np
import pytest

import thiele as th
from thiele.archives import Archive, NotSaved, packed, unpacked
from thiele.together import Evaluations, maximise_together

RNG = np.random.default_rng(1)
LENGTHS = {"a": 30, "b": 24, "c": 40}
KEY = np.concatenate([np.full(n, name) for name, n in LENGTHS.items()])
T = np.concatenate([np.sort(RNG.uniform(0.0, 12.0, n)) for n in LENGTHS.values()])
WAVES = np.concatenate([a * np.sin(T[k == KEY] + a) for k, a in zip(LENGTHS, (1.0, 2.0, 3.0), strict=True)])
Y = WAVES + 0.2 * RNG.standard_normal(T.size)
MODEL = th.GP(th.Matern32(), th.Gaussian())


def test_each_series_is_fitted_as_if_alone_also_after_saving(tmp_path):
    order = RNG.permutation(T.size)
    y = np.where(np.arange(T.size) == 3, np.nan, Y)
    panel = th.fit_panel(MODEL, T[order], y[order], KEY[order])
    assert set(panel) == {"a", "b", "c"}
    for name in panel:
        alone = MODEL.fit(T[name == KEY], y[name == KEY])
        assert panel[name].objective == pytest.approx(alone.objective, abs=1e-3)
        new = np.array([1.0, 5.5, 13.0])
        np.testing.assert_allclose(panel[name].predict(new).mean, alone.predict(new).mean, atol=5e-3)
        assert panel[name].converged
    assert len(panel["b"].data.time) == 24

    again = th.load(panel.save(tmp_path / "three.thiele"))
    assert list(again) == list(panel)
    assert again.name == "key"
    for name, fit in again.items():
        np.testing.assert_allclose(fit.predict(new).mean, panel[name].predict(new).mean, rtol=1e-10)
        np.testing.assert_allclose(fit.predict().var, panel[name].predict().var, rtol=1e-8)
        assert fit.objective == panel[name].objective
    assert (tmp_path / "three.thiele").read_bytes() == again.save(tmp_path / "again.thiele").read_bytes()

    assert repr(panel).startswith("Panel of 3 series, 3 converged")
    with pytest.raises(KeyError, match="no series 'd'; there are 3"):
        panel["d"]


def test_shared_hyperparameters_are_those_of_the_sum_and_tables_have_keys():
    panel = th.fit_panel(MODEL, T, Y, KEY, share=True)
    assert len({repr(fit.kernel) for fit in panel.values()}) == 1
    learnt = panel["a"].model
    total = sum(float(learnt.log_likelihood(T[k == KEY], Y[k == KEY])) for k in LENGTHS)
    assert sum(fit.objective for fit in panel.values()) == pytest.approx(total, rel=1e-8)
    found = panel.forecast(1.0)
    assert list(found)[:2] == ["key", "time"]
    assert panel.table([1.0, 2.0])["mean"][2:4] == pytest.approx(panel["b"].predict([1.0, 2.0]).y_mean)
    assert set(found["key"]) == set(LENGTHS)


def test_pandas_panels_have_an_index_of_keys_and_times():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"day": np.datetime64("2024-01-01") + np.tile(np.arange(20), 2), "y": Y[:40]})
    frame["shop"] = np.repeat(["north", "south"], 20)
    model = th.GP(th.Matern32(1.0, "5 days"), th.Gaussian(0.1), mean=0.0)
    panel = th.fit_panel(model, frame["day"], frame["y"], frame["shop"], max_steps=2)
    found = panel.forecast("3 days")
    assert found.index.names == ["shop", "day"]
    assert found.loc["south"].index[0] == pd.Timestamp("2024-01-21")
    assert len(found) == 6


@pytest.mark.slow
def test_counts_in_a_panel_are_those_alone_also_after_saving(tmp_path):
    counts = RNG.poisson(np.exp(1.5 + 0.5 * WAVES)).astype(float)
    model = th.GP(th.Matern32(), th.Poisson(), mean="learn")
    panel = th.fit_panel(model, T, counts, KEY, exposure=np.ones(T.size))
    again = th.load(panel.save(tmp_path / "counts.thiele"))
    for name in panel:
        rows = name == KEY
        alone = model.fit(T[rows], counts[rows], exposure=np.ones(int(np.sum(rows))))
        assert panel[name].objective == pytest.approx(alone.objective, abs=1e-2)
        np.testing.assert_allclose(
            panel[name].loo(), panel[name].model.condition(T[rows], counts[rows]).loo(), atol=1e-4
        )
        new = np.array([1.0, 13.0])
        np.testing.assert_allclose(again[name].predict(new).mean, panel[name].predict(new).mean, rtol=1e-8)


def test_what_is_wrong_names_the_series():
    with pytest.raises(ValueError, match="series 'b': `y` must hold at least one observed value"):
        th.fit_panel(MODEL, T, np.where(KEY == "b", np.nan, Y), KEY)
    with pytest.raises(ValueError, match="`key` must have one entry for each row"):
        th.fit_panel(MODEL, T, Y, KEY[:-1])
    with pytest.raises(ValueError, match="of time alone"):
        th.fit_panel(th.GP(th.SpaceTime(time=th.Matern32(), space=th.spatial.RBF())), T, Y, KEY)
    with pytest.raises(ValueError, match="no inducing times"):
        th.fit_panel(th.GP(th.Matern32(), inducing=5), T, Y, KEY)


def conditioned(**fits):
    return th.Panel(
        {
            key: th.GP(th.Matern12(1.0, 1.0), th.Gaussian(0.1), mean=0.0).condition([0.0, 1.0], y)
            for key, y in fits.items()
        }
    )


def test_a_file_of_a_panel_that_is_not_whole_or_too_new_is_refused(tmp_path):
    panel = conditioned(a=[1.0, 2.0], b=[2.0, 3.0])
    path = panel.save(tmp_path / "two.thiele")
    assert th.load(path)["b"].predict([0.5]).mean == pytest.approx(panel["b"].predict([0.5]).mean)
    whole = path.read_bytes()
    for cut in range(1, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(NotSaved):
            th.load(path)
    contents, arrays = unpacked(whole, path, {"thiele panel": 1})
    unknown = [contents["fits"][0], {**contents["fits"][1], "model": {"is": "kernels.Later"}}]
    for said, words in [
        ({"version": 2}, "written by a newer thiele, in format 2"),
        ({"keys": ["a"]}, "one fit for each of its keys"),
        ({"fits": unknown}, "series 'b', holds 'kernels.Later', which this version"),
        ({"fits": [{}, {}]}, "series 'a', is damaged: KeyError"),
    ]:
        path.write_bytes(packed(Archive({**contents, **said}, arrays)))
        with pytest.raises(NotSaved, match=words):
            th.load(path)
    with pytest.raises(TypeError, match="text or numbers"):
        th.Panel({(1, 2): panel["a"]}).save(path)


def test_searches_that_go_together_arrive_where_each_would():
    centres = np.array([[1.0, -2.0], [3.0, 0.5], [0.0, 0.0]])
    curves = np.array([[1.0, 100.0], [10.0, 0.1], [1.0, 1.0]])

    def evaluate(x):
        gap = x - centres
        value = -np.sum(curves * np.cosh(gap), axis=1)
        value[1] = np.where(np.abs(gap[1, 0]) > 2.5, np.nan, value[1])  # a step to nowhere is taken back
        return Evaluations(value, -curves * np.sinh(gap))

    start = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    found = maximise_together(evaluate, start, tolerance=1e-6, max_steps=100)
    np.testing.assert_allclose([one.vector for one in found], centres, atol=1e-5)
    assert all(one.converged for one in found)
    assert np.all(np.diff(found[0].trace.objective) >= 0.0)
    assert len(found[2].trace.objective) == 1
    stopped = maximise_together(evaluate, start, tolerance=1e-6, max_steps=1)
    assert not stopped[0].converged
