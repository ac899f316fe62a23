"""A table that a power cut left damaged does not keep the cluster from its start: it is put right, or set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from deltalake import DeltaTable

from cluster.errors import StorageError
from cluster.ingest.service import Ingest
from cluster.storage.archived_log import ARCHIVE
from cluster.storage.compaction import Compaction
from cluster.storage.damaged_tables import ASIDE, DAMAGED, Damage
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

if TYPE_CHECKING:
    from pathlib import Path

LANE = ("p", "e")


def made(folder: Path, commits: int = 3) -> Path:
    """Make a table whose commits hold a row each."""
    table = StreamTable(str(folder / "traffic"), TRAFFIC, compaction=Compaction(commits_between=10**9))
    for number in range(1, commits + 1):
        table.append([rows(number)], at(number), {LANE: number})
    return folder / "traffic"


def commit_of(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020d}.json"


def opened(folder: Path) -> tuple[dict[str, StreamTable], list[Damage]]:
    damages: list[Damage] = []
    return open_stream_tables(folder, damages=damages.append), damages


def stamps(root: Path) -> list[int]:
    return sorted(pl.read_delta(str(root))["fjord_start_us"].to_list())


def test_a_folder_without_a_commit_is_no_stream_yet_and_can_become_one(tmp_path: Path) -> None:
    (tmp_path / "traffic" / "_delta_log").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert opened(tmp_path) == ({}, [])
    assert StreamTable(str(tmp_path / "traffic"), TRAFFIC).version == 0


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b'{"commitInfo":{"\xff'])
def test_an_only_commit_that_is_not_whole_is_that_of_no_stream_yet(tmp_path: Path, content: bytes) -> None:
    root = made(tmp_path, commits=0)
    commit_of(root, 0).write_bytes(content)
    assert opened(tmp_path) == ({}, [])
    assert StreamTable(str(root), TRAFFIC).version == 0


def test_a_table_that_cannot_be_put_right_is_set_aside_and_made_anew(tmp_path: Path) -> None:
    root = made(tmp_path, commits=0)
    for number in (1, 2):
        commit_of(root, 0).write_bytes(b'{"add":"nothing"}')
        tables, (damage,) = opened(tmp_path)
        assert (tables, damage.sequences) == ({}, {})
        assert "begun anew" in str(damage)
        assert (tmp_path / ASIDE / f"traffic-{number}").is_dir(), "what was set aside before stays"
        assert StreamTable(str(root), TRAFFIC).version == 0


def test_a_lost_first_commit_is_made_anew_from_the_data(tmp_path: Path) -> None:
    root = made(tmp_path)
    commit_of(root, 0).write_bytes(b"")
    tables, (damage,) = opened(tmp_path)
    assert damage == Damage("traffic", lost_commits=0), "it held nothing but columns"
    table = tables["traffic"]
    assert (table.schema, table.version, table.position(), table.last_sequence(*LANE)) == (TRAFFIC, 3, at(3), 3)
    assert stamps(root) == [1, 2, 3]
    assert (root / DAMAGED / commit_of(root, 0).name).exists()
    assert opened(tmp_path)[1] == [], "it is put right for good"


@pytest.mark.parametrize("content", [b"", b"\0" * 500, b'{"add":{"pa', b'{"txn":{"appId":"\xff"}}', None])
def test_a_lost_commit_costs_its_rows_alone(tmp_path: Path, content: bytes | None) -> None:
    root = made(tmp_path)
    commit_of(root, 2).unlink()
    if content is not None:
        commit_of(root, 2).write_bytes(content)
    tables, (damage,) = opened(tmp_path)
    assert damage.lost_commits == 1
    assert "1 commits" in str(damage)
    assert (tables["traffic"].version, stamps(root)) == (3, [1, 3])
    assert tables["traffic"].log.read(2).files == ()
    tables["traffic"].append([rows(4)], at(4), {LANE: 4})
    assert opened(tmp_path)[1] == []


def test_a_lost_checkpoint_costs_nothing(tmp_path: Path) -> None:
    root = made(tmp_path)
    DeltaTable(str(root)).create_checkpoint()
    (checkpoint,) = (root / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"PAR1")
    tables, damages = opened(tmp_path)
    assert (tables["traffic"].version, damages, stamps(root)) == (3, [], [1, 2, 3])


def test_commits_come_back_from_the_archive_where_the_checkpoint_before_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.storage.archived_log.COMMITS_KEPT", 10)
    monkeypatch.setattr("cluster.storage.delta_tables.COMMITS_BETWEEN_CHECKPOINTS", 5)
    commits = 30
    root = made(tmp_path, commits)
    assert list((root / ARCHIVE).rglob("*.json"))
    for checkpoint in (root / "_delta_log").glob("*.checkpoint.parquet"):
        checkpoint.write_bytes(b"")
    tables, (damage,) = opened(tmp_path)
    assert (tables["traffic"].version, damage.lost_commits) == (commits, 0)
    assert len(stamps(root)) == commits


def test_a_table_that_cannot_be_put_right_leaves_its_numbers(tmp_path: Path) -> None:
    root = made(tmp_path, commits=0)
    StreamTable(str(root)).append([], at(1), {LANE: 7})
    commit_of(root, 0).write_bytes(b"")
    ingest = Ingest(tmp_path, quarantine=lambda *_: None)
    assert (list(ingest.writers), list(ingest.damages)) == ([], ["traffic"])
    ingest.declare(TRAFFIC)
    assert ingest.writers["traffic"].table.last_sequence(*LANE) == 7


def test_results_go_on_after_their_first_commit_was_lost(tmp_path: Path) -> None:
    root = tmp_path / "results"
    answer = pl.DataFrame({"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]})
    ResultsTable(str(root), "f").append(answer, 0)
    commit_of(root, 0).write_bytes(b"")
    table = ResultsTable(str(root), "f")
    assert table.damage is not None
    assert (table.version, table.committed(0), table.last_sequence("q")) == (1, True, 1)


@pytest.mark.parametrize("content", [b"", b"{garbled"])
def test_results_whose_only_commit_was_lost_begin_anew(tmp_path: Path, content: bytes) -> None:
    root = tmp_path / "results"
    ResultsTable(str(root), "f")
    commit_of(root, 0).write_bytes(content)
    assert ResultsTable(str(root), "f").version == 0


def test_results_that_cannot_be_put_right_are_named(tmp_path: Path) -> None:
    root = tmp_path / "results"
    ResultsTable(str(root), "f")
    commit_of(root, 0).write_bytes(b'{"commitInfo":{}}')
    with pytest.raises(StorageError, match=r"results table .* is damaged"):
        ResultsTable(str(root), "f")


def test_a_commit_that_is_cut_off_between_two_lines_is_lost_as_a_whole(tmp_path: Path) -> None:
    root = made(tmp_path)
    lines = commit_of(root, 1).read_bytes().splitlines(keepends=True)
    commit_of(root, 1).write_bytes(b"".join(lines[:-1]))
    commit_of(root, 2).write_bytes(b"")
    tables, (damage,) = opened(tmp_path)
    assert (damage.lost_commits, tables["traffic"].version, len(stamps(root))) == (2, 3, 1)
