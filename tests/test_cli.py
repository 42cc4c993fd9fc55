"""The command line: results on the standard output, remarks beside, and errors by file, column and line."""

import csv
import io
import os
import subprocess
import sys

import numpy as np
import pytest

typer = pytest.importorskip("typer")
from typer.testing import CliRunner  # noqa: E402

import thiele as th  # noqa: E402
from thiele.cli import app  # noqa: E402
from thiele.reading import Problem, choose, read, times  # noqa: E402

DAYS = [str(np.datetime64("2024-01-01") + k) for k in range(40)]
VALUES = np.round(np.sin(np.arange(40) / 5.0) + 0.1 * np.random.default_rng(0).standard_normal(40), 4)


def thiele(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def written(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return path


def rows(times, values, header="date,value"):
    return "\n".join([header, *(f"{t},{y}" for t, y in zip(times, values, strict=True))]) + "\n"


def wrong(result, *words):
    assert result.exit_code == 3, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    return True


def test_from_a_file_to_a_fit_a_forecast_and_predictions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, rows(DAYS, VALUES), "power.csv")
    done = thiele("fit", "power.csv", "--season", "none", "--plot", "power.png")
    assert done.exit_code == 0, done.output
    assert "40 observations, from 2024-01-01" in done.stdout
    assert "likelihood Gaussian" in done.stdout
    assert "times from 'date', values from 'value'" in done.stderr
    assert (tmp_path / "power.png").stat().st_size > 10_000
    fit = th.load("power.thiele")

    done = thiele("forecast", "power.thiele", "--horizon", "3 days")
    assert done.exit_code == 0
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["time"] for row in found] == ["2024-02-10", "2024-02-11", "2024-02-12"]
    expected = fit.forecast("3 days")
    np.testing.assert_allclose([float(row["mean"]) for row in found], expected["mean"], rtol=1e-5)

    done = thiele("predict", "power.thiele", "--at", "2024-01-03 12:00", "--level", "0.5", "--out", "at.parquet")
    assert done.exit_code == 0
    table = pytest.importorskip("pyarrow.parquet").read_table("at.parquet")
    assert table.column_names == ["time", "mean", "sd", "lower", "upper"]
    assert table.num_rows == 1

    written(tmp_path, "when\n2024-01-05\n2024-03-01\n", "when.csv")
    done = thiele("predict", "power.thiele", "when.csv", "--out", "found.csv", "--quiet")
    assert done.exit_code == 0
    assert done.output == ""
    assert (tmp_path / "found.csv").read_text().splitlines()[1].startswith("2024-01-05,")

    assert thiele("forecast", "power.thiele", "--horizon", "seven").exit_code == 3
    assert thiele("forecast", "power.thiele").exit_code == 2


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = written(tmp_path, rows(DAYS, VALUES, "date,Power"))
    assert wrong(
        thiele("fit", path, "--value", "power"), "no column 'power'", "'date', 'Power'", "did you mean 'Power'?"
    )


def test_text_among_numbers_is_named_by_column_and_line(tmp_path):
    values = [*VALUES[:5], "broken", *VALUES[6:38], "off", ""]
    path = written(tmp_path, rows(DAYS, values))
    assert wrong(
        thiele("fit", path), "data.csv, line 7", "column 'value'", "'broken' is no number (and 1 more)", "empty"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("is empty",)),
        ("\n\n", ("is empty",)),
        ("date,value\n", ("has a header", "but no rows")),
        ("date,value\n2024-01-01,3\n", ("1 value(s) say nothing", "at least 3")),
        (rows(DAYS[:4], ["", "NA", "", "null"]), ("column 'value'", "all 4 values are missing")),
        ("1,2\n3,4\n", ("has no header",)),
        ("date,value,value\n2024-01-01,1,2\n", ("two columns named 'value'",)),
        ("date,value\n2024-01-01,1,2\n", ("line 2", "3 cells where the header has 2", "quotes")),
        ("date,value\n2024-01-01,1\n,2\n2024-01-03,1\n", ("line 3", "the time is missing")),
        ("date,value\n2024-01-01,1\nsoon,2\n2024-01-03,1\n", ("line 3", "'soon' is no date like the others")),
        ("date,value\nsoon,1\n", ("line 2", "neither a number nor a date", "--date-format")),
        (rows(["01/02/2024", "02/02/2024", "03/02/2024"], [1, 2, 3]), ("day/month or month/day?", "--date-format")),
        ("date,a,b\n2024-01-01,1,2\n2024-01-02,1,3\n", ("which column holds the values?", "'a', 'b'", "--value a")),
        (rows(DAYS[:3], [1, "inf", 2]), ("line 3", "infinite")),
        ("date\n2024-01-01\n", ("one column",)),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_words(tmp_path, text, words):
    assert wrong(thiele("fit", written(tmp_path, text)), "data.csv", *words)


