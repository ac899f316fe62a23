"""Numbers of a dropped stream's batches: kept until a table has them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.errors import StorageError
from cluster.storage.stream_tables import open_stream_tables
from cluster.storage.table_folders import FOLDER, DroppedStreams

if TYPE_CHECKING:
    from pathlib import Path


def test_numbers_are_kept_until_they_are_forgotten(tmp_path: Path) -> None:
    dropped = DroppedStreams(tmp_path)
    assert dropped.recall("roads") == {}
    dropped.remember("roads", {("p", "e"): 3, ("q", "f/g"): 1})
    assert DroppedStreams(tmp_path).recall("roads") == {("p", "e"): 3, ("q", "f/g"): 1}
    assert open_stream_tables(tmp_path) == {}, "the folder is no stream"
    dropped.forget("roads")
    dropped.forget("roads")
    assert dropped.recall("roads") == {}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    DroppedStreams(tmp_path).remember("roads", {})
    (tmp_path / FOLDER / "roads.json").write_bytes(b"[")
    with pytest.raises(StorageError, match="dropped stream 'roads' cannot be read"):
        DroppedStreams(tmp_path).recall("roads")
