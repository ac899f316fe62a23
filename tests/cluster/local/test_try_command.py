"""``fjord query try``: what it prints and writes, its warnings and its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cluster.fjord.batch import START
from cluster.local.stream_files import StreamFile
from cluster.local.table_files import open_table
from cluster.local.tried_query import Files
from cluster.local.trying import Trial, _ties
from cluster.service.publishing.result_messages import result_frames
from cluster.storage.committed_results import RESULT_SCHEMA
from protocols.command_line.application import app
from tests.cluster.service.test_publisher import messages_of

DAY = """time,sensor,speed
2012-03-01T07:00:00,a,10
2012-03-01T07:10:00,b,
2012-03-01T07:40:00,a,30.5
"""
COUNT = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor"


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    path.write_text(DAY)
    return path


def run(*arguments: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, ["query", "try", *arguments], input=text, env={"COLUMNS": "200"})


def test_names_of_any_script_are_found_in_any_normal_form(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,gro\u0308ße,_x\n5,7,1\n6,9,2\n", encoding="utf-8")
    query = "SELECT größe, _x FROM straße WHERE GRÖSSE > :grenze\u0301"
    result = run(query, "--on", f"STRASSE={tmp_path / 'a.csv'}", "--set", "GRENZÉ=8", "--type", "gro\u0308ße=REAL")
    assert result.exit_code == 0, result.stderr
    assert [each.split()[2:] for each in result.stdout.splitlines()] == [["größe", "_x"], ["9.0", "2"]]


def test_a_number_that_no_real_holds_is_refused(day: Path) -> None:
    result = run("SELECT * FROM traffic WHERE speed > :v", "--set", "v=-1e400", "--on", str(day))
    assert result.exit_code == 2
    assert "-1e400 is larger than any REAL" in result.stderr


def test_a_table_is_printed(day: Path) -> None:
    result = run("SELECT * FROM traffic", "--on", str(day))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "start                        end                          sensor  speed",
        "2012-03-01T07:00:00.000000Z  2012-03-01T07:00:00.000001Z  a        10.0",
        "2012-03-01T07:10:00.000000Z  2012-03-01T07:10:00.000001Z  b        NULL",
        "2012-03-01T07:40:00.000000Z  2012-03-01T07:40:00.000001Z  a        30.5",
    ]
    assert result.stderr == ""


def test_json_lines_are_as_they_are_published(day: Path) -> None:
    result = run("-", "--on", f"traffic={day}", "--format", "json", text=COUNT)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        found = json.loads(line)
        start, end = (round(datetime.fromisoformat(found[each]).timestamp() * 1e6) for each in ("start", "end"))
        stored = {"query": "q1", "sequence": 7, "start_us": start, "end_us": end, "kind": "row", "closes": None}
        rows = pa.RecordBatch.from_pylist([{**stored, "row": json.dumps(found["row"])}], RESULT_SCHEMA)
        (message,) = messages_of(result_frames(rows))
        published = json.loads(message.payload)
        del published["query"], published["sequence"]
        assert found == published
        assert list(found) == ["start", "end", "row"]


def test_windows_that_are_open_answer_at_the_end(day: Path) -> None:
    counted = run("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR)", "--on", str(day), "--format", "json")
    assert [(json.loads(line)["end"][11:16], json.loads(line)["row"]["n"]) for line in counted.stdout.splitlines()] == [
        ("07:10", 1),
        ("07:40", 2),
        ("08:00", 3),
        ("08:10", 2),
        ("08:40", 1),
    ]
    kept = run("SELECT sensor FROM traffic WINDOW(RANGE UNBOUNDED)", "--on", str(day), "--format", "json")
    assert [json.loads(line)["end"] for line in kept.stdout.splitlines()] == [None] * 3


def test_parquet_holds_values_of_their_types(day: Path, tmp_path: Path) -> None:
    output = tmp_path / "answer.parquet"
    sql = "SELECT sensor, speed, speed IS NULL AS nothing, 7 AS n FROM traffic WINDOW(RANGE UNBOUNDED)"
    result = run(sql, "--on", str(day), "--output", str(output))
    assert result.exit_code == 0, result.output
    found = pl.read_parquet(output)
    moment = pl.Datetime("us", "UTC")
    assert found.schema == {
        "start": moment, "end": moment, "sensor": pl.String, "speed": pl.Float64, "nothing": pl.Boolean, "n": pl.Int64,
    }  # fmt: skip
    assert found.drop("start").rows() == [
        (None, "a", 10.0, False, 7),
        (None, "b", None, True, 7),
        (None, "a", 30.5, False, 7),
    ]
    assert list(tmp_path.glob(".*")) == [], "nothing unfinished stays"
    again = run("SELECT speed AS start FROM traffic WHERE speed < 0", "--on", str(day), "--output", str(output))
    assert again.exit_code == 0
    assert pl.read_parquet(output).columns == ["fjord_start", "fjord_end", "start"], "of no rows, too"


def test_a_file_named_by_its_format_is_written(day: Path, tmp_path: Path) -> None:
    for name, first in (("a.jsonl", '{"start":'), ("a.txt", "start "), ("a", "start ")):
        assert run("SELECT * FROM traffic", "--on", str(day), "--output", str(tmp_path / name)).exit_code == 0
        assert (tmp_path / name).read_text().startswith(first)


@pytest.mark.parametrize("name", ["a.xlsx", "a.csv.gz", "a.feather"])
def test_a_suffix_of_no_format_is_refused(day: Path, tmp_path: Path, name: str) -> None:
    query = ("SELECT * FROM traffic", "--on", str(day), "--output", str(tmp_path / name))
    refused = run(*query)
    assert refused.exit_code == 2
    assert ".parquet, .csv, .jsonl, .ndjson, .json, .txt" in " ".join(refused.stderr.replace("│", " ").split())
    assert "--format" in refused.stderr
    assert not (tmp_path / name).exists()
    assert run(*query, "--format", "csv").exit_code == 0
    assert (tmp_path / name).read_text().startswith("start,end,")


def test_a_file_of_text_is_read_as_csv_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("time;x\n2012-03-01;1\n")
    found = run("SELECT x FROM s", "--on", str(tmp_path / "a.txt"), "--separator", ";")
    assert found.exit_code == 0
    assert found.stderr == f"warning: {tmp_path / 'a.txt'} is read as CSV, values separated by semicolons\n"


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ('SELECT v FROM s WHERE sensor = "kitchen"', "a text goes into single quotes: 'kitchen'"),
        ("SELECT SUM(door) AS n FROM s WINDOW(RANGE 1 HOUR)", "COUNT(*) FILTER (WHERE x) counts where it is true"),
        ("SELECT v FROM s WHERE STAMP() > '2024-03-31 02:30'", "a timestamp is written TIMESTAMP '2024-03-31 02:30'"),
        ("SELECT s.v FROM s, r WHERE s.v = r.v", "--text v reads it as TEXT in every file"),
        ("SELECT s.v FROM s JOIN r ON r.id = s.sensor", "--text id reads it as TEXT in every file"),
    ],
)
def test_a_hint_is_about_what_was_probably_meant(tmp_path: Path, sql: str, hint: str) -> None:
    (tmp_path / "s.csv").write_text("time,sensor,v,door\n2024-03-01,a,1,true\n")
    (tmp_path / "r.csv").write_text("v,id\nx,1\n")
    result = run(sql, "--on", f"s={tmp_path / 's.csv'}", "--relation", f"r={tmp_path / 'r.csv'}")
    assert result.exit_code == 1
    assert hint in result.stderr.splitlines()[-1]


def test_a_period_off_the_stamps_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,v\n2024-03-01T00:00:03,1\n2024-03-01T00:01:03,2\n")
    query = ("SELECT v FROM s SAMPLE EVERY 1 MINUTE", "--on", str(path))
    result = run(*query)
    assert (result.exit_code, result.stdout) == (0, "no rows\n")
    assert "SAMPLE EVERY 1 MINUTE takes the tuples stamped at whole multiples of it, and" in result.stderr
    assert "has none: its first is stamped 2024-03-01T00:00:03.000000Z" in result.stderr
    path.write_text("time,v\n2024-03-01T00:00:03,1\n2024-03-01T00:01:00,2\n")
    assert run(*query).stderr == ""


def test_sessions_that_the_default_cuts_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def session(last_hour: int, more: str = "") -> str:
        hours = (f"2024-03-0{1 + hour // 24}T{hour % 24:02}:00,a\n" for hour in range(last_hour + 1))
        path.write_text("time,sensor\n" + "".join(hours) + more)
        sql = "SELECT sensor, COUNT(*) AS n FROM s WINDOW(SESSION GAP 1 HOUR{} PARTITION BY sensor) GROUP BY sensor"
        found = run(sql.format(""), "--on", str(path))
        assert found.exit_code == 0, found.stderr
        assert run(sql.format(" MAX 7 DAYS"), "--on", str(path)).stderr == ""
        return str(found.stderr)

    assert "sessions of s are cut after 1 DAY, although tuples go on: SESSION GAP ... MAX 7 DAYS" in session(24)
    assert session(23) == ""
    assert session(23, "2024-03-02T00:00,b\n2024-03-03T00:00,a\n") == "", "of another sensor, and a session later"
    others = "".join(f"2024-03-01T{hour:02}:00,b\n" for hour in range(1, 24))
    assert session(0, f"{others}2024-03-02T00:00,a\n") == "", "the tuples between are of another sensor"


def test_the_help_of_explain_names_what_it_needs() -> None:
    shown = " ".join(CliRunner().invoke(app, ["query", "explain", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "It needs a running cluster" in shown


def test_odd_files_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("at,x y,z\n2012-03-02,1,1\n2012-03-01,2,2\n")
    result = run("SELECT z FROM s SINCE 1 HOUR AGO", "--on", str(path), "--time-column", "at", "--format", "json")
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [{"z": 2}, {"z": 1}]
    warned = result.stderr.splitlines()
    assert [line.startswith("warning: ") for line in warned] == [True] * 3
    for text in (
        "SINCE changes nothing here",
        "'x y' is x_y in FjordSQL",
        "is not in the order of its stamps",
    ):
        assert sum(text in line for line in warned) == 1


def test_a_relation_is_looked_up(day: Path, tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("sensor,km\na,3\n")
    sql = "SELECT t.sensor, p.km FROM traffic AS t LEFT JOIN places AS p ON t.sensor = p.sensor"
    result = run(sql, "--on", str(day), "--relation", f"places={tmp_path / 'places.csv'}", "--format", "json")
    assert [json.loads(line)["row"]["km"] for line in result.stdout.splitlines()] == [3, None, 3]


def test_files_may_be_read_together(day: Path, tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(
        '{"time": "2012-03-01T07:05:00Z", "wind": 3}\n{"time": "2012-03-02", "wind": 4}\n'
    )
    sql = "SELECT t.speed, w.wind FROM traffic WINDOW(RANGE 1 HOUR) t, weather WINDOW(RANGE 1 HOUR) w"
    result = run(sql, "--on", str(day), "--on", f"weather={tmp_path / 'w.jsonl'}", "--format", "json")
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [
        {"speed": 10.0, "wind": 3},
        {"speed": None, "wind": 3},
        {"speed": 30.5, "wind": 3},
    ]


def test_a_file_that_the_query_does_not_read_is_a_warning(day: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("time,x y,z\n5,1,1\n")
    relation = tmp_path / "places.csv"
    relation.write_text("sensor\na\n")
    result = run(
        "SELECT sensor FROM traffic", "--on", f"traffic={day}", "--on", str(other), "--relation", f"places={relation}"
    )
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"warning: the query reads nothing of {other}", f"warning: the query reads nothing of {relation}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT spede FROM traffic", "there is no column 'spede'", "did you mean speed? traffic ({day}) has sensor"),
        ("SELECT altitude FROM traffic", "there is no column 'altitude'", "traffic ({day}) has sensor, speed"),
        # The file has it, and rows of COALESCE do not.
        (
            "SELECT s.speed FROM traffic WINDOW(ROWS 3) COALESCE(sensor) AS s",
            "there is no column 'speed' in 's'", "columns are: sensor",
        ),
        ("SELECT time + 1 AS t FROM traffic", "timestamp and integer cannot be added", "an interval is written"),
        ("SELECT sensor FROM traffik", "no file is given for 'traffik'", "did you mean traffic?"),
        ("SELECT x FROM weather", "no file is given for 'weather'", "--on weather=FILE for a stream, --relation"),
        ("SELECT x FROM weather", "no file is given for 'weather'", "derived stream, write the query in parentheses"),
        ("CREATE STREAM slow AS SELECT * FROM traffic", "a declaration cannot be tried", "in parentheses"),
        ("CREATE RELATION places FROM FILE 'x.csv'", "a declaration cannot be tried", "--relation NAME=FILE"),
        ("SELECT sensor FRM traffic", "'FRM' was not expected here", "did you mean FROM?"),
        ("SELECT sensor FROM traffic EVENTS(speed ABOVE 3)", "EVENTS(...) cannot be tried on files", "fjord motes run"),
        (
            "SELECT COMPLETENESS() AS c FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)",
            "COMPLETENESS(...) cannot be tried on files: only proxies can tell", "fjord motes run",
        ),
        ("SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 MS)", "one tuple would make up", "SLIDE"),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_tried_is_refused(day: Path, sql: str, message: str, hint: str) -> None:
    result = run(sql, "--on", f"traffic={day}")
    assert result.exit_code == 1
    assert result.stdout == ""
    shown = " ".join(result.stderr.split())
    assert f"error: {message}" in shown
    assert hint.format(day=day) in shown


@pytest.mark.parametrize("text", ["time,speed,sensor\n", "time,speed,sensor\n2012-03-01T07:00:00,,a\n"])
def test_a_column_without_values_is_named_where_its_type_matters(tmp_path: Path, text: str) -> None:
    path = tmp_path / "day.csv"
    path.write_text(text)
    slow = "SELECT sensor FROM traffic WHERE speed < 10"
    failed = run(slow, "--on", str(path))
    assert failed.exit_code == 1
    assert f"column speed of {path} has no value, and is taken for TEXT: --type speed=REAL" in failed.stderr
    taken = run("SELECT speed FROM traffic", "--on", str(path))
    assert taken.exit_code == 0
    assert f"warning: column speed of {path} has no value, and is taken for TEXT: --type" in taken.stderr
    answered = run(slow, "--on", str(path), "--type", "speed=real")
    assert (answered.exit_code, answered.stdout) == (0, "no rows\n")
    assert "speed" not in answered.stderr


def test_columns_that_cannot_be_read_are_named_where_a_query_names_them(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text(f"time,%,z\n1,1,{2**64}\n")
    none_left = run("SELECT z FROM s", "--on", str(path))
    assert none_left.exit_code == 1
    reasons = "FjordSQL cannot read % ('%' is no letter), z (it has integers of more than 64 bits, which --type z=REAL"
    assert f"no column beside 'time' that FjordSQL can read: {reasons} reads)" in none_left.stderr
    path.write_text(f"time,a,%,z\n1,1,1,{2**64}\n")
    missing = run("SELECT z FROM s", "--on", str(path))
    assert missing.exit_code == 1
    assert missing.stderr.splitlines()[-1] == f"hint:  s ({path}) has a ({reasons} reads))"
    assert run("SELECT z FROM s", "--on", str(path), "--type", "z=REAL").exit_code == 0


def test_no_note_is_about_the_column_of_instants(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("Date Time,v\n2012-03-01,1\n")
    found = run("SELECT v FROM s", "--on", str(path), "--time-column", "Date Time")
    assert (found.exit_code, found.stderr) == (0, "")


def test_columns_have_names_that_fjordsql_can_write(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("time,Room Temp,v\n2012-03-01,20,1\n")
    found = run("SELECT room_temp FROM s WHERE v = 1", "--on", str(path), "--format", "csv")
    assert (found.stdout.splitlines()[1].split(",")[2], found.stderr) == ("20", "")
    assert (
        f"warning: {path}: column 'Room Temp' is Room_Temp in FjordSQL"
        in run("SELECT v FROM s", "--on", str(path)).stderr
    )
    for sql in ('SELECT "Room Temp" FROM s', "SELECT room temp FROM s", "SELECT temp FROM s"):
        refused = run(sql, "--on", str(path))
        assert refused.exit_code == 1
        assert "Room_Temp" in refused.stderr, sql


def test_unsigned_integers_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    stamps = pl.Series([datetime(2012, 3, 1)])  # noqa: DTZ001 - it is UTC
    pl.DataFrame({"time": stamps, "v": [1], "u": pl.Series([2**63 + 5], dtype=pl.UInt64)}).write_parquet(path)
    found = run("SELECT v FROM s", "--on", str(path))
    assert found.exit_code == 0
    assert "u (it has integers of more than 64 bits, which --type u=REAL reads)" in found.stderr
    assert "9.22" in run("SELECT u FROM s", "--on", str(path), "--type", "u=REAL").stdout


def test_stamps_that_are_no_microseconds_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    for first, unit in (
        (1_700_000_000, "s"), (1_700_000_000_000, "s"), (1_700_000_000_000_000, None), (0, "s"), (86_400_000, "s"),
        (1_700_000_000_000_000_000, "ns"),
    ):  # fmt: skip
        path.write_text(f"time,x\n{first},1\n{first + 60},2\n")
        result = run("SELECT x FROM s", "--on", str(path))
        assert result.exit_code == 0
        assert ("whole numbers are microseconds" in result.stderr) == (unit is not None), first
        assert unit is None or f"unless --time-unit {unit} (or " in result.stderr
        assert not run("SELECT x FROM s", "--on", str(path), "--time-unit", "us").stderr


def test_numbers_that_are_no_instants_at_all_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("time,x\n2012-03-01,20\n2012-03-02,25\n")
    result = run("SELECT time FROM s", "--on", str(path), "--time-column", "x")
    assert f"warning: {path} begins and ends in 1970" in result.stderr
    assert "or --time-column names another column than 'x'" in result.stderr
    path.write_text("time,x\n1970-01-01,20\n1970-01-02,25\n")
    assert not run("SELECT x FROM s", "--on", str(path)).stderr, "written instants are in no doubt"


@pytest.mark.parametrize(
    ("more", "warned"), [("", False), ("2012-03-01T07:40:00,b,1\n", False), ("2012-03-01T07:40:00,a,1\n", True)]
)
@pytest.mark.parametrize("disordered", [False, True])
def test_equal_stamps_are_warned_of_where_there_are_any(
    tmp_path: Path, more: str, warned: bool, disordered: bool
) -> None:
    (tmp_path / "a.csv").write_text(f"{DAY}{more}{'2012-03-01T06:00:00,c,1' if disordered else ''}\n")
    for text in ("PARTITION BY sensor", "PARTITION BY sensor ORDER BY STAMP()"):
        query = f"SELECT sensor, speed - LAG(speed) OVER ({text}) AS rise FROM traffic WHERE speed IS NOT NULL"
        result = run(query, "--on", str(tmp_path / "a.csv"))
        assert result.exit_code == 0
        assert ("carry the same stamp" in result.stderr) == warned


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT sensor, LAG(speed) OVER (PARTITION BY sensor) AS p FROM traffic", "carry the same stamp"),
        ("SELECT s, LAG(v) OVER (PARTITION BY s) AS p FROM (SELECT sensor AS s, speed + 1 AS v FROM traffic) AS t",
         "carry the same stamp"),
        ("SELECT COUNT(*) AS n FROM traffic WINDOW(PARTITION BY sensor ROWS 2)", "counts tuples"),
    ],
)  # fmt: skip
def test_a_column_that_a_query_leaves_out_makes_no_equal_stamps(tmp_path: Path, sql: str, text: str) -> None:
    (tmp_path / "a.csv").write_text(
        "time,sensor,speed,w\n2024-03-01T00:00,a,1,1\n2024-03-01T00:01,b,2,1\n2024-03-01T00:01,a,2,1\n"
    )
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text() + "2024-03-01T00:01,a,3,1\n")
    for name, warned in (("a.csv", False), ("b.csv", True)):
        result = run(sql, "--on", str(tmp_path / name))
        assert result.exit_code == 0, result.stderr
        assert (text in result.stderr) == warned, result.stderr


def test_windows_by_count_are_warned_of_only_where_stamps_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,sensor\n2024-03-01T00:00,a\n2024-03-01T00:01,b\n")
    sql = "SELECT COUNT(*) AS n FROM s WINDOW(ROWS 2)"
    assert run(sql, "--on", str(path)).stderr == ""
    path.write_text("time,sensor\n2024-03-01T00:00,a\n2024-03-01T00:00,b\n")
    assert "WINDOW(ROWS 2) counts tuples" in run(sql, "--on", str(path)).stderr
    both = "SELECT x.n FROM (SELECT COUNT(*) AS n FROM s WINDOW(PARTITION BY sensor ROWS 2)) AS x"
    assert run(both, "--on", str(path)).stderr == ""


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT a.v FROM a JOIN b ON a.sensor = b.sensor", "joined"),
        ("SELECT a.v, b.w FROM a LEFT JOIN b ON a.sensor = b.sensor", "joined"),
        ("SELECT v FROM a WHERE sensor IN (SELECT sensor FROM b)", "looked for"),
        ("SELECT v FROM a WHERE sensor NOT IN (SELECT sensor FROM b)", "looked for"),
        ("SELECT sensor FROM a EXCEPT ALL SELECT sensor FROM b", "taken away"),
        ("SELECT sensor FROM a INTERSECT ALL SELECT sensor FROM b", "kept"),
    ],
)
def test_tuples_that_never_meet_are_a_warning(tmp_path: Path, sql: str, word: str) -> None:
    (tmp_path / "a.csv").write_text("time,sensor,v\n2024-03-01T00:00,k,1\n2024-03-01T00:01,k,2\n")
    text = "time,sensor,w\n2024-03-01T00:00:01,k,1\n2024-03-01T00:01:01,k,2\n"
    (tmp_path / "b.csv").write_text(text)
    files = ("--on", f"a={tmp_path / 'a.csv'}", "--on", f"b={tmp_path / 'b.csv'}")
    result = run(sql, *files)
    assert result.exit_code == 0, result.stderr
    assert f"a and b have no stamp in common, and without a window tuples are {word} only among those" in result.stderr
    assert result.stderr.count("warning: ") == 1
    for way_out in ("WINDOW(RANGE 1 HOUR)", "ASOF JOIN", "WITHIN"):
        assert way_out in result.stderr
    windowed = run(
        sql.replace("FROM b", "FROM b WINDOW(RANGE 1 HOUR)").replace("JOIN b", "JOIN b WINDOW(RANGE 1 HOUR)"), *files
    )
    assert (windowed.exit_code, windowed.stderr) == (0, "")
    (tmp_path / "b.csv").write_text(f"{text}2024-03-01T00:01,k,3\n")
    assert "no stamp in common" not in run(sql, *files).stderr


def test_distinct_tuples_of_single_stamps_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,sensor\n2024-03-01T00:00,k\n2024-03-01T00:01,k\n")
    reported = "s has no two tuples with the same stamp, and without a window DISTINCT is among those"
    assert reported in run("SELECT DISTINCT sensor FROM s", "--on", str(path)).stderr
    assert run("SELECT DISTINCT sensor FROM s WINDOW(RANGE 1 HOUR)", "--on", str(path)).stderr == ""
    path.write_text("time,sensor\n2024-03-01T00:00,k\n2024-03-01T00:00,k\n")
    assert run("SELECT DISTINCT sensor FROM s", "--on", str(path)).stderr == ""


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_equal_stamps_are_found_across_pieces_of_a_file(batch_rows: int) -> None:
    rows = pl.DataFrame({START: [1, 2, 2, 2, 3], "k": ["a", "a", "b", "a", "a"]})
    assert any(_ties(iter(rows.iter_slices(batch_rows)), ["k"]))
    assert not any(_ties(iter(rows.filter(pl.col("k") == "b").iter_slices(batch_rows)), ["k"]))
    assert not any(_ties(iter([]), ["k"]))


def test_a_file_given_twice_is_refused(day: Path) -> None:
    result = run("SELECT sensor FROM t", "--on", f"t={day}", "--on", f"t={day.parent}/*.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{day} is given twice for t" in result.stderr


def test_streams_may_have_columns_of_instants_of_different_names(day: Path, tmp_path: Path) -> None:
    other = tmp_path / "w.csv"
    other.write_text("at,wind\n2012-03-01T07:10:00,3\n")
    sql = "SELECT t.sensor, w.wind FROM t, w"
    result = run(sql, "--on", f"t={day}", "--on", f"w={other}", "--time-column", "W=at", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [{"sensor": "b", "wind": 3}]


def test_columns_of_a_table_stand_below_each_other_in_any_script(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("time,name,x\n0,车车,1\n1,e\u0301,2\n2,abcd,3\n")
    lines = run("SELECT name, x FROM s", "--on", str(path)).stdout.splitlines()
    assert [line[58:] for line in lines] == ["name  x", "车车  1", "e\u0301     2", "abcd  3"]


def test_a_type_for_a_column_that_no_file_has_is_refused(day: Path) -> None:
    result = run("SELECT sensor FROM traffic", "--on", str(day), "--type", "spede=REAL")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no file has a column 'spede'" in result.stderr
    assert "did you mean speed?" in result.stderr


PARTS = {
    "a.csv": "time,x,y\n1,1,\n3,2,\n",
    "b.csv": "time,y,x\n3,a,3\n5,b,4.5\n",
    "c.csv": "time,x,y\n2,5,c\n4,6,d\n",
}


@pytest.mark.parametrize(
    ("given", "rows", "is_sorted"),
    [
        (["a.csv", "b.csv"], [(1, None), (2, None), (3, "a"), (4.5, "b")], False),
        (["b.csv", "a.csv"], [(1, None), (2, None), (3, "a"), (4.5, "b")], False),
        (["a.csv", "b.csv", "c.csv"], [(1, None), (5, "c"), (2, None), (3, "a"), (6, "d"), (4.5, "b")], True),
        (["[ab].csv"], [(1, None), (2, None), (3, "a"), (4.5, "b")], False),
    ],
)
def test_a_stream_may_come_from_several_files(
    tmp_path: Path, given: list[str], rows: list[tuple[float, str | None]], is_sorted: bool
) -> None:
    for name, text in PARTS.items():
        (tmp_path / name).write_text(text)
    options = [option for name in given for option in ("--on", f"s={tmp_path / name}")]
    result = run("SELECT x, y FROM s", *options, "--format", "json")
    assert result.exit_code == 0, result.output
    assert [tuple(json.loads(line)["row"].values()) for line in result.stdout.splitlines()] == rows
    assert ("are not in the order of their stamps" in result.stderr) == is_sorted
    assert "no value" not in result.stderr, "the other file has the type"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,x\n9,1\n", "b.csv has no column 'y', which a.csv has"),
        ("time,x,y,z\n9,1,a,1\n", "a.csv has no column 'z', which b.csv has"),
        ("time,x,y\n9,q,a\n", "column 'x' is TEXT in b.csv and INTEGER in a.csv"),
    ],
)
def test_files_of_a_stream_have_the_same_columns(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("time,x,y\n1,1,a\n")
    (tmp_path / "b.csv").write_text(text)
    result = run("SELECT x FROM s", "--on", f"s={tmp_path / 'a.csv'}", "--on", f"s={tmp_path / 'b.csv'}")
    assert result.exit_code == 1
    assert message in result.stderr.replace(f"{tmp_path}/", "")


def test_the_hint_of_a_row_limit_needs_no_cluster(day: Path) -> None:
    sql = "SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 MS)"
    message = " ".join(run(sql, "--on", str(day)).stderr.split())
    assert message.endswith("hint: let the window move in longer steps, for example SLIDE 1 SECOND")


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("time,x\x1b[2J\x9b,y\nsoon\x1b]0;title\x07\u202e,1,2\n")
    odd = run("SELECT z FROM s", "--on", str(path))
    assert odd.exit_code == 1
    path.write_text("time,x\x1b[2J,y\n1,1,\x9bm\u2028\n")
    left_out = run("SELECT y FROM s", "--on", str(path))
    assert left_out.exit_code == 0
    for result in (odd, left_out):
        assert all(line.isprintable() for line in result.output.split("\n")), result.output
    assert r"x\x1b[2J" in left_out.stderr


def test_the_error_underlines_the_text(day: Path) -> None:
    lines = run("SELECT spede FROM traffic", "--on", str(day)).stderr.splitlines()
    assert lines[1:3] == ["1 | SELECT spede FROM traffic", "  |        ^^^^^"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--on'"),
        (["--on", "a.csv", "--on", "b.csv"], "there are two files without a name"),
        (["--on", "a.csv", "--relation", "t=a.csv", "--relation", "T=b.csv"], "there are two files for t"),
        (["--on", "a.csv", "--type", "x"], "'x' is not COLUMN=TYPE"),
        (["--on", "a.csv", "--type", "x=FLOAT"], "'FLOAT' is not one of BOOLEAN, INTEGER, REAL, TEXT"),
        (["--on", "a.csv", "--type", "x=REAL", "--text", "X"], "X has one type"),
        (["--on", "a.csv", "--memory", "much"], "'much' is not a size"),
        (["--on", "a.csv", "--relation", "b.csv"], "a relation has a name"),
        (["--on", "t=a.csv", "--relation", "t=b.csv"], "t is a stream or a relation, not both"),
        (["--on", "a.csv", "--format", "xml"], "'xml' is not one of table, json, csv, parquet"),
        (["--on", "a.csv", "--format", "parquet"], "a Parquet file needs a name: --output FILE"),
        (["--on", "a.csv", "--separator", "ab"], "'ab' is not one mark that can stand between values"),
        (["--on", "a.csv", "--separator", "x"], "'x' is not one mark that can stand between values"),
        (["--on", "a.csv", "--separator", '"'], "is not one mark that can stand between values"),
        (["--on", "a.csv", "--decimal", ";"], "';' is neither a point nor a comma"),
        (["--on", "a.csv", "--decimal", ","], "--separator ';' (or '|', or tab)"),
        (["--on", "a.csv", "--time-unit", "days"], "'days' is not one of s, ms, us, ns"),
        (["--on", "t=a.csv", "--time-unit", "u=s"], "--on u=FILE is missing"),
        (["--on", "a.csv", "--time-unit", "s", "--time-unit", "ms"], "there are two units for all streams"),
        (
            ["--on", "a.csv", "--time-column", "x", "--time-column", "y"],
            "there are two columns of instants for all streams",
        ),
    ],
)
def test_wrong_usage_is_an_error(arguments: list[str], message: str) -> None:
    result = run("SELECT 1", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_an_output_that_cannot_be_written_is_an_error(day: Path, tmp_path: Path) -> None:
    result = run("SELECT * FROM traffic", "--on", str(day), "--output", str(tmp_path / "none" / "a.jsonl"))
    assert result.exit_code == 1
    assert "cannot be written: No such file or directory" in " ".join(result.stderr.split())


@pytest.fixture
def printing(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which prints more than a pipe holds."""
    path = tmp_path / "day.csv"
    path.write_text("time,x\n" + "".join(f"{at},{at}\n" for at in range(50_000)))
    script = "from protocols.command_line.application import main; main()"
    options = ["--on", str(path), "--time-unit", "us", "--format", "json"]
    command = [sys.executable, "-c", script, "query", "try", "SELECT x FROM s", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b'"row":{"x":0}}\n')
        yield process
        process.kill()


