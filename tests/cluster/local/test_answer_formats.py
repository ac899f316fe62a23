"""Answers as CSV and Parquet: NULL and empty texts apart, timestamps as timestamps."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from cluster.local.answer_formats import csv_lines, write_parquet
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType
from tests.cluster.local.test_try_command import run

NEVER = 2**63 - 1
AT = datetime(2012, 3, 1, 7, tzinfo=UTC)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.jsonl"
    rows = [
        {"time": "2012-03-01T07:00:00", "s": 'a "b", c', "x": 1.5, "n": 7, "b": True},
        {"time": "2012-03-01T07:00:01", "s": "", "x": None, "n": None, "b": False},
        {"time": "2012-03-01T07:00:02", "s": None, "x": 1e300, "n": -3, "b": None},
        {"time": "2012-03-01T07:00:03", "s": "two\nlines", "x": 0.1, "n": 2**62, "b": None},
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


def test_csv_has_names_and_values_with_null_and_empty_texts_apart(odd: Path, tmp_path: Path) -> None:
    query = ("SELECT s, x, n, b, STAMP() AS at FROM t WINDOW(RANGE 1 SECOND)", "--on", str(odd))
    result = run(*query, "--format", "csv")
    at = [f"2012-03-01T07:00:0{second}.000000Z" for second in range(5)]
    expected = [
        "start,end,s,x,n,b,at",
        f'{at[0]},{at[1]},"a ""b"", c",1.5,7,true,{at[0]}',
        f'{at[1]},{at[2]},"",,,false,{at[1]}',
        f"{at[2]},{at[3]},,1e+300,-3,,{at[2]}",
        f'{at[3]},{at[4]},"two\nlines",0.1,4611686018427387904,,{at[3]}',
    ]
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "\n".join([*expected, ""])
    output = tmp_path / "answer.csv"
    written = run(
        "SELECT s, x, n, b, STAMP() AS at FROM t WINDOW(RANGE 1 SECOND)", "--on", str(odd), "--output", str(output)
    )
    assert (written.exit_code, output.read_text()) == (0, result.stdout)


def test_an_answer_as_csv_is_a_file_that_can_be_tried(odd: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "first.csv", tmp_path / "again.csv"
    sql = "SELECT s, x, n FROM t"
    assert run(sql, "--on", str(odd), "--output", str(first)).exit_code == 0
    tried = run(sql, "--on", str(first), "--time-column", "start", "--output", str(again))
    assert tried.exit_code == 0, tried.stderr
    assert again.read_text() == first.read_text()


def test_csv_without_rows_has_names_and_an_interval_that_never_ends_no_end(odd: Path) -> None:
    none = run("SELECT s AS start, n FROM t WHERE n > 7 AND x > 5", "--on", str(odd), "--format", "csv")
    assert none.stdout == "fjord_start,fjord_end,start,n\n"
    kept = run("SELECT n FROM t WINDOW(RANGE UNBOUNDED) WHERE n = 7", "--on", str(odd), "--format", "csv")
    assert list(csv.reader(kept.stdout.splitlines()))[1] == ["2012-03-01T07:00:00.000000Z", "", "7"]


def test_timestamps_stay_timestamps_in_parquet(odd: Path, tmp_path: Path) -> None:
    output = tmp_path / "answer.parquet"
    sql = """SELECT n, STAMP() AS at, STAMP() AT TIME ZONE 'Europe/Berlin' AS berlin, CAST(STAMP() AS TEXT) AS written,
             TIMESTAMP_SECONDS(n) AS of_n, STAMP() - TIMESTAMP '2012-03-01 06:00:00Z' AS since, s FROM t"""
    result = run(sql, "--on", str(odd), "--output", str(output))
    assert result.exit_code == 0, result.stderr
    found = pl.read_parquet(output)
    instant = pl.Datetime("us", "UTC")
    assert found.schema == {
        "start": instant, "end": instant, "n": pl.Int64, "at": instant, "berlin": pl.Datetime("us"),
        "written": pl.String, "of_n": instant, "since": pl.String, "s": pl.String,
    }  # fmt: skip
    first, second = found.drop("start", "end", "s").rows()[:2]
    written = "2012-03-01T07:00:00.000000Z"
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert first == (7, AT, datetime(2012, 3, 1, 8), written, epoch + timedelta(seconds=7), "PT1H")  # noqa: DTZ001 - local
    assert second[1:3] == (AT + timedelta(seconds=1), datetime(2012, 3, 1, 8, 0, 1))  # noqa: DTZ001 - local
    assert second[4] is None


def test_a_timestamp_stays_one_behind_ranges_and_in_intervals(odd: Path, tmp_path: Path) -> None:
    output = tmp_path / "answer.parquet"
    sql = "SELECT VALID(t) AS held, n FROM t VALID UNTIL NEXT MAX 10 MINUTES AS t"
    assert run(sql, "--on", str(odd), "--output", str(output)).exit_code == 0
    found = pl.read_parquet(output)
    assert found.schema["held_start"] == found.schema["held_end"] == pl.Datetime("us", "UTC")
    ranged = "SELECT MAX(STAMP()) AS latest FROM t WINDOW(RANGE MIN 1 SECOND, MAX 10 SECONDS SLIDE 1 SECOND)"
    result = run(ranged, "--on", str(odd), "--output", str(output))
    assert result.exit_code == 0, result.stderr
    found = pl.read_parquet(output)
    assert found.schema["latest"] == pl.Datetime("us", "UTC")
    assert found["latest"].max() == AT + timedelta(seconds=3)


def test_instants_that_no_calendar_reaches_are_kept(tmp_path: Path) -> None:
    far_us = 2**60
    rows = [f'{{"at":"{far_us}us"}}', '{"at":"0999-12-31T23:59:59.000001Z"}', '{"at":null}']
    piece = pl.DataFrame({"start_us": [0, 1, 2], "end_us": [1, NEVER, 3], "row": rows})
    columns = (Column("at", FieldType.TEXT),)
    path = tmp_path / "a.parquet"
    assert write_parquet([piece], columns, path, {"at": FieldType.TIMESTAMP}) == 3
    found = pl.read_parquet(path)["at"]
    assert found.dtype == pl.Datetime("us", "UTC")
    assert (found.to_physical()[0], found[2]) == (far_us, None)
    assert found[1] == datetime(999, 12, 31, 23, 59, 59, 1, tzinfo=UTC)
    assert list(csv_lines([piece.head(0)], columns)) == ["start,end,at"]
