"""Errors of relations quote nothing of a file and no value of a row; they may name what the statement names."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from cluster.operators.columns import Column, Schema
from cluster.relations.fitting import all_columns
from cluster.relations.source import RelationSourceError
from protocols.wire.streams import FieldType
from tests.cluster.relations.source_cases import opened

SECRET = "hunter2"
NUMBERS = Column("a", FieldType.INTEGER), Column("b", FieldType.INTEGER)
A_TEXT = (Column("a", FieldType.TEXT),)


def error_of(address: object, columns: Schema = (), more: str = "") -> str:
    """Return all that an error says: its text, its hint and what it was raised from."""
    source = opened(str(address), name="t", more=more)
    with pytest.raises(RelationSourceError) as caught:
        source.rows(columns) if columns else all_columns(source.columns())
    error = caught.value
    assert error.__cause__ is None
    return f"{error} {error.hint} {getattr(error, 'column', '')}"


@pytest.mark.parametrize(
    "line",
    [
        f"root:{SECRET}:0:0:root:/root:/bin/sh",
        f"{SECRET} is,the first line",
        f"{SECRET}€,b",
        f"fjord_{SECRET},b",
        f"{SECRET},{SECRET.upper()}",
    ],
)
def test_the_first_line_of_a_file_is_not_quoted(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n1,2\n")
    assert SECRET not in error_of(tmp_path / "t.csv").casefold()


@pytest.mark.parametrize("wanted", ["a", "hunter", "hunter1", "hunter22"])
def test_the_first_line_is_not_suggested_as_a_name(tmp_path: Path, wanted: str) -> None:
    (tmp_path / "t.csv").write_text(f"{SECRET}\n1\n")
    found = error_of(tmp_path / "t.csv", (Column(wanted, FieldType.TEXT),))
    assert SECRET not in found.replace(wanted, "")
    assert f"it has no column {wanted!r}" in found


@pytest.mark.parametrize(
    "content",
    [
        f"a,b\n{SECRET},2\n",
        f"a,b\n1,2,{SECRET}\n",
        f'a,b\n1,"{SECRET}\n',
        f"a,b\n1,{SECRET}" * 3,
        SECRET,
        "",
        f'"{SECRET}\n1,2',
        f"a,b\n\ufffe{SECRET},1\n",
    ],
)
def test_a_csv_file_is_not_quoted(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert SECRET not in error_of(tmp_path / "t.csv", NUMBERS)


@given(st.binary(max_size=60))
def test_no_bytes_of_a_file_are_quoted(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name in ("t.csv", "t.parquet", "t.db"):
        path = folder / name
        path.write_bytes(SECRET.encode() + content + SECRET.encode() + b"\n" + SECRET.encode())
        address = f"sqlite:{path}" if name == "t.db" else path
        assert SECRET not in error_of(address, NUMBERS)


def test_values_that_cannot_be_converted_are_not_quoted(tmp_path: Path) -> None:
    big = 2**63 + 4711
    pl.DataFrame({"a": pl.Series([big], dtype=pl.UInt64)}).write_parquet(tmp_path / "t.parquet")
    found = error_of(tmp_path / "t.parquet", NUMBERS[:1])
    assert str(big) not in found
    assert "the conversion of a value of column 'a' fails" in found


@pytest.mark.parametrize(
    "entry", ['{"x": "hunter2"}', "hunter2", '{"protocol": hunter2}', '{"metaData": {"id": "hunter2"}}']
)
def test_the_log_of_a_delta_table_is_not_quoted(tmp_path: Path, entry: str) -> None:
    write_deltalake(tmp_path / "t", pl.DataFrame({"a": [1]}).to_arrow())
    (log,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    log.write_text(entry)
    assert SECRET not in error_of(f"delta:{tmp_path}/t", NUMBERS[:1])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        *(
            (value, type_)
            for value in (SECRET, SECRET.encode())
            for type_ in ("INTEGER", "BOOLEAN", "REAL", "TIMESTAMP")
        ),
        (4711.5, "INTEGER"),
        (4711.5, "BOOLEAN"),
    ],
)
def test_values_of_sqlite_are_not_quoted(tmp_path: Path, value: object, type_: str) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute(f"CREATE TABLE t (a {type_})")
        database.execute("INSERT INTO t VALUES (?)", [value])
    kinds = {"INTEGER": FieldType.INTEGER, "BOOLEAN": FieldType.BOOLEAN, "REAL": FieldType.REAL}
    found = error_of(f"sqlite:{tmp_path}/t.db", (Column("a", kinds.get(type_, FieldType.INTEGER)),))
    assert not any(each in found for each in (SECRET, "4711"))
    assert "column 'a' holds" in found


@pytest.mark.parametrize(
    "expression",
    [
        "json_extract(a, ''$.x'')",
        "json_extract(''{}'', a)",
        "CAST(x''ff'' || a AS TEXT)",
        "json(a)",
        "abs(-9223372036854775808)",
    ],
)
def test_errors_within_sqlite_are_not_passed_on_if_they_may_quote_rows(tmp_path: Path, expression: str) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("CREATE TABLE t (a TEXT)")
        database.execute("INSERT INTO t VALUES (?)", [SECRET])
    found = error_of(f"sqlite:{tmp_path}/t.db", A_TEXT, more=f"QUERY 'SELECT {expression} AS a FROM t'")
    assert SECRET not in found
    assert "SQLite cannot read it: " in found


def test_errors_about_a_statement_for_sqlite_are_passed_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("CREATE TABLE t (a TEXT)")
    for more, words in (
        ("QUERY 'SELECT missing FROM t'", "no such column: missing"),
        ("TABLE missing", "no such table: missing"),
        ("QUERY 'SELECT FROM FROM'", 'near "FROM": syntax error'),
    ):
        assert words in error_of(f"sqlite:{tmp_path}/t.db", A_TEXT, more=more)
