"""A short log loses nothing: commits are read one by one, and versions put together, as before."""

from __future__ import annotations

import os
import time
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from cluster.errors import StorageError
from cluster.storage import archived_log
from cluster.storage.archived_log import KEEP_HOURS
from cluster.storage.commit_log import CommitLog
from cluster.storage.compaction import Compaction
from cluster.storage.delta_tables import COMMITS_BETWEEN_CHECKPOINTS
from cluster.storage.stream_retention import StoredFiles
from cluster.storage.stream_tables import StreamTable, watermark_at
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

COMMITS = 250


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StreamTable:
    """A table of 250 commits, compacted after every eighty; those up to its first checkpoint are not in its log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archived_log, "COMMITS_KEPT", 20)
        patch.setattr(archived_log, "COMMITS_A_FOLDER", 64)
        folder = tmp_path_factory.mktemp("tables") / "traffic"
        table = StreamTable(str(folder), TRAFFIC, compaction=Compaction(commits_between=80))
        for number in range(COMMITS):
            table.append([rows(number)], at(number), {("p", "e"): number})
    return table


def _log(table: StreamTable) -> list[str]:
    return sorted(entry.name for entry in Path(table.root, archived_log.LOG).iterdir())


def test_the_log_is_short_and_the_rest_is_beside_it(table: StreamTable) -> None:
    commits = [name for name in _log(table) if name.endswith(".json")]
    archived = sorted(Path(table.root, archived_log.ARCHIVE).glob("*/*.json"))
    assert len(archived) == COMMITS_BETWEEN_CHECKPOINTS
    assert len({path.parent for path in archived}) > 1
    assert len(commits) + len(archived) == table.version + 1


def test_each_commit_is_found_where_it_is(table: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archived_log, "COMMITS_A_FOLDER", 64)
    log = CommitLog(table.root)
    found = [file for version in range(table.version + 1) for file in log.read(version).files]
    stamps = [pl.read_parquet(f"{table.root}/{file.path}")["fjord_start_us"].to_list() for file in found]
    assert stamps == [[number] for number in range(COMMITS)]
    assert log.latest(0) == table.version
    assert watermark_at(log, 1) == 0
    with pytest.raises(StorageError, match=f"version {table.version + 1} "):
        log.read(table.version + 1)


def test_any_version_can_be_put_together(table: StreamTable) -> None:
    for version in (1, 57, 99, 100, 101, 120, 199, table.version):
        files = StoredFiles.at(table.root, version)
        stamps = pl.concat([pl.read_parquet(f"{table.root}/{file.path}") for file in files.files])["fjord_start_us"]
        # Compactions are versions, too.
        assert sorted(stamps) == list(range(len(stamps)))
        assert version - 3 <= len(stamps) <= version
    with pytest.raises(StorageError, match=f"version {table.version + 1} "):
        StoredFiles.at(table.root, table.version + 1)


def test_any_delta_reader_reads_it_and_a_vacuum_spares_the_archive(table: StreamTable) -> None:
    found = DeltaTable(table.root)
    assert found.to_pyarrow_table().num_rows == COMMITS
    for full in (False, True):
        gone = found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True, full=full)
        assert not [path for path in gone if archived_log.ARCHIVE in path]


def test_what_is_archived_is_kept_for_a_day(table: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Path(table.root, archived_log.ARCHIVE)
    oldest, *others = sorted(archive.iterdir())
    yesterday = time.time() - KEEP_HOURS * 3600 - 60
    os.utime(oldest, (yesterday, yesterday))
    monkeypatch.setattr(archived_log, "COMMITS_A_FOLDER", 64)
    assert archived_log.forget_archived(Path(table.root), needed=None, now=time.time()) == 1
    assert not oldest.exists()
    assert all(folder.exists() for folder in others)
