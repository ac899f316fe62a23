"""Files as streams and relations: their columns, their stamps, and what is wrong with them."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.local.errors import TableFileError
from cluster.local.stream_files import StreamFile
from cluster.local.table_files import open_table
from cluster.local.tried_query import Files
from cluster.local.trying import Trial
from protocols.errors import FjordError
from protocols.wire.streams import FIELD_TYPES, FieldType

SEVEN_US = 1_330_585_200_000_000
"""2012-03-01T07:00:00Z."""


def stream(path: Path, text: str | pl.DataFrame, time_column: str | None = None) -> StreamFile:
    if isinstance(text, str):
        path.write_text(text, encoding="utf-8")
    else:
        text.write_parquet(path)
    return StreamFile(open_table(path, instants=time_column or "time"), time_column)


def rows(file: StreamFile, *, batch_rows: int = 100) -> list[tuple[object, ...]]:
    names = [each.name for each in file.columns]
    return [
        row for batch in file.batches(names, batch_rows=batch_rows) for row in batch.select(START, *names).iter_rows()
    ]


@pytest.mark.parametrize(
    "written",
    [
        "2012-03-01T07:00:00Z", "2012-03-01T07:00:00z", "2012-03-01 07:00", "2012-03-01T07:00:00.000000",
        "2012-03-01T08:00:00+01:00", "2012-03-01 03:00:00-0400", "2012-03-01T07:00Z", " 2012-03-01 07:00:00 ",
        "2012-03-01T08:00:00+01", "2012-03-01 03:00-04",
        "1330585200000000",
    ],
)  # fmt: skip
def test_an_instant_may_be_written_in_many_ways(tmp_path: Path, written: str) -> None:
    assert rows(stream(tmp_path / "a.csv", f"time,x\n{written},1\n")) == [(SEVEN_US, 1)]
    assert rows(stream(tmp_path / "a.jsonl", f'{{"time": "{written}", "x": 1}}\n')) == [(SEVEN_US, 1)]


@pytest.mark.parametrize(
    "held",
    [
        pl.Series([SEVEN_US]).cast(pl.Datetime("us")),
        pl.Series([SEVEN_US]).cast(pl.Datetime("us")).cast(pl.Datetime("ms")),
        pl.Series([SEVEN_US]).cast(pl.Datetime("us")).cast(pl.Datetime("ns")),
        pl.Series([datetime(2012, 3, 1, 8, tzinfo=timezone(timedelta(hours=1)))]),
        pl.Series([datetime(2012, 3, 1, 7, tzinfo=UTC)]).dt.convert_time_zone("Europe/Berlin"),
        pl.Series([SEVEN_US]),
        pl.Series(["2012-03-01T07:00:00"]),
    ],
)
def test_stamps_without_a_zone_are_utc(tmp_path: Path, held: pl.Series) -> None:
    assert rows(stream(tmp_path / "a.parquet", pl.DataFrame({"time": held, "x": [1]}))) == [(SEVEN_US, 1)]


def test_every_other_column_is_a_field(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "Time": [SEVEN_US], "small": pl.Series([1], dtype=pl.Int8), "real": pl.Series([0.5], dtype=pl.Float32),
            "yes": [True], "text": ["a"], "day": [date(2012, 3, 1)], "odd name": [1], "list": [[1]], "fjord_x": [1],
            "SMALL": [2], "odd_name": [3], "bytes": [b"1"], "1 (°C)": [4], "%": [5],
            "u64": pl.Series([2**63], dtype=pl.UInt64), "fits": pl.Series([2**63 - 1], dtype=pl.UInt64),
        }
    )  # fmt: skip
    file = stream(tmp_path / "a.parquet", frame)
    assert [(each.name, each.type) for each in file.columns] == [
        ("small", FieldType.INTEGER),
        ("real", FieldType.REAL),
        ("yes", FieldType.BOOLEAN),
        ("text", FieldType.TEXT),
        ("day", FieldType.INTEGER),
        ("odd_name", FieldType.INTEGER),
        ("_1_C", FieldType.INTEGER),
        ("fits", FieldType.INTEGER),
    ]
    assert file.table.unusable == {
        "odd name": "' ' is no letter",
        "list": "it holds lists",
        "fjord_x": "names that begin with fjord_ are Fjord's own",
        "SMALL": "its name differs from small only in case",
        "bytes": "it holds binary",
        "%": "'%' is no letter",
        "u64": "it has integers of more than 64 bits, which --type u64=REAL reads",
    }
    assert file.table.renamed == {"_1_C": "1 (°C)"}
    assert rows(file) == [(SEVEN_US, 1, 0.5, True, "a", SEVEN_US - 7 * 3_600_000_000, 3, 4, 2**63 - 1)]


def test_numbers_are_read_as_texts_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,sensor\n2012-03-01,007\n")
    assert [row[1:] for row in rows(StreamFile(open_table(tmp_path / "a.csv", types={"SENSOR": FieldType.TEXT})))] == [
        ("007",)
    ]
    pl.DataFrame({"time": [date(2012, 3, 1)], "sensor": [7]}).write_parquet(tmp_path / "a.parquet")
    assert [
        row[1:] for row in rows(StreamFile(open_table(tmp_path / "a.parquet", types={"sensor": FieldType.TEXT})))
    ] == [("7",)]


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_come_in_the_order_of_their_stamps(tmp_path: Path, batch_rows: int) -> None:
    ordered = stream(tmp_path / "a.csv", "time,x\n1,1\n2,2\n2,3\n5,4\n")
    assert ordered.check()
    assert rows(ordered, batch_rows=batch_rows) == [(1, 1), (2, 2), (2, 3), (5, 4)]
    disordered = stream(tmp_path / "b.csv", "time,x\n5,4\n2,2\n1,1\n2,3\n")
    assert not disordered.check()
    assert rows(disordered, batch_rows=batch_rows) == [(1, 1), (2, 2), (2, 3), (5, 4)]


@pytest.mark.parametrize("kind", ["header only", "nothing in CSV", "nothing in JSON lines", "nothing in Parquet"])
def test_a_column_without_values_has_the_type_that_is_given(tmp_path: Path, kind: str) -> None:
    path = tmp_path / {"nothing in JSON lines": "a.jsonl", "nothing in Parquet": "a.parquet"}.get(kind, "a.csv")
    match kind:
        case "header only":
            path.write_text("time,x\n")
        case "nothing in CSV":
            path.write_text("time,x\n1,\n")
        case "nothing in JSON lines":
            path.write_text('{"time": 1, "x": null}\n')
        case _:
            pl.DataFrame({"time": [1], "x": [None]}).write_parquet(path)
    unknown = open_table(path, instants="time")
    assert (unknown.columns[-1].type, unknown.untyped) == (FieldType.TEXT, ("x",))
    for type_ in FIELD_TYPES:
        known = StreamFile(open_table(path, types={"X": type_}, instants="time"))
        assert (known.columns[-1].type, known.table.untyped) == (type_, ())
        assert rows(known) == ([] if kind == "header only" else [(1, None)])


@pytest.mark.parametrize(
    ("written", "type_", "read"),
    [
        (["1", "2"], FieldType.REAL, [1.0, 2.0]),
        (["1.5", "-inf"], FieldType.REAL, [1.5, float("-inf")]),
        (["007", " 8 "], FieldType.INTEGER, [7, 8]),
        (["007", " 8 "], FieldType.TEXT, ["007", " 8 "]),
        (["1", "0", "True", "FALSE"], FieldType.BOOLEAN, [True, False, True, False]),
    ],
)
def test_values_are_read_as_the_type_that_is_given(
    tmp_path: Path, written: list[str], type_: FieldType, read: list[object]
) -> None:
    contents = {
        "a.csv": "time,x\n" + "".join(f"{at},{each}\n" for at, each in enumerate(written)),
        "a.jsonl": "".join(f'{{"time":{at},"x":"{each}"}}\n' for at, each in enumerate(written)),
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        file = StreamFile(open_table(tmp_path / name, types={"x": type_}, instants="time"))
        assert [row[1] for row in rows(file)] == read
        assert file.columns[0].type is type_


@pytest.mark.parametrize(
    ("name", "text", "type_", "message"),
    [
        ("a.csv", "time,x\n1,1\n\n2,soon\n", FieldType.REAL, "x' .* not REAL: line 4 \\('soon'\\)$"),
        ("a.csv", "time,x\n1,1.5\n", FieldType.INTEGER, "not INTEGER: line 2 \\('1.5'\\)"),
        ("a.csv", "time,x\n1,yes\n", FieldType.BOOLEAN, "not BOOLEAN: line 2 \\('yes'\\)"),
        ("a.jsonl", '{"time":1,"x":1.5}\n', FieldType.INTEGER, "holds float64, which cannot be read as INTEGER"),
        ("a.jsonl", '{"time":1,"x":[1]}\n', FieldType.REAL, "holds list.* which cannot be read as REAL"),
    ],
)
def test_values_that_are_not_of_the_type_that_is_given_are_refused(
    tmp_path: Path, name: str, text: str, type_: FieldType, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TableFileError, match=message):
        open_table(tmp_path / name, types={"x": type_}, instants="time")


def test_types_of_csv_columns_follow_from_their_values(tmp_path: Path) -> None:
    written = {
        "whole": ("1", " 2", ""), "real": ("1", "2.5", "nan"), "yes": ("true", "False", ""), "text": ("1", "a", "b"),
        "day": ("2012-03-01", "", "2012-03-02T00:00Z"), "time": ("1", "2", "3"), "huge": ("1", "2", f"{2**63}"),
    }  # fmt: skip
    lines = [", ".join(written), *(",".join(row) for row in zip(*written.values(), strict=True))]
    file = stream(tmp_path / "a.csv", "\n".join(lines))
    assert {each.name: each.type for each in file.columns} == {
        "whole": FieldType.INTEGER, "real": FieldType.REAL, "yes": FieldType.BOOLEAN, "text": FieldType.TEXT,
        "day": FieldType.INTEGER,
    }  # fmt: skip
    assert file.table.unusable == {"huge": "it has integers of more than 64 bits, which --type huge=REAL reads"}
    assert [row[1] for row in rows(file)] == [1, 2, None]
    assert [row[5] for row in rows(file)] == [SEVEN_US - 25_200_000_000, None, SEVEN_US + 61_200_000_000]


def test_a_file_is_not_read_again_and_again_to_guess_its_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guessed: list[object] = []
    scan = pl.scan_csv

    def noted(*arguments: Any, **more: Any) -> pl.LazyFrame:
        if more.get("schema") is None:
            guessed.append(more.get("try_parse_dates", False))
        return scan(*arguments, **more)

    monkeypatch.setattr(pl, "scan_csv", noted)
    file = stream(tmp_path / "a.csv", "time,x\n2,1\n1,2\n")
    assert not file.check()
    assert rows(file) == [(1, 2), (2, 1)]
    assert guessed == [False], "guessing dates takes a hundred times as long as reading"


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_whose_name_is_a_pattern_is_one_file(tmp_path: Path, suffix: str) -> None:
    for name, x in (("a[1]*", 1), ("a1", 2), ("a[1]b", 3)):
        path = tmp_path / f"{name}.{suffix}"
        match suffix:
            case "csv":
                path.write_text(f"time,x\n1,{x}\n")
            case "jsonl":
                path.write_text(f'{{"time":1,"x":{x}}}\n')
            case _:
                pl.DataFrame({"time": [1], "x": [x]}).write_parquet(path)
    assert rows(StreamFile(open_table(tmp_path / f"a[1]*.{suffix}", instants="time"))) == [(1, 1)]


def test_values_of_several_types_can_be_read_as_texts(tmp_path: Path) -> None:
    text = '{"time":1,"x":true}\n{"time":2,"x":1}\n'
    with pytest.raises(TableFileError, match="cannot parse 'true'") as raised:
        rows(stream(tmp_path / "a.jsonl", text))
    assert raised.value.hint == "--text COLUMN reads values of several types as texts"
    known = open_table(tmp_path / "a.jsonl", types={"x": FieldType.TEXT})
    assert rows(StreamFile(known)) == [(1, "true"), (2, "1")]


def test_a_text_may_be_long(tmp_path: Path) -> None:
    text = "a" * 200_000
    assert rows(stream(tmp_path / "a.csv", f'time,x\n1,"{text}"\n')) == [(1, text)]


def test_names_are_on_one_line(tmp_path: Path) -> None:
    table = stream(tmp_path / "a.csv", 'time,"fjord_\nb",x\n1,1,1\n').table
    assert table.without == r"FjordSQL cannot read fjord_\nb (names that begin with fjord_ are Fjord's own)"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_are_named_in_the_file_or_in_fjordsql(tmp_path: Path, name: str) -> None:
    if name == "a.parquet":
        pl.DataFrame({"Date Time": [1], "Room Temp.": [20], "größe (m)": [1.5]}).write_parquet(tmp_path / name)
    else:
        texts = {
            "a.csv": "Date Time,Room Temp.,größe (m)\n1,20,1.5\n",
            "a.jsonl": '{"Date Time": 1, "Room Temp.": 20, "größe (m)": 1.5}\n',
        }
        (tmp_path / name).write_text(texts[name], encoding="utf-8")
    for time_column in ("Date Time", "date_time"):
        for column in ("Room Temp.", "room_temp", "ROOM_TEMP"):
            table = open_table(tmp_path / name, types={column: FieldType.TEXT}, instants=time_column)
            assert {each.name: each.type for each in table.columns if each.name != "Date_Time"} == {
                "Room_Temp": FieldType.TEXT, "größe_m": FieldType.REAL,
            }  # fmt: skip
            assert rows(StreamFile(table, time_column)) == [(1, "20", 1.5)]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert rows(stream(tmp_path / "a.csv", "time,x\n1,1\n\n2,\n\n")) == [(1, 1), (2, None)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "time,x\n1,1\n,2\nsoon,3\n", "2 rows of .*a.csv .* column 'time': line 3, 4 \\('soon'\\)$"),
        ("a.csv", 'time,x\n1,"a\nb"\n\n,2\n', "1 row of .*: line 5$"),
        ("a.jsonl", '{"time": 1, "x": 1}\n\n{"x": 2}\n', "1 row of .*: line 3$"),
        ("a.csv", "time,x\n" + ",1\n" * 9, "9 rows of .*: line 2, 3, 4, 5, 6 and 4 more$"),
        ("a.csv", "time,x\n9223372036854775807,1\n", "line 2 \\('9223372036854775807'\\)$"),
    ],
)
def test_rows_without_a_stamp_are_refused_with_their_lines(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = stream(tmp_path / name, text)
    with pytest.raises(TableFileError) as raised:
        file.check()
    assert re.search(message, raised.value.message), raised.value.message


def test_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    file = stream(tmp_path / "a.parquet", pl.DataFrame({"time": [1, None], "x": [1, 2]}))
    with pytest.raises(TableFileError, match="row 2"):
        file.check()


@pytest.mark.parametrize(
    ("name", "text", "time_column", "message"),
    [
        ("a.csv", "at,x\n1,1\n", None, "has no column 'time'; it has at, x"),
        ("a.csv", "time,x\n1,1\n", "at", "has no column 'at'; it has time, x"),
        ("a.jsonl", '{"time": 1.5, "x": 1}\n', None, "column 'time' of .* holds float64, not whole numbers"),
        ("a.csv", "time\n1\n", None, "has no column beside 'time'"),
        ("a.csv", "", None, "is empty"),
        ("a.csv", "time,x\n1,1\n1,2,3\n", None, "line 3 of .* has 3 values; the first line has 2 names"),
        ("a.csv", "time,x,y\n1,1\n", None, "line 2 of .* has 2 values; the first line has 3 names"),
        ("a.csv", 'time,x,y\n1,"a\nb",2\n\n1,2\n', None, "line 5 of .* has 2 values; the first line has 3 names"),
        ("a.csv", "time,x,x\n1,1,1\n", None, "names 'x' twice"),
        ("a.csv", 'time,x\n1,5" pipe\n2,6" pipe\n', None, "line 2 of .* quote"),
        ("a.csv", 'time,x\n1,1\n2,"open\n3,3\n', None, "line 3 of .* quote"),
        ("a.csv", "time;x\n1;1\n", None, "first line of .* has one name, 'time;x'.* commas"),
        ("a.csv", "\n\n", None, "first line of .* has no names"),
        ("a.jsonl", '{"time": 1, "x": 1}\n{"time": 1, "x": 1, "x" : 2}\n', None, "line 2 of .* names 'x' twice"),
        ("a.jsonl", "\n\n", None, "is empty"),
        ("a.jsonl", '{"time": 1}\n{\n', None, "line 2 of .* is not a JSON object"),
        ("a.jsonl", "[1]\n", None, "line 1 of .* is not a JSON object"),
        ("a.parquet", "no such thing", None, "cannot be read"),
        ("a.xlsx", "time,x\n1,1\n", None, "is not a file that can be read as a table"),
        ("a.gz", "time,x\n1,1\n", None, "is not a file that can be read as a table"),
    ],
)
def test_a_file_that_is_no_stream_is_refused(
    tmp_path: Path, name: str, text: str, time_column: str | None, message: str
) -> None:
    with pytest.raises(TableFileError, match=message):
        stream(tmp_path / name, text, time_column).check()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"time,x\n1,a\n2,\xff\n", "line 3 of .* is not UTF-8"),
        ("a.csv", b'time,x\n1,"a"\n2,\xff\n', "line 3 of .* is not UTF-8"),
        ("a.csv", "time,x\n1,a\n".encode("utf-16"), "line 1 of .* is not UTF-8"),
        ("a.jsonl", b'{"time":1,"x":"a"}\n{"time":1,"x":"\xff"}\n', "line 2 of .* is not UTF-8"),
        ("a.csv.gz", gzip.compress(b"time,x\n1,a\n2,\xff\n", mtime=0), "line 3 of .* is not UTF-8"),
        ("a.csv.gz", gzip.compress(b"time,x\n1,2\n", mtime=0)[:-9], "cannot be read"),
        ("a.jsonl.gz", b"\x1f\x8bno gzip at all", "cannot be read"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("a.parquet", gzip.compress(b"PAR1", mtime=0), "is compressed"),
        ("a.csv", b"BZh91AY", "is compressed"),
        ("a.csv.zst", b"\x28\xb5\x2f\xfd", "is compressed"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableFileError, match=message):
        open_table(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "time\tx\n1\t5\n2\t6\n"),
        ("a.csv", "sep=;\ntime;x\n1;5\n2;6\n"),
        ("a.csv", '\ufeff"sep=;"\r\ntime;x\r\n1;5\r\n2;"6"\r\n'),
        ("a.csv", "# station 5\n#\n# of 2012, in Bonn, by hand\ntime,x\n1,5\n2,6\n"),
        ("a.csv", "#time,x\n1,5\n2,6\n"),
        ("a.csv", '# "no quote\ntime,x\n1,"5"\n2,6\n'),
        ("a.txt", "time,x\n1,5\n2,6\n"),
        ("a.json", '{"time":1,"x":5}\n{"time":2,"x":6}\n'),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_files_are_read_as_other_programs_write_them(tmp_path: Path, name: str, text: str, compressed: bool) -> None:
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if compressed else text.encode())
    assert rows(StreamFile(open_table(path, instants="time"))) == [(1, 5), (2, 6)]
    wrong = text.replace("6", "x")
    path.write_bytes(gzip.compress(wrong.encode(), mtime=0) if compressed else wrong.encode())
    if "json" not in name:
        line = wrong.count("\n")
        with pytest.raises(TableFileError, match=rf"values that are not REAL: line {line} \('x'\)"):
            open_table(path, types={"x": FieldType.REAL}, instants="time")
        path.write_text(text.replace('"6"', "6").replace("6", "6,6;6\t6"))
        with pytest.raises(TableFileError, match=rf"line {line} of .* has [234] values"):
            open_table(path)


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.csv", "time,x\n1,ä\n".encode("cp1252"), "iconv -f WINDOWS-1252 -t UTF-8 {path} > {folder}/a.utf8.csv"),
        ("a.csv", "time,x\n1,ä\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8 {path} > {folder}/a.utf8.csv"),
        ("a.csv", "time,x\n1,\u20ac\n".encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8 {path} > {folder}/a.utf8.csv"),
        ("a.csv.gz", gzip.compress("time,x\n1,ä\n".encode("cp1252"), mtime=0),
         "gunzip -c {path} | iconv -f WINDOWS-1252 -t UTF-8 > {folder}/a.utf8.csv"),
        ("a.json", b'[{"time": 1, "x": 5},\n{"time": 2, "x": 6}]\n', "jq -c '.[]' {path} > {folder}/a.jsonl"),
        ("a.jsonl", b'{\n  "time": 1,\n  "x": 5\n}\n', "jq -c '.' {path} > {folder}/a.lines.jsonl"),
    ],
)  # fmt: skip
def test_a_hint_converts_what_cannot_be_read(tmp_path: Path, name: str, content: bytes, hint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableFileError) as caught:
        open_table(path)
    command = hint.format(path=path, folder=tmp_path)
    assert str(caught.value.hint).endswith(f": {command}")
    if command.startswith("jq") and shutil.which("jq") is None:
        return
    subprocess.run(command, shell=True, check=True)
    open_table(Path(command.rpartition("> ")[2]))


def test_what_cannot_be_read_twice_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    for path in (tmp_path / "a.csv", Path("/dev/null"), Path("-")):
        with pytest.raises(TableFileError, match="is not a file") as raised:
            open_table(path)
        assert "write it to a file first" in (raised.value.hint or "")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("none.csv", "none.parquet", "none.jsonl"):
        with pytest.raises(TableFileError, match="No such file or directory"):
            open_table(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableFileError, match="Is a directory"):
        open_table(tmp_path / "folder.csv")


ODD_TEXTS = {
    ".csv": [
        b"\n\n", b"time\n", b"time,x\n", b"\xff\xfe\x00time,x\n1,2\n", b"time,x\n1,\xff\n", b"time,time,x\n1,2,3\n",
        b'"time,x\n1,2\n', b"time;x\n1;2\n", b"\xef\xbb\xbftime,x\n1,2\n", b'time,x\n1,"a\n', b",\n,\n",
        b"time,x\n1,1e400\n2,nan\n", b"time,x\n1,99999999999999999999\n", b"time,x\n0,1\ntime,x\n",
    ],
    ".jsonl": [
        b"\n", b"{}\n", b'{"time":1}\n', b'{"time":1,"x":{"a":1}}\n', b'{"time":1,"x":1}\n{"time":2,"x":"a"}\n',
        b'{"time":true,"x":1}', b'{"time":[1],"x":1}', b'{"time":1,"x":99999999999999999999999}\n',
        b'{"time":1,"x":1e999}\n', b'\xff{"time":1}\n', b'{"time":1,"x":1}{"time":2,"x":2}\n',
    ],
    ".parquet": [b"PAR1PAR1", b"x" * 100],
}  # fmt: skip
ODD_COLUMNS = [
    (pl.Series([1]), pl.Series([b"a"])),
    (pl.Series([None]), pl.Series([1])),
    (pl.Series([2**63], dtype=pl.UInt64), pl.Series([1])),
    (pl.Series([1], dtype=pl.Int128), pl.Series([2**70], dtype=pl.Int128)),
    (pl.Series([1]), pl.Series([2**63 + 5], dtype=pl.UInt64)),
    (pl.Series([1]), pl.Series([1]).cast(pl.Duration("us"))),
    (pl.Series([1]).cast(pl.Time), pl.Series([1])),
    (pl.Series(["2012-03-01"], dtype=pl.Categorical), pl.Series([1])),
    (pl.Series([], dtype=pl.Null), pl.Series([], dtype=pl.Null)),
]


def answered_or_refused(path: Path, types: dict[str, FieldType]) -> bool:
    try:
        file = StreamFile(open_table(path, types=types, instants="time"))
        list(Trial("SELECT x FROM s WINDOW(RANGE 5 US)", Files({}, unnamed=file)).answers())
    except FjordError:
        return False
    return True


@pytest.mark.parametrize("types", [{}, *({"x": each} for each in FIELD_TYPES)])
def test_an_odd_file_raises_only_our_own_errors(tmp_path: Path, types: dict[str, FieldType]) -> None:
    outcomes = set()
    for suffix, contents in ODD_TEXTS.items():
        for number, content in enumerate(contents):
            path = tmp_path / f"{number}{suffix}"
            path.write_bytes(content)
            outcomes.add(answered_or_refused(path, types))
    for number, (time, x) in enumerate(ODD_COLUMNS):
        path = tmp_path / f"columns-{number}.parquet"
        pl.DataFrame({"time": time, "x": x}).write_parquet(path)
        outcomes.add(answered_or_refused(path, types))
    assert outcomes == {True, False}
