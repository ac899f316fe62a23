"""What a stream table holds between two instants, from what its files say of themselves."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.errors import StorageError
from cluster.storage.stream_retention import StoredFile, StoredFiles
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema("traffic", (Field("speed", FieldType.REAL),))


def append(table: StreamTable, *stamps: int) -> int:
    rows = pl.DataFrame(
        {
            "fjord_start_us": stamps,
            "fjord_mote": ["m"] * len(stamps),
            "fjord_default_rate": [True] * len(stamps),
            "speed": [1.0] * len(stamps),
        },
        schema_overrides={"fjord_start_us": pl.Int64},
    )
    return table.append([rows.to_arrow().cast(arrow_schema(TRAFFIC))], StreamPosition(0, {}), {})


def test_rows_are_spread_evenly_over_the_time_of_a_file() -> None:
    files = StoredFiles([StoredFile("b", 100, 100, 199), StoredFile("a", 10, 0, 9), StoredFile("c", 7, 150, 150)])
    assert [file.path for file in files.files] == ["a", "b", "c"]
    assert (files.first_us, files.end_us) == (0, 200)
    assert files.rows_between(-(2**62), None) == 117
    assert files.rows_between(5, 120) == pytest.approx(25)
    assert files.rows_between(150, 151) == pytest.approx(8)
    assert files.rows_between(120, 120) == files.rows_between(200, None) == files.rows_between(10, 5) == 0
    assert [file.path for file in files.between(9, 150)] == ["a", "b"]
    assert [file.path for file in files.between(10, None)] == ["b", "c"]
    nothing = StoredFiles([])
    assert (nothing.first_us, nothing.end_us, nothing.rows_between(0, None), nothing.between(0, None)) == (
        None, None, 0, (),
    )  # fmt: skip


def test_a_version_is_what_had_been_stored_by_then_however_files_were_merged_since(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    for at in range(0, 40, 10):
        then = append(table, at, at + 3)
    append(table)
    append(table, 100)
    before = StoredFiles.at(table.root, then)
    table._table.optimize.compact()
    merged = table._table.version()
    append(table, 200)
    assert [file.rows for file in StoredFiles.at(table.root, then).files] == [2, 2, 2, 2]
    assert StoredFiles.at(table.root, then).files == before.files
    (one,) = StoredFiles.at(table.root, merged).files
    assert (one.rows, one.first_us, one.last_us) == (9, 0, 100)
    assert StoredFiles.at(table.root, table.version).rows_between(0, None) == 10
    assert not StoredFiles.at(table.root, -1).files
    assert not StoredFiles.at(table.root, 0).files


def test_a_version_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    with pytest.raises(StorageError, match="version 7") as caught:
        StoredFiles.at(table.root, 7)
    assert "kept for a day" in str(caught.value.hint)