def test_an_output_that_is_a_pipe_or_a_link_stays_one(day: Path, tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    os.mkfifo(pipe)
    target.write_text("before")
    link.symlink_to(target)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        assert run("SELECT * FROM traffic", "--on", str(day), "--output", str(pipe), "--format", "json").exit_code == 0
        assert len(read.result(30).splitlines()) == 3
    assert run("SELECT * FROM traffic", "--on", str(day), "--output", str(link)).exit_code == 0
    assert (pipe.is_fifo(), link.is_symlink(), len(target.read_text().splitlines())) == (True, True, 3)
    failed = run("SELECT * FROM traffic", "--on", str(day), "--output", str(pipe), "--format", "parquet")
    assert (failed.exit_code, pipe.is_fifo()) == (1, True)
    assert "is not a file, and Parquet is written to files only" in failed.stderr


def test_a_name_too_long_for_a_file_beside_it_is_an_error(day: Path, tmp_path: Path) -> None:
    result = run("SELECT * FROM traffic", "--on", str(day), "--output", str(tmp_path / f"{'a' * 243}.jsonl"))
    assert result.exit_code == 1
    assert "cannot be written: File name too long" in result.stderr


def test_standard_output_that_is_full_is_an_error(day: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "protocols.command_line",
        "query",
        "try",
        "SELECT * FROM traffic",
        "--on",
        str(day),
    ]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "the answer cannot be printed: No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_ends_quietly_when_its_reader_has_gone(printing: subprocess.Popen[bytes]) -> None:
    assert printing.stdout is not None
    assert printing.stderr is not None
    printing.stdout.close()
    assert printing.stderr.read() == b""
    assert printing.wait() == 0


def test_it_ends_quietly_when_it_is_interrupted(printing: subprocess.Popen[bytes]) -> None:
    printing.send_signal(signal.SIGINT)
    _, printed = printing.communicate()
    assert (printing.returncode, printed) == (130, b"")


TERMINATED = """
import signal, sys
from pathlib import Path
from cluster.local.trying import Trial
from protocols.command_line.application import main

folder, number, before = Path(sys.argv.pop()), int(sys.argv.pop()), int(sys.argv.pop())
signal.signal(number, signal.Handlers(before))
answers = Trial.answers

def terminated(self, **more):
    yield from answers(self, **more)
    print(len(list(folder.glob(".*.unfinished"))), flush=True)
    signal.raise_signal(number)

Trial.answers = terminated
main()
"""


def terminated(day: Path, folder: Path, sent: signal.Signals, before: signal.Handlers) -> tuple[int, str, str]:
    arguments = ["query", "try", "SELECT * FROM traffic", "--on", str(day), "--output", str(folder / "a.jsonl")]
    command = [sys.executable, "-c", TERMINATED, *arguments, str(before.value), str(sent.value), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_unfinished_stays_when_it_is_terminated(day: Path, tmp_path: Path, sent: signal.Signals) -> None:
    assert terminated(day, tmp_path, sent, signal.SIG_DFL) == (128 + sent, "1\n", "")
    assert [each.name for each in tmp_path.iterdir()] == ["day.csv"]


def test_signals_that_nohup_ignores_stay_ignored(day: Path, tmp_path: Path) -> None:
    code, _, written = terminated(day, tmp_path, signal.SIGHUP, signal.SIG_IGN)
    assert (code, written) == (0, f"written: {tmp_path / 'a.jsonl'}\n")
    assert (tmp_path / "a.jsonl").exists()


def test_a_failing_operator_is_an_error_not_an_answer(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.fjord.operators.set_operations import Distinct

    def fail(*_: object) -> object:
        raise ValueError("no such thing")

    monkeypatch.setattr(Distinct, "transition", fail)
    result = run("SELECT DISTINCT speed FROM traffic", "--on", str(day))
    assert result.exit_code == 1
    assert "no such thing" in result.stderr


def test_a_file_in_order_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10_000
    path = tmp_path / "day.parquet"
    pl.DataFrame({"time": range(count), "x": range(count), "y": range(count)}).write_parquet(path)
    read: list[int] = []
    batches = StreamFile.batches

    def noted(self: StreamFile, columns: Any, **more: Any) -> Any:
        for batch in batches(self, columns, **more):
            read.append(batch.height)
            yield batch

    monkeypatch.setattr(StreamFile, "batches", noted)
    trial = Trial(
        "SELECT COUNT(x) AS n FROM s WINDOW(RANGE 100 US SLIDE 100 US)", Files({"s": StreamFile(open_table(path))})
    )
    assert sum(piece.height for piece in trial.answers(batch_rows=1_000)) == count // 100
    assert max(read) <= 1_000


def test_a_query_in_a_file_is_tried_with_values(day: Path, tmp_path: Path) -> None:
    file = tmp_path / "slow.sql"
    file.write_text("-- slow\nSELECT speed FROM traffic\nWHERE sensor = :road AND speed < :limit;\n")
    result = run(str(file), "--set", "limit=20", "--set", "road=a", "--on", str(day), "--format", "json")
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [{"speed": 10.0}]
    assert result.stderr == ""
    result = run(str(file), "--set", "limit=20", "--set", "road=7", "--on", str(day))
    assert result.exit_code == 1
    assert "line 3, column 7" in result.stderr
    assert "3 | WHERE sensor = :road AND speed < :limit" in result.stderr
    assert ":road is the INTEGER 7" in result.stderr
    result = run(str(file), "--set", "limit=20", "--on", str(day))
    assert "the parameter :road has no value, at line 3, column 16" in result.stderr
    file.write_text("SELECT speed FROM traffic; SELECT lane FROM traffic")
    assert "there are 2 statements" in run(str(file), "--on", str(day)).stderr


NESTED = """{"time":"2012-03-01T07:00:00","sensor":"a","payload":{"speed":1.5,"tags":["x"]},"list":[1,2]}
{"time":"2012-03-01T07:00:01","sensor":"b","payload":{"speed":2.5},"list":[]}
"""
HOW = (
    "payload holds objects or lists: --text payload reads them as JSON, and "
    "JSON_VALUE(payload, '$.key' RETURNING REAL) a value in them"
)


@pytest.mark.parametrize(
    ("sql", "code"),
    [("SELECT sensor FROM s", 0), ("SELECT payload FROM s", 1), ("SELECT payload.speed FROM s", 1)],
)
def test_a_hint_shows_how_objects_in_json_are_read(tmp_path: Path, sql: str, code: int) -> None:
    (tmp_path / "a.jsonl").write_text(NESTED)
    result = run(sql, "--on", str(tmp_path / "a.jsonl"))
    assert result.exit_code == code
    assert HOW in " ".join(result.stderr.split())


def test_objects_in_json_are_read_as_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(NESTED)
    sql = "SELECT sensor, JSON_VALUE(payload, '$.speed' RETURNING REAL) AS speed, list FROM s"
    result = run(sql, "--on", str(tmp_path / "a.jsonl"), "--text", "payload", "--text", "list", "--format", "json")
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [
        {"sensor": "a", "speed": 1.5, "list": "[1, 2]"}, {"sensor": "b", "speed": 2.5, "list": "[]"},
    ]  # fmt: skip
    assert result.stderr == ""
