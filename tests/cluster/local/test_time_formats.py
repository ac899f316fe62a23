"""Instants that are written in formats of their own, and by clocks of a time zone."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path

import polars as pl
import pytest

from cluster.local.file_instants import TimeFormat, guessed_formats
from tests.cluster.local.test_try_command import run


def stamps(path: Path, *options: str) -> list[str]:
    result = run("SELECT v FROM s", "--on", str(path), "--format", "json", *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["start"].removesuffix("Z") for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("written", "given", "stamp"),
    [
        ("01.03.2024 00:30:05", "%d.%m.%Y %H:%M:%S", "2024-03-01T00:30:05.000000"),
        (" 1.3.2024 00:30 ", "%d.%m.%Y %H:%M", "2024-03-01T00:30:00.000000"),
        ("03/01/2024 12:30 PM", "%m/%d/%Y %I:%M %p", "2024-03-01T12:30:00.000000"),
        ("03/01/2024 12:30 AM", "%m/%d/%Y %I:%M %p", "2024-03-01T00:30:00.000000"),
        ("01.03.2024", "%d.%m.%Y", "2024-03-01T00:00:00.000000"),
        ("01.03.2024 00:30:05.25", "%d.%m.%Y %H:%M:%S.%f", "2024-03-01T00:30:05.250000"),
        ('"01.03.2024 00:30:05,25"', "%d.%m.%Y %H:%M:%S,%f", "2024-03-01T00:30:05.250000"),
        ("01.03.2024 00:30 +0100", "%d.%m.%Y %H:%M %z", "2024-02-29T23:30:00.000000"),
        ("20240301003005", "%Y%m%d%H%M%S", "2024-03-01T00:30:05.000000"),
    ],
)
def test_instants_are_read_in_the_format_that_is_given(tmp_path: Path, written: str, given: str, stamp: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time,v\n{written},1\n")
    assert stamps(path, "--time-format", given) == [stamp]


def test_whole_numbers_of_parquet_may_have_a_format(tmp_path: Path) -> None:
    pl.DataFrame({"time": [20240301], "v": [1]}).write_parquet(tmp_path / "a.parquet")
    assert stamps(tmp_path / "a.parquet", "--time-format", "%Y%m%d") == ["2024-03-01T00:00:00.000000"]
    pl.DataFrame({"time": [date(2024, 3, 1)], "v": [1]}).write_parquet(tmp_path / "b.parquet")
    refused = run("SELECT v FROM s", "--on", str(tmp_path / "b.parquet"), "--time-format", "%Y%m%d")
    assert "column 'time' of" in refused.stderr
    assert "holds date, no texts" in refused.stderr


@pytest.mark.parametrize(
    ("texts", "formats"),
    [
        (["01.03.2024 00:00:00"], ["%d.%m.%Y %H:%M:%S"]),
        (["01.03.2024 00:00", "13.03.2024 00:00"], ["%d.%m.%Y %H:%M"]),
        (["03/01/2024 12:30 PM"], ["%m/%d/%Y %I:%M %p", "%d/%m/%Y %I:%M %p"]),
        (["03/01/2024 12:30:00", "13/01/2024 12:30:00"], ["%d/%m/%Y %H:%M:%S"]),
        (["03/13/2024"], ["%m/%d/%Y"]),
        (["Fri Mar  1 01:02:03 2024"], ["%a %b %d %H:%M:%S %Y"]),
        (["2024-03-01 01:02:03,123"], ["%Y-%m-%d %H:%M:%S,%f"]),
        (["01.03.2024 00:00", "never"], []),
        (["12.5"], []),
        ([], []),
    ],
)
def test_a_hint_names_the_format(tmp_path: Path, texts: list[str], formats: list[str]) -> None:
    assert guessed_formats(texts) == formats
    (tmp_path / "a.csv").write_text("time;v\n" + "".join(f"{each};1\n" for each in [*texts, ""]))
    refused = run("SELECT v FROM s", "--on", str(tmp_path / "a.csv"), "--separator", ";")
    assert refused.exit_code == 1
    hint = refused.stderr.splitlines()[-1].removeprefix("hint:  ")
    expected = " or ".join(f"--time-format '{each}'" for each in formats) + " reads them"
    assert hint == expected if formats else hint.startswith("instants are written as 2012-03-01T07:30:00")


def test_each_stream_may_have_a_format_and_a_zone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n01.03.2024 01:00,1\n")
    (tmp_path / "b.csv").write_text("time,y\n2024-03-01T00:00,2\n")
    files = ("--on", f"a={tmp_path / 'a.csv'}", "--on", f"b={tmp_path / 'b.csv'}")
    found = run(
        "SELECT a.x, b.y FROM a, b", *files, "--time-format", "A=%d.%m.%Y %H:%M", "--time-zone", "a=Europe/Berlin"
    )
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.splitlines()[1].split()[2:] == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--time-format", "%Q"), "'%Q' is no format of instants"),
        (("--time-format", "%H:%M"), "'%H:%M' is no format of instants"),
        (("--time-format", "%d.%m.%Y %I:%M"), "is no format of instants"),
        (("--time-format", "%d.%m.%Y", "--time-unit", "s"), "numbers of a unit or written in a format"),
        (("--time-zone", "Europe/Berln"), "there is no time zone 'Europe/Berln': did you mean Europe/Berlin?"),
    ],
)
def test_wrong_formats_and_zones_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    (tmp_path / "a.csv").write_text("time,v\n01.03.2024,1\n")
    refused = run("SELECT v FROM s", "--on", str(tmp_path / "a.csv"), *options)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.replace("│", " ").split())


BERLIN = ("--time-zone", "Europe/Berlin")


def test_instants_without_an_offset_are_those_of_clocks_in_a_zone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "time,v\n2024-03-31T01:59:59,1\n2024-03-31 03:00,2\n2024-07-01,3\n2024-07-01T00:00:00Z,4\n1720000000000000,5\n"
        "2024-10-27T02:30:00,6\n"
    )
    found = stamps(path, *BERLIN)
    assert [each.removesuffix(":00.000000") for each in found] == [
        "2024-03-31T00:59:59.000000", "2024-03-31T01:00", "2024-06-30T22:00", "2024-07-01T00:00",
        "2024-07-03T09:46:40.000000", "2024-10-27T00:30",
    ]  # fmt: skip
    times = pl.Series([datetime(2024, 7, 1, 2)])  # noqa: DTZ001 - clocks of a zone
    pl.DataFrame({"time": times, "v": [1]}).write_parquet(tmp_path / "a.parquet")
    assert stamps(tmp_path / "a.parquet", *BERLIN) == ["2024-07-01T00:00:00.000000"]
    zoned = pl.DataFrame({"time": times.dt.replace_time_zone("UTC"), "v": [1]})
    zoned.write_parquet(tmp_path / "b.parquet")
    assert stamps(tmp_path / "b.parquet", *BERLIN) == ["2024-07-01T02:00:00.000000"]


@pytest.mark.parametrize(("written", "options"), [("2024-03-31T02:30", ()), ("31.03.2024 02:30", ("%d.%m.%Y %H:%M",))])
def test_instants_that_no_clock_shows_are_refused(tmp_path: Path, written: str, options: tuple[str, ...]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time,v\n{written.replace('02:', '01:')},1\n{written},1\n")
    refused = run(
        "SELECT v FROM s", "--on", str(path), *BERLIN, *(each for text in options for each in ("--time-format", text))
    )
    assert refused.exit_code == 1
    assert f"line 3 ('{written}')" in refused.stderr
    assert "exist in Europe/Berlin" in refused.stderr


@pytest.mark.parametrize(
    ("written", "warned"),
    [("2024-03-01T00:00", True), ("2024-03-01", True), ("2024-03-01T00:00Z", False), ("1720000000000000", False)],
)
def test_a_query_for_a_zone_and_stamps_without_one_are_a_warning(tmp_path: Path, written: str, warned: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time,v\n{written},1\n")
    query = ("SELECT v, STAMP() at time zone 'Europe/Berlin' AS t FROM s", "--on", str(path))
    assert ("have no zone, and are read as UTC: --time-zone" in run(*query).stderr) == warned
    assert run(*query, "--time-zone", "UTC").stderr == ""
    assert run("SELECT v FROM s", "--on", str(path)).stderr == ""


def test_a_format_is_that_of_python() -> None:
    moment = datetime(2024, 3, 1, 14, 5, 6, 250_000)  # noqa: DTZ001 - clocks of a zone
    for each in ("%d.%m.%y %H:%M:%S.%f", "%j/%Y %I.%M.%S %p", "%b %d, %Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S,%f"):
        read = TimeFormat(each).read(pl.Series([moment.strftime(each)])).cast(pl.Datetime("us"))[0]
        assert read == (moment if "%f" in each else moment.replace(microsecond=0)), each
        assert TimeFormat(each).fault is None
