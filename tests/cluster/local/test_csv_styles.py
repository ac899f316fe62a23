"""CSV with other separators than commas, and commas before decimals."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.local.csv_files import CsvStyle
from cluster.local.errors import TableFileError
from cluster.local.table_files import open_table
from protocols.wire.streams import FieldType
from tests.cluster.local.test_try_command import run

GERMAN = CsvStyle(";", ",")
TEXT = '''time;sensor;speed
2012-03-01T07:00:00;a;1,5
2012-03-01T07:00:01;"b;c";-2
2012-03-01T07:00:02;"d ""e""";
'''


def answered(path: Path, sql: str, *arguments: str) -> list[dict[str, Any]]:
    result = run(sql, "--on", str(path), "--format", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["row"] for line in result.stdout.splitlines()]


def test_semicolons_and_commas_before_decimals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    found = answered(tmp_path / "a.csv", "SELECT sensor, speed FROM s", "--separator", ";", "--decimal", ",")
    assert found == [
        {"sensor": "a", "speed": 1.5}, {"sensor": "b;c", "speed": -2.0}, {"sensor": 'd "e"', "speed": None},
    ]  # fmt: skip


@pytest.mark.parametrize(("given_as", "mark"), [("tab", "\t"), ("\\t", "\t"), ("\t", "\t"), ("|", "|"), (":", ":")])
def test_other_separators(tmp_path: Path, given_as: str, mark: str) -> None:
    (tmp_path / "a.csv").write_text(f"time{mark}x{mark}y\n1{mark}1.5{mark}\n2{mark}{mark}2,5\n")
    found = answered(tmp_path / "a.csv", "SELECT x, y FROM s", "--separator", given_as)
    assert found == [{"x": 1.5, "y": None}, {"x": None, "y": "2,5"}]


def test_each_stream_and_relation_may_be_written_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").write_text("time,x\n2012-03-01T07:00:00,0.5\n")
    (tmp_path / "r.csv").write_text("sensor|km\na|3,25\n")
    files = (
        "--on",
        f"a={tmp_path / 'a.csv'}",
        "--on",
        f"b={tmp_path / 'b.csv'}",
        "--relation",
        f"r={tmp_path / 'r.csv'}",
    )
    style = ("--separator", "A=;", "--separator", "r=|", "--decimal", "a=,", "--decimal", "r=,")
    result = run("SELECT a.speed, b.x, r.km FROM a, b, r WHERE a.sensor = r.sensor", *files, *style, "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert [json.loads(line)["row"] for line in result.stdout.splitlines()] == [{"speed": 1.5, "x": 0.5, "km": 3.25}]
    for wrong, message in (("c=;", "--on c=FILE is missing"), (";", "there are two separators for all streams")):
        refused = run("SELECT x FROM b", *files, "--separator", wrong, "--separator", "|")
        assert refused.exit_code == 2
        assert message in refused.stderr


def test_lines_are_those_in_which_rows_begin(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('time,v,note\n2012-03-01,1,"a\nb"\nnever,2,"c\n\nd"\n2012-03-02,x,\n')
    refused = run("SELECT v FROM s", "--on", str(tmp_path / "a.csv"))
    assert "1 row of" in refused.stderr
    assert "line 4 ('never')" in refused.stderr
    (tmp_path / "a.csv").write_text('time,v,note\n2012-03-01,1,"a\nb"\n2012-03-02,x,"c\nd"\n')
    refused = run("SELECT v FROM s", "--on", str(tmp_path / "a.csv"), "--type", "v=REAL")
    assert "line 4 ('x')" in refused.stderr


def test_a_relation_is_written_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "r.csv").write_text("sensor;km\na;3,25\n")
    relation = ("--relation", f"r={tmp_path / 'r.csv'}", "--separator", ";", "--decimal", ",")
    sql = "SELECT s.sensor, r.km FROM s JOIN r ON s.sensor = r.sensor"
    assert answered(tmp_path / "a.csv", sql, *relation) == [{"sensor": "a", "km": 3.25}]


def test_options_about_csv_need_a_file_that_is_csv(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"time": 1, "x": 1}\n')
    for options in (("--separator", ";"), ("--separator", ";", "--decimal", ",")):
        result = run("SELECT x FROM s", "--on", str(tmp_path / "a.jsonl"), *options)
        assert result.exit_code == 2
        assert "none of the files is CSV" in result.stderr


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("1,5\n2", None, (FieldType.REAL, [1.5, 2.0])),
        (" 1,5 \n2", None, (FieldType.REAL, [1.5, 2.0])),
        ("1,5\n2", FieldType.REAL, (FieldType.REAL, [1.5, 2.0])),
        ("1.500\n2", None, (FieldType.REAL, [1_500.0, 2.0])),
        ("1.500,5\n-1.234.567", None, (FieldType.REAL, [1_500.5, -1_234_567.0])),
        ("1.50\n2", None, (FieldType.TEXT, ["1.50", "2"])),
        ("1500.500,5\n2", None, (FieldType.TEXT, ["1500.500,5", "2"])),
        ("1.500,5.5\n2", None, (FieldType.TEXT, ["1.500,5.5", "2"])),
        ("1,5\n2", FieldType.TEXT, (FieldType.TEXT, ["1,5", "2"])),
        ("1\n2", None, (FieldType.INTEGER, [1, 2])),
        ("nan\n2,5e3", None, (FieldType.REAL, [float("nan"), 2_500.0])),
    ],
)
def test_where_a_comma_stands_before_decimals_points_stand_before_thousands(
    tmp_path: Path, text: str, type_: FieldType | None, expected: tuple[FieldType, list[object]]
) -> None:
    first, second = text.split("\n")
    (tmp_path / "a.csv").write_text(f"a;x\n0;{first}\n0;{second}\n")
    table = open_table(tmp_path / "a.csv", types={} if type_ is None else {"x": type_}, style=GERMAN)
    column = next(each for each in table.columns if each.name == "x")
    assert (column.type, str(table.read()["x"].to_list())) == (expected[0], str(expected[1]))


def test_what_is_no_number_of_this_style_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a;x\n0;1,5\n\n"two\nlines";2,5\n0;1.50\n')
    with pytest.raises(TableFileError, match=r"not REAL: line 6 \('1.50'\)"):
        open_table(tmp_path / "a.csv", types={"x": FieldType.REAL}, style=GERMAN)


def test_numbers_of_seconds_have_decimals_of_the_same_style(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time;x\n1330585200,25;1\n")
    style = ("--separator", ";", "--decimal", ",", "--time-unit", "s", "--format", "csv")
    result = run("SELECT x FROM s", "--on", str(tmp_path / "a.csv"), *style)
    assert result.stdout.splitlines()[1] == "2012-03-01T07:00:00.250000Z,2012-03-01T07:00:00.250001Z,1"


@pytest.mark.parametrize(
    ("style", "text", "message", "hint"),
    [
        (CsvStyle(";"), "time;x\n1;1;1\n", "line 2 of .* has 3 values; the first line has 2 names", "a semicolon"),
        (CsvStyle("\t"), "time\tx\n1\n", "line 2 of .* has 1 value; the first line has 2 names", "a tab"),
        (CsvStyle("\t"), "time\tx\ty\n\t\n", "line 2 of .* has 2 values; the first line has 3 names", "a tab"),
        (CsvStyle("|"), 'time|x\n1|"a|b"|c\n', "line 2 of .* has 3 values", "'|'"),
        (CsvStyle("|"), 'time|x\n1|5" pipe\n', "line 2 of .* quote", "double"),
        (CsvStyle(";"), "time,x\n1,1\n", "has one name, 'time,x': values are separated by semicolons", "--separator"),
        (CsvStyle(), "time;x\n1;1\n", "has one name, 'time;x': values are separated by commas", "--separator ';'"),
    ],
)
def test_lines_that_do_not_fit_are_named(tmp_path: Path, style: CsvStyle, text: str, message: str, hint: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(TableFileError, match=message) as caught:
        open_table(tmp_path / "a.csv", style=style)
    assert hint in str(caught.value.hint)


@given(
    st.sampled_from([";", "\t", "|", ",", ":"]),
    st.lists(st.tuples(st.text("ab;,|\t:\"' .\n", max_size=6), st.integers(-99, 99)), min_size=1, max_size=6),
)
def test_what_is_written_in_a_style_is_read_in_it(separator: str, rows: list[tuple[str, int]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator, lineterminator="\n").writerows([("text", "number"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
        found = open_table(path, types={"text": FieldType.TEXT}, style=CsvStyle(separator)).read()
    assert [(text or "", number) for text, number in found.rows()] == rows


def test_a_public_case_with_commas_before_decimals_and_points_before_thousands(tmp_path: Path) -> None:
    """home-assistant/frontend 86: averages by minute of a file as spreadsheets of many countries write it."""
    (tmp_path / "a.csv").write_text(
        "time;probe;temp;hpa\n2026-04-01T09:00:10Z;p1;21,5;1.013,2\n2026-04-01T09:00:30Z;p1;22,5;1.012,8\n"
        "2026-04-01T09:00:50Z;p2;-3,25;998,0\n2026-04-01T09:01:10Z;p1;23,0;1.013,0\n2026-04-01T09:01:20Z;p2;-2,75;999,4\n"
    )
    text = "SELECT probe, AVG(temp) AS t, AVG(hpa) AS h FROM s WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY probe"
    style = ("--separator", ";", "--decimal", ",", "--format", "csv")
    result = run(text, "--on", str(tmp_path / "a.csv"), *style)
    assert [line.split(",")[2:] for line in result.stdout.splitlines()[1:]] == [
        ["p1", "22.0", "1013.0"],
        ["p2", "-3.25", "998.0"],
        ["p1", "23.0", "1013.0"],
        ["p2", "-2.75", "999.4"],
    ]
