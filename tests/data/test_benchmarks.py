import numpy as np
import pytest

from thiele import data
from thiele.data import files


def here(name):
    """Whether the file of a benchmark set can be found on this machine."""
    try:
        files.find(name)
    except FileNotFoundError:
        return False
    return True


def needs(name):
    return pytest.mark.skipif(not here(name), reason=f"{name} is not on this machine")


LOADERS = {
    "airline_accidents.csv": data.airline,
    "banana.csv": data.banana,
    "coal_folds.csv": lambda: data.folds("coal"),
    "electricity.npz": data.electricity,
    "motorcycle_folds.csv": lambda: data.folds("motorcycle"),
    "speech_female.npz": data.audio,
}


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No file of any benchmark set can be found."""
    empty = tmp_path / "empty"
    monkeypatch.setattr(files, "folders", lambda: [empty])
    return empty


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_file_gives_an_error_that_says_where_and_whence(nowhere, name):
    with pytest.raises(FileNotFoundError) as error:
        LOADERS[name]()
    message = str(error.value)
    assert name in message
    assert str(nowhere) in message
    assert files.FILES[name].source in message
    assert "THIELE_DATA" in message


def test_every_file_is_read_by_a_loader_but_the_one_that_is_made():
    assert set(files.FILES) - set(LOADERS) == {"binary_synthetic.npz"}


def test_a_file_that_was_changed_is_refused(monkeypatch, tmp_path):
    (tmp_path / "banana.csv").write_text("x1,x2,label\n0,0,1\n")
    monkeypatch.setenv("THIELE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="is not the file that was published: expected sha256 3b4bb4a4"):
        data.banana()


def test_the_variable_comes_first_and_the_cache_last(monkeypatch, tmp_path):
    monkeypatch.setenv("THIELE_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    places = files.folders()
    assert places[0] == tmp_path / "mine"
    assert places[-1] == tmp_path / "cache" / "thiele"
    assert all(place.parts[-2:] == ("shared", "data") for place in places[1:-1])


def test_binary_needs_no_file(nowhere):
    series = data.binary()
    assert series.time.shape == (10_000,)
    np.testing.assert_allclose(series.time[[0, -1]], [0.086, 6999.94], atol=5e-3)
    assert [fold[0] for fold in data.folds("binary")][:1] == [6665]


@needs("binary_synthetic.npz")
def test_binary_made_here_equals_the_published_file():
    with np.load(files.find("binary_synthetic.npz")) as published:
        np.testing.assert_array_equal(data.binary().value, published["y"])
        np.testing.assert_allclose(data.binary().time, published["x"], rtol=1e-12)
        np.testing.assert_array_equal(np.concatenate(data.folds("binary")), published["fold_permutation"])


@needs("banana.csv")
def test_banana_has_labels_zero_and_one():
    table = data.banana()
    assert table.inputs.shape == (5300, 2)
    assert np.bincount(table.label).tolist() == [2924, 2376]
    np.testing.assert_allclose(table.inputs.std(axis=0), 1.0, atol=0.01)


@needs("airline_accidents.csv")
def test_airline_counts_are_those_of_the_published_experiments():
    events, counts = data.airline(), data.airline_counts()
    assert (events.time[0], events.time[-1], len(events.time)) == (701102, 737060, 1210)
    assert len(counts.time) == len(counts.value) == 36_020
    assert np.bincount(counts.value).tolist() == [34_839, 1155, 24, 1, 1]
    assert len(data.airline_counts(padding=0).time) == 35_959


@needs("speech_female.npz")
def test_audio_is_half_a_second():
    series = data.audio()
    assert series.time.shape == series.value.shape == (22_050,)
    assert series.time[-1] == 500.0
    np.testing.assert_allclose(series.value.std(), 2.514, atol=1e-3)


@needs("electricity.npz")
def test_electricity_marks_what_is_missing():
    series = data.electricity()
    missing = np.isnan(series.value)
    assert (len(series.value), missing.sum()) == (282_636, 3775)
    np.testing.assert_allclose(np.diff(series.time), 1 / 1440, rtol=1e-6)
    observed = series.value[~missing][:262_080]
    np.testing.assert_allclose([observed.mean(), observed.std()], [1.257, 1.229], atol=1e-3)


FIRST_FIVE = {
    "airline": [24715, 28814, 13183, 6938, 14553],
    "audio": [5333, 13469, 1598, 8916, 15136],
    "banana": [3705, 3575, 2726, 4995, 3667],
    "binary": [6665, 373, 5560, 8991, 4979],
    "electricity": [58021, 157702, 144966, 208907, 166436],
}


@pytest.mark.parametrize("name", FIRST_FIVE)
def test_seeded_folds_are_the_published_ones(name):
    folds = data.folds(name)
    assert folds[0][:5].tolist() == FIRST_FIVE[name]
    assert len(np.unique(np.concatenate(folds))) == sum(map(len, folds))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("motorcycle", 13, marks=needs("motorcycle_folds.csv")),
        pytest.param("coal", 33, marks=needs("coal_folds.csv")),
    ],
)
def test_published_folds_leave_out_the_last_three(name, size):
    folds = data.folds(name)
    assert [len(fold) for fold in folds] == [size] * 10
    assert len(np.unique(np.concatenate(folds))) == 10 * size


def test_folds_of_an_unknown_set_are_refused():
    with pytest.raises(ValueError, match=r"`name` must be one of .* got 'iris'"):
        data.folds("iris")