def test_files_that_are_not_there_or_not_ours(tmp_path):
    assert wrong(thiele("fit", tmp_path / "none.csv"), "does not exist")
    assert wrong(thiele("fit", tmp_path), "is a folder")
    assert wrong(thiele("forecast", written(tmp_path, "x", "bad.thiele"), "--horizon", "1"), "no saved fit")
    assert wrong(thiele("fit", written(tmp_path, "PAR1x", "bad.parquet")), "no Parquet file")
    path = written(tmp_path, rows(DAYS, VALUES))
    assert wrong(thiele("fit", path, "--likelihood", "normal"), "--likelihood must be one of gaussian")
    assert wrong(thiele("fit", path, "--likelihood", "poisson"), "Poisson", "integer")


def test_unsorted_repeated_and_missing_are_remarked_and_used(tmp_path):
    text = rows([DAYS[2], DAYS[0], DAYS[1], DAYS[1], DAYS[3]], [1, 2, 3, 4, ""])
    found = choose(read(written(tmp_path, text)))
    assert len(found.t) == 5
    assert found.remarks == (
        "rows are not in the order of time: they are sorted",
        "1 times are repeated: all their values are used",
        "1 values are missing",
    )


def column(tmp_path, cells, **how):
    return times(read(written(tmp_path, "when;y\n" + "".join(f"{c};1\n" for c in cells))), "when", **how)


@pytest.mark.parametrize(
    ("cells", "day"),
    [
        (["2024-03-31"], "2024-03-31"),
        (["2024-03"], "2024-03-01"),
        (["2024-03-31T12:00Z"], "2024-03-31T12"),
        (["2024-03-31 14:00+02:00"], "2024-03-31T12"),
        (["31.03.2024"], "2024-03-31"),
        (["2024/03/31 12:00"], "2024-03-31T12"),
        (["31/03/2024"], "2024-03-31"),
        (["03/31/2024"], "2024-03-31"),
        (["31 Mar 2024"], "2024-03-31"),
    ],
)
def test_dates_are_understood_as_they_are_written(tmp_path, cells, day):
    assert column(tmp_path, cells)[0] == np.datetime64(day)


def test_a_format_can_be_stated_and_numbers_may_have_a_decimal_comma(tmp_path):
    assert column(tmp_path, ["20240331"], date_format="%Y%m%d")[0] == np.datetime64("2024-03-31")
    with pytest.raises(Problem, match="line 3"):
        column(tmp_path, ["20240331", "x"], date_format="%Y%m%d")
    np.testing.assert_array_equal(column(tmp_path, ["1,5", "2"]), [1.5, 2.0])


def test_yes_and_no_are_one_and_zero_and_columns_are_found_by_name(tmp_path):
    found = choose(
        read(written(tmp_path, "id,rain,day\n7,yes,2024-01-01\n8,no,2024-01-02\n9,yes,2024-01-03\n")), value="rain"
    )
    assert found.time == "day"
    np.testing.assert_array_equal(found.y, [1.0, 0.0, 1.0])


def test_parquet_is_read_as_it_is(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"stamp": np.array(DAYS, dtype="datetime64[ns]"), "n": pa.array([None, *range(39)], pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet")
    found = choose(read(tmp_path / "a.parquet"))
    assert found.t[0] == np.datetime64("2024-01-01")
    assert np.isnan(found.y[0])
    assert found.y[-1] == 38.0


@pytest.mark.parametrize("command", ["fit", "predict", "forecast", "report", "demo", "bench"])
def test_every_command_has_help_and_those_on_files_an_example(command):
    done = thiele(command, "--help")
    assert done.exit_code == 0
    assert command in ("demo", "bench") or f"Example: thiele {command}" in done.output
    assert command in ("demo", "bench") or "Exit status: 0 done" in done.output


@pytest.mark.slow
def test_the_program_runs_by_itself_and_a_report_is_written(tmp_path):
    written(tmp_path, rows(DAYS, VALUES), "power.csv")
    run = lambda *a: subprocess.run(  # noqa: E731
        [sys.executable, "-m", "thiele.cli", *a],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    done = run("report", "power.csv", "--horizon", "1 week", "--season", "none")
    assert done.returncode == 0, done.stderr
    assert "open it in a browser" in done.stderr
    assert "<title>power</title>" in (tmp_path / "power.html").read_text()
    done = run("bench", "--most", "1000")
    assert done.returncode == 0, done.stderr
    assert "1,000" in done.stdout
