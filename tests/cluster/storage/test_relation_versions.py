"""Versions of relations: seen wholly or not at all, numbered, pruned."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.errors import StorageError
from cluster.storage.relation_versions import RelationVersions

ONE = pl.DataFrame({"segment": [1, 2], "description": ["fire", None]})
TWO = pl.DataFrame({"segment": [3], "description": ["fog"]})


def committed(versions: RelationVersions, rows: pl.DataFrame, begin_us: int) -> int:
    """Commit a version; return its number."""
    versions.prepare(rows)
    return versions.commit(rows, {"traffic": begin_us}).number


def test_versions_are_numbered_and_found_by_others(tmp_path: Path) -> None:
    versions = RelationVersions(tmp_path / "incidents@1")
    assert versions.latest() == 0
    assert [committed(versions, ONE, 10), committed(versions, TWO, 20)] == [1, 2]
    other = RelationVersions(tmp_path / "incidents@1")
    assert other.latest() == 2
    assert other.version(2).begins_us == {"traffic": 20}
    assert other.version(1).rows == 2
    assert pl.read_parquet(other.snapshot(1)).equals(ONE)
    assert pl.read_parquet(other.snapshot(2)).equals(TWO)


def test_what_is_prepared_only_is_no_version(tmp_path: Path) -> None:
    versions = RelationVersions(tmp_path / "incidents@1")
    versions.prepare(ONE)
    assert versions.latest() == 0
    committed(versions, TWO, 5)
    assert pl.read_parquet(versions.snapshot(1)).equals(TWO)


def test_a_failure_keeps_the_snapshot_for_its_end(tmp_path: Path) -> None:
    versions = RelationVersions(tmp_path / "incidents@1")
    committed(versions, ONE, 10)
    assert versions.commit_failure("stale for 5 minutes", {"traffic": 20}).failure == "stale for 5 minutes"
    versions.commit_failure("", {"traffic": 30})
    assert versions.version(3).data == 1
    assert pl.read_parquet(versions.snapshot(3)).equals(ONE)


def test_old_versions_go_with_their_snapshots_but_not_those_still_used(tmp_path: Path) -> None:
    versions = RelationVersions(tmp_path / "incidents@1")
    for number in range(6):
        committed(versions, ONE, number)
    versions.commit_failure("away", {"traffic": 9})
    later_seconds = (tmp_path / "incidents@1" / "000000000001.json").stat().st_mtime + 7200
    assert versions.prune(keep=1, now_seconds=later_seconds - 7200) == 0
    assert versions.prune(keep=1, now_seconds=later_seconds) == 6
    assert versions.numbers() == [7]
    assert pl.read_parquet(versions.snapshot(7)).equals(ONE)
    assert len(list((tmp_path / "incidents@1").glob("*.parquet"))) == 1


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"version 4 of relation incidents@1"):
        RelationVersions(tmp_path / "incidents@1").version(4)
