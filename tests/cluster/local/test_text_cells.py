"""Columns of CSV that some cells make TEXT: errors name the cells, and what reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.local.csv_files import CsvStyle
from cluster.local.joined_files import why_text
from cluster.local.table_files import open_table
from protocols.wire.streams import FieldType
from tests.cluster.local.test_try_command import run


@pytest.mark.parametrize(
    ("cells", "style", "reason"),
    [
        (["'1,234.5'", "2"], CsvStyle(";"), "line 2 (\"'1,234.5'\")|"),
        (["1,234.5", "2"], CsvStyle(";"), "line 2 ('1,234.5')| CAST(REPLACE(v, ',', '') AS REAL)"),
        (["1,5", "2", "2,5"], CsvStyle(";"), "line 2 ('1,5'), 4 ('2,5')| --decimal , reads"),
        (["2", '"1,5"'], CsvStyle(), "line 3 ('1,5')| CAST(REPLACE(v, ',', '.') AS REAL)"),
        (["1", "NA", "-", "NA"], CsvStyle(), "line 3 ('NA'), 4 ('-'), 5 ('NA')| --null NA --null - says"),
        (["1", "not there"], CsvStyle(), "line 3 ('not there')| --null 'not there' says that this"),
        (["1,500"], CsvStyle(";"),
         "line 2 ('1,500')| --decimal , reads numbers with a comma before their decimals, and CAST(REPLACE("),
        (["1,5", "2,5"], CsvStyle(";"), "line 2 ('1,5'), 3 ('2,5')| --decimal , reads"),
        (["1,500", "2,500.5"], CsvStyle(";"), "line 2 ('1,500'), 3 ('2,500.5')| CAST(REPLACE(v, ',', '') AS REAL)"),
        (["1", "x7"], CsvStyle(), "line 3 ('x7')|"),
    ],
)  # fmt: skip
def test_cells_that_are_no_numbers_are_named(tmp_path: Path, cells: list[str], style: CsvStyle, reason: str) -> None:
    path = tmp_path / "a.csv"
    mark = style.separator
    path.write_text(f"time{mark}v\n" + "".join(f"2024-03-01T00:0{n}{mark}{cell}\n" for n, cell in enumerate(cells)))
    table = open_table(path, instants="time", style=style)
    found = why_text(table, "V")
    assert found is not None
    places, way = reason.split("|")
    assert found.startswith(f"column v is TEXT because of {places}, which CAST makes NULL{':' if way else ''}{way}")


def test_columns_of_texts_and_columns_of_given_types_have_no_such_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,v,w,n\n2024-03-01,a,1,1\n2024-03-02,b,x,2\n")
    table = open_table(path, instants="time", types={"w": FieldType.TEXT})
    assert [why_text(table, name) for name in ("v", "w", "n", "z")] == [None] * 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(v) AS x FROM s WINDOW(RANGE 1 HOUR)",
        "SELECT v + 1 AS x FROM s",
        "SELECT v FROM s WHERE s.v > 1",
        "SELECT v FROM s WHERE 1 < v",
        "SELECT v FROM s WHERE v BETWEEN 1 AND 3.5",
    ],
)
def test_a_hint_names_the_cell_where_a_number_is_expected(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,v\n2024-03-01T00:00,1\n2024-03-01T00:01,NA\n")
    result = run(sql, "--on", str(path))
    assert result.exit_code == 1
    assert "hint:  column v is TEXT because of line 3 ('NA')" in result.stderr
    assert "CAST(x" not in result.stderr
    read = run(sql, "--on", str(path), "--null", "NA")
    assert (read.exit_code, read.stderr) == (0, "")


def test_words_stand_for_null_in_every_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,v,w\n2024-03-01T00:00,1,N/A\n\n-,N/A,-\n2024-03-01T00:01,-,true\n-,2,\n")
    result = run("SELECT v, w FROM s", "--on", str(path), "--null", "-", "--null", "N/A")
    assert "1 row of" in result.stderr
    assert "line 6;" in result.stderr or "line 6\n" in result.stderr, result.stderr
    path.write_text("time,v,w\n2024-03-01T00:00,1,N/A\n2024-03-01T00:01,-,true\n")
    result = run("SELECT v, w FROM s", "--on", str(path), "--null", "-", "--null", "N/A", "--format", "csv")
    assert [line.split(",")[2:] for line in result.stdout.splitlines()] == [["v", "w"], ["1", ""], ["", "true"]]


def test_a_text_in_one_of_several_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,v\n2024-03-01,1\n")
    (tmp_path / "b.csv").write_text("time,v\n2024-03-02,1\n2024-03-03,off\n")
    result = run("SELECT v FROM s", "--on", f"s={tmp_path}/*.csv")
    assert result.exit_code == 1
    assert "column v is TEXT because of line 3 ('off'), which CAST makes NULL: --null off says" in result.stderr
    assert run("SELECT v FROM s", "--on", f"s={tmp_path}/*.csv", "--null", "off").exit_code == 0
