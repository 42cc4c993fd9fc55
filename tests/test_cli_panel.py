"""The command line on many series: `--key` tells them apart, and every table has its column."""

import csv
import io

import numpy as np
import pytest

import thiele as th
from tests.test_cli import rows, thiele, written, wrong

DAYS = np.datetime64("2024-01-01") + np.arange(24)
HEADER = "day,sales,shop"


def shops(lengths):
    """Rows of several shops, one after the other: each a wave of its own."""
    rng = np.random.default_rng(3)
    cells = []
    for k, (shop, n) in enumerate(lengths.items()):
        values = np.sin(np.arange(n) / (3.0 + k)) + k + 0.1 * rng.standard_normal(n)
        cells += [(DAYS[i], f"{values[i]:.4f},{shop}") for i in range(n)]
    return rows(*zip(*cells, strict=True), header=HEADER)


def table(done):
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_many_series_are_fitted_saved_forecast_and_predicted_with_their_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, shops({"north": 20, '"south, east"': 24, "7": 22}), "shops.csv")
    done = thiele("fit", "shops.csv", "--key", "shop", "--season", "none", "--plot", "shops.png")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Panel of 3 series, 3 converged")
    assert "66 rows, times from 'day', values from 'sales'" in done.stderr
    assert "3 series by 'shop'; one model, chosen for the longest, 'south, east'" in done.stderr
    assert (tmp_path / "shops.png").stat().st_size > 10_000
    panel = th.load("shops.thiele")

    found = table(thiele("forecast", "shops.thiele", "--horizon", "2 days"))
    assert [row["shop"] for row in found] == ["north"] * 2 + ["south, east"] * 2 + ["7"] * 2
    assert found[0]["time"] == "2024-01-21"  # each goes on after its own last day
    assert found[2]["time"] == "2024-01-25"
    expected = panel["7"].forecast("2 days")["mean"]
    np.testing.assert_allclose([float(row["mean"]) for row in found[4:]], expected, rtol=1e-5)

    found = table(thiele("predict", "shops.thiele", "--at", "2024-01-03"))
    assert [row["shop"] for row in found] == ["north", "south, east", "7"]

    assert wrong(thiele("report", "shops.thiele"), "holds 3 series", "--only", "north, south, east, 7")
    assert wrong(thiele("report", "shops.thiele", "--only", "west"), "no series 'west'")
    assert wrong(thiele("forecast", "shops.thiele", "--horizon", "1", "--key", "shop"), "is a saved fit")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (shops({"a": 5}), ["--key", "Shop"], ("no column 'Shop' for the keys", "did you mean 'shop'?")),
        (shops({"a": 5, "b": 2}), ["--key", "shop"], ("series 'b' of 'shop'", "2 value(s)", "at least 3")),
        (shops({"a": 5}), ["--share"], ("--share needs --key",)),
        (shops({"a": 5}).replace(",a\n", ",\n", 2), ["--key", "shop"], ("line 2", "the key is missing (and 1 more)")),
        ("day,shop\n2024-01-01,a\n", ["--key", "shop"], ("one column beside 'shop'",)),
        (
            "day,n,shop\n" + "".join(f"{d},{y},{s}\n" for s, y in (("a", 1), ("b", -1)) for d in DAYS[:3]),
            ["--key", "shop", "--likelihood", "poisson"],
            ("series 'b'", "Poisson", "integer"),
        ),
    ],
)
def test_what_is_wrong_with_keys_is_said_in_words(tmp_path, text, options, words):
    assert wrong(thiele("fit", written(tmp_path, text), *options), *words)
