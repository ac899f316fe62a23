"""A sync that failed may succeed when tried again, though what was to be written is gone: so it is written again first.

The kernel takes pages that it could not write for written. The next sync of the same file has nothing to do then.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cluster.errors import StorageError
from cluster.spark.checkpoint import CheckpointFiles, discard_truncated
from cluster.storage.archived_log import LOG
from cluster.storage.stream_tables import StreamTable
from cluster.storage.synced_files import sync
from tests.cluster.storage.test_tables import TRAFFIC, at, rows


class Disk:
    """Fails some syncs, and knows what it has lost for good."""

    def __init__(self) -> None:
        self.failing = ""
        """The end of a path whose next sync fails."""
        self.synced: set[int] = set()
        self._lost: dict[int, int] = {}

    def fsync(self, descriptor: int) -> None:
        path, status = Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor)
        if self.failing and str(path).endswith(self.failing):
            self.failing = ""
            self._lost[status.st_ino] = status.st_mtime_ns
            raise OSError(errno.EIO, "Input/output error")
        if self._lost.get(status.st_ino) != status.st_mtime_ns:  # written since
            self.synced.add(status.st_ino)

    def has(self, path: Path) -> bool:
        return path.stat().st_ino in self.synced


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.fsync)
    return found


def commit(table: StreamTable, version: int) -> Path:
    return Path(table.root, LOG, f"{version:020d}.json")


def test_a_commit_whose_sync_failed_is_written_again_before_it_counts(tmp_path: Path, disk: Disk) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    disk.failing = f"{1:020d}.json"
    assert table.append([rows(1)], at(1), {("p", "e"): 1}) == 1
    assert disk.has(commit(table, 1))
    assert StreamTable(table.root).last_sequence("p", "e") == 1


def test_a_file_whose_sync_failed_is_named_by_no_commit(tmp_path: Path, disk: Disk) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    disk.failing = ".parquet"
    with pytest.raises(StorageError, match="could not append"):
        table.append([rows(1)], at(1), {("p", "e"): 1})
    table.append([rows(1)], at(1), {("p", "e"): 1})
    assert [disk.has(Path(table.root, file.path)) for file in table.log.read(1).files] == [True]


def test_spark_s_log_is_written_again_when_the_fjord_is_started_again(tmp_path: Path, disk: Disk) -> None:
    offset = tmp_path / "offsets" / "0"
    offset.parent.mkdir()
    offset.write_text('v1\n{}\n{"epoch": 1}')
    disk.failing = "offsets/0"
    with pytest.raises(OSError, match="Input/output"):
        CheckpointFiles(tmp_path).sync()
    CheckpointFiles(tmp_path).sync()
    assert disk.has(offset)
    assert offset.read_text() == 'v1\n{}\n{"epoch": 1}'


def forgotten(path: Path, disk: Disk) -> None:
    """Let the sync of a path have failed in a process that is no more: that is not known any more."""
    disk.failing = path.name
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="Input/output"):
        disk.fsync(descriptor)
    os.close(descriptor)


def test_what_an_earlier_process_may_not_have_synced_is_written_again(tmp_path: Path, disk: Disk) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    table.append([rows(1)], at(1), {("p", "e"): 1})
    disk.synced.clear()
    forgotten(commit(table, 1), disk)
    StreamTable(table.root)
    assert disk.has(commit(table, 1))


def test_the_newest_offset_is_written_again_at_the_start(tmp_path: Path, disk: Disk) -> None:
    for number in range(2):
        for log, content in (("offsets", 'v1\n{}\n{"epoch": 1}'), ("commits", "v1\n{}")):
            (tmp_path / log).mkdir(exist_ok=True)
            (tmp_path / log / str(number)).write_text(content)
    forgotten(tmp_path / "offsets" / "1", disk)
    discard_truncated(tmp_path, lambda _: True)
    CheckpointFiles(tmp_path).sync()
    assert disk.has(tmp_path / "offsets" / "1")


def test_what_cannot_be_written_again_is_an_error_each_time(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    for _ in range(3):
        disk.failing = "file"
        with pytest.raises(OSError, match="Input/output"):
            sync([path])
    sync([path])
    assert disk.has(path)
