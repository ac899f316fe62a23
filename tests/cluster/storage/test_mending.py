"""What a power cut leaves half written of a log is removed; everything that counted is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cluster.storage import archived_log, delta_tables
from cluster.storage.archived_log import LOG
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

Cut = Callable[[bytes], bytes]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def first_lines(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:2])


def zeros(content: bytes) -> bytes:
    return bytes(len(content))


def nothing(_: bytes) -> bytes:
    return b""


CUTS = pytest.mark.parametrize("cut", [nothing, half, zeros])


def filled(folder: Path, count: int) -> StreamTable:
    table = StreamTable(str(folder / "traffic"), TRAFFIC)
    for number in range(1, count + 1):
        table.append([rows(number)], at(number), {("p", "e"): number})
    return table


@pytest.mark.parametrize("cut", [nothing, half, zeros, first_lines])
def test_the_newest_commit_is_whole_or_none(tmp_path: Path, cut: Cut) -> None:
    newest = Path(filled(tmp_path, 3).root, LOG, f"{3:020d}.json")
    newest.write_bytes(cut(newest.read_bytes()))
    table = open_stream_tables(tmp_path)["traffic"]
    assert (table.version, table.position(), table.last_sequence("p", "e")) == (2, at(2), 2)
    assert table.append([rows(3)], at(3), {("p", "e"): 3}) == 3
    assert DeltaTable(table.root).to_pyarrow_table().num_rows == 3


@CUTS
def test_a_table_that_was_being_made_is_none(tmp_path: Path, cut: Cut) -> None:
    first = Path(filled(tmp_path, 0).root, LOG, f"{0:020d}.json")
    first.write_bytes(cut(first.read_bytes()))
    assert open_stream_tables(tmp_path) == {}
    assert filled(tmp_path, 2).version == 2


@CUTS
def test_a_checkpoint_is_whole_or_none(tmp_path: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 5)
    monkeypatch.setattr(archived_log, "COMMITS_KEPT", 4)
    log = Path(filled(tmp_path, 15).root, LOG)
    newest = max(log.glob("*.checkpoint.parquet"))
    newest.write_bytes(cut(newest.read_bytes()))
    table = StreamTable(str(tmp_path / "traffic"))
    assert (table.version, table.last_sequence("p", "e")) == (15, 15)
    assert DeltaTable(table.root).to_pyarrow_table().num_rows == 15


@CUTS
def test_what_names_the_last_checkpoint_is_whole_or_none(
    tmp_path: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 5)
    last = Path(filled(tmp_path, 6).root, LOG, "_last_checkpoint")
    last.write_bytes(cut(last.read_bytes()))
    assert StreamTable(str(tmp_path / "traffic")).last_sequence("p", "e") == 6
    assert not last.exists()


def test_nothing_is_removed_that_is_whole(tmp_path: Path) -> None:
    table = filled(tmp_path, 3)
    before = sorted(path.name for path in Path(table.root, LOG).iterdir())
    StreamTable(table.root)
    assert sorted(path.name for path in Path(table.root, LOG).iterdir()) == before
