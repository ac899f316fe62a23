"""Instants that are numbers of seconds, milliseconds, microseconds or nanoseconds; and files that mix them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.local.errors import TableFileError
from cluster.local.file_instants import NEW_YEAR_1971_US, Notation, TimeUnit
from cluster.local.joined_files import JoinedFiles
from cluster.local.stream_files import StreamFile
from cluster.local.table_files import open_table
from tests.cluster.local.test_try_command import run

SEVEN_US = 1_330_585_200_000_000
"""2012-03-01T07:00:00Z."""
S, MS, US, NS = TimeUnit
EXACT = {S: 10**6, MS: 10**3, US: 1}


def opened(path: Path, unit: TimeUnit | None = None) -> StreamFile:
    return StreamFile(open_table(path, instants="time"), notation=Notation(unit))


def stamps(path: Path, unit: TimeUnit | None = None) -> list[int]:
    file = opened(path, unit)
    file.check()
    return [row[0] for batch in file.batches(["x"]) for row in batch.iter_rows()]


@pytest.mark.parametrize(
    ("unit", "written"),
    [(S, 1_330_585_200), (MS, 1_330_585_200_000), (US, SEVEN_US), (NS, SEVEN_US * 1_000), (NS, SEVEN_US * 1_000 + 999)],
)
def test_whole_numbers_are_of_the_unit_that_is_given(tmp_path: Path, unit: TimeUnit, written: int) -> None:
    (tmp_path / "a.csv").write_text(f"time,x\n{written},1\n")
    (tmp_path / "a.jsonl").write_text(f'{{"time": {written}, "x": 1}}\n')
    pl.DataFrame({"time": [written], "x": [1]}).write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert stamps(tmp_path / name, unit) == [SEVEN_US], name


def test_decimals_are_read_where_a_unit_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n1330585200.123457,1\n-0.5,2\n 7.00000099 ,3\n")
    (tmp_path / "a.jsonl").write_text('{"time": 1330585200.25, "x": 1}\n')
    pl.DataFrame({"time": [1_330_585_200_250.5], "x": [1]}).write_parquet(tmp_path / "a.parquet")
    assert sorted(stamps(tmp_path / "a.csv", S)) == [-500_000, 7_000_000, SEVEN_US + 123_457]
    assert stamps(tmp_path / "a.jsonl", S) == [SEVEN_US + 250_000]
    assert stamps(tmp_path / "a.parquet", MS) == [SEVEN_US + 250_500]
    with pytest.raises(TableFileError, match="holds float64, not whole numbers") as caught:
        stamps(tmp_path / "a.jsonl")
    assert "--time-unit" in str(caught.value.hint)


@given(
    st.sampled_from(list(TimeUnit)),
    st.lists(st.from_regex(r"\A[+-]?[0-9]{1,14}(\.[0-9]{1,9})?\Z"), min_size=1, max_size=5),
)
def test_texts_are_read_to_the_last_digit(unit: TimeUnit, texts: list[str]) -> None:
    def exact(text: str) -> int | None:
        sign = -1 if text.startswith("-") else 1
        whole, _, rest = text.lstrip("+-").partition(".")
        if unit is NS:
            return sign * int(whole) // 1_000
        found = sign * math.floor(Fraction(f"{whole}.{rest or 0}") * EXACT[unit])
        return found if abs(int(whole) * EXACT[unit]) <= 2**62 else None

    assert unit.of_texts(pl.Series(texts)).to_list() == [*map(exact, texts)]


def test_instants_beyond_all_calendars_are_refused_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n1,1\n9223372036854775807,2\n")
    for unit in (S, MS, US):
        with pytest.raises(TableFileError, match=r"1 row of .* without an instant .*: line 3"):
            stamps(tmp_path / "a.csv", unit)


def test_written_instants_stand_beside_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n2012-03-01T07:00:00,1\n1330585201,2\n")
    assert stamps(tmp_path / "a.csv", S) == [SEVEN_US, SEVEN_US + 1_000_000]


def test_instants_with_a_unit_of_their_own_get_no_other(tmp_path: Path) -> None:
    times = pl.Series([SEVEN_US]).cast(pl.Datetime("us"))
    pl.DataFrame({"time": times, "x": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(TableFileError, match="which has a unit of its own"):
        opened(tmp_path / "a.parquet", S)


MIXED = {
    "a.csv": ("time,x\n1330560000,1\n1330560060000000,2\n", r"line 2 \('1330560000'\)"),
    "b.csv": ("time,x\n2012-03-01T07:00:00,1\n\n1330560060000,2\n", r"line 4 \('1330560060000'\)"),
    "c.jsonl": ('{"time": 1330560000000000, "x": 1}\n{"time": 1330560000, "x": 2}\n', r"line 2 \(1330560000\)"),
    "d.csv": (f"time,x\n0,1\n{NEW_YEAR_1971_US},2\n", r"line 2 \('0'\)"),
}


@pytest.mark.parametrize("name", MIXED)
def test_numbers_on_both_sides_of_1971_are_refused(tmp_path: Path, name: str) -> None:
    text, place = MIXED[name]
    (tmp_path / name).write_text(text)
    reason = rf"{name} has stamps before 1971 beside later ones: {place}; whole numbers are microseconds since 1970"
    with pytest.raises(TableFileError, match=reason) as caught:
        stamps(tmp_path / name)
    assert str(caught.value.hint).startswith("--time-unit s (ms, us or ns) says what numbers are")
    assert len(stamps(tmp_path / name, US)) == 2, "a unit was given"


def test_nanoseconds_beside_microseconds_are_refused(tmp_path: Path) -> None:
    far = 1_709_251_200_000_000_000
    (tmp_path / "a.csv").write_text(f"time,x\n{SEVEN_US},1\n{far},2\n")
    pl.DataFrame({"time": [SEVEN_US, far], "x": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    for name, place in (("a.csv", "line 3"), ("a.parquet", "row 2")):
        with pytest.raises(TableFileError, match=f"has stamps after 2261 beside earlier ones: {place} ") as caught:
            stamps(tmp_path / name)
        assert str(caught.value.hint).startswith("--time-unit s (ms, us or ns) says what numbers are")
        assert stamps(tmp_path / name, US) == [SEVEN_US, far]
    (tmp_path / "a.csv").write_text(f"time,x\n{SEVEN_US},1\n9999-12-31,2\n")
    assert len(stamps(tmp_path / "a.csv")) == 2, "an instant that is written is in no doubt"
    (tmp_path / "a.csv").write_text(f"time,x\n1960-01-01,1\n{SEVEN_US},2\n{far},2\n")
    with pytest.raises(TableFileError, match="after 2261 beside earlier ones: line 4 "):
        stamps(tmp_path / "a.csv")


def test_rows_of_parquet_are_named_too(tmp_path: Path) -> None:
    times = [1_330_560_060_000_000, *range(1_330_560_000, 1_330_560_007)]
    pl.DataFrame({"time": times, "x": [1] * 8}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(TableFileError, match=r"row 2 \(1330560000\), 3 .*, 6 \(1330560004\) and 2 more; whole"):
        stamps(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "text",
    [
        "time,x\n1960-01-01,1\n2012-03-01,2\n",
        f"time,x\n0,1\n{NEW_YEAR_1971_US - 1},2\n",
        f"time,x\n1960-01-01,1\n{SEVEN_US},2\n",
        "time,x\n",
    ],
    ids=["written", "in 1970", "an old one that is written", "no rows"],
)
def test_stamps_that_can_be_right_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert len(stamps(tmp_path / "a.csv")) == len(text.splitlines()) - 1


def test_files_of_one_stream_have_one_unit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n1330560000,1\n")
    (tmp_path / "b.csv").write_text("time,x\n1330560060000000,2\n")
    joined = JoinedFiles([opened(tmp_path / name) for name in ("b.csv", "a.csv")])
    reason = r"a.csv has stamps before 1971, and other files have later ones: line 2 \('1330560000'\)"
    with pytest.raises(TableFileError, match=reason):
        joined.check()
    assert JoinedFiles([opened(tmp_path / name, US) for name in ("a.csv", "b.csv")]).check()


def test_the_command_takes_a_unit_for_all_streams_or_for_some(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n1330585200,1\n")
    (tmp_path / "b.csv").write_text("time,y\n1330585200000,2\n")
    of_each = ("--on", f"a={tmp_path / 'a.csv'}", "--on", f"b={tmp_path / 'b.csv'}", "--time-unit", "b=ms")
    found = run("SELECT a.x, b.y FROM a, b", *of_each, "--time-unit", "s")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines()[1:] == ["2012-03-01T07:00:00.000000Z  2012-03-01T07:00:00.000001Z  1  2"]
    assert found.stderr == ""
    mixed = run("SELECT a.x, b.y FROM a, b", *of_each)
    assert "begins and ends in 1970" in mixed.stderr
    assert "unless --time-unit s (or ms, us, ns) says what they are" in mixed.stderr
    assert re.search(r"--time-unit.*\[STREAM=\]s\|ms\|us\|ns", run("--help").stdout)
