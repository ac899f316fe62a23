"""Folders of tables: different for different names, found again, and short enough for any file system."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import StorageError
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from cluster.storage.table_folders import folder_of, relation_folder, stream_of
from protocols.wire.names import fault_of_name
from protocols.wire.streams import Field, FieldType, StreamSchema

LONGEST_ENTRY = 255
"""Bytes that Linux allows in the name of a file."""
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: fault_of_name(name) is None)


@given(NAMES)
def test_a_folder_is_that_of_one_stream(name: str) -> None:
    folder = folder_of(name)
    assert folder.isascii()
    assert not folder.startswith(("_", "."))
    assert stream_of(folder) == name


def test_names_of_earlier_versions_are_those_of_their_folders() -> None:
    for name in ("traffic", "7a", "a-b.c", "A_"):
        assert folder_of(name) == stream_of(name) == name
        assert relation_folder(f"{name}@7") == f"{name}@7"


def test_the_longest_names_fit() -> None:
    for name in ("x" * 64, "é" * 64, "日" * 42, "\N{DESERET SMALL LETTER LONG I}" * 32):
        assert fault_of_name(name) is None
        assert len(folder_of(name)) + len(".json.new") <= LONGEST_ENTRY
        assert len(relation_folder(f"{name}@123456789012")) <= LONGEST_ENTRY


def test_what_is_no_folder() -> None:
    with pytest.raises(StorageError, match="no stream has a folder"):
        stream_of("@!")


def test_tables_are_found_by_their_streams(tmp_path: Path) -> None:
    for name in ("straße", "_x", "plain"):
        schema = StreamSchema(name, (Field("größe", FieldType.REAL), Field("_y", FieldType.TEXT)))
        StreamTable(str(tmp_path / folder_of(name)), schema)
    found = open_stream_tables(tmp_path)
    assert {name: table.schema.field_names for name, table in found.items()} == dict.fromkeys(
        ("straße", "_x", "plain"), ("größe", "_y")
    )
