"""What is on disk when: each file before its name, and both before they are announced."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql.streaming.datasource import ReadMaxRows

from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.data_folder.folder import open_folder
from cluster.service.registry.registry import Registry
from cluster.spark.checkpoint import CheckpointFiles
from cluster.spark.envelopes import OUTPUT_SCHEMA, CollectedOutputs
from cluster.spark.hosting import storing
from cluster.spark.offsets import Offset
from cluster.spark.source import FjordReader, SourceOptions, sync_named
from cluster.storage.compaction import Compaction
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from cluster.storage.table_folders import DroppedStreams
from cluster.storage.unnumbered_answers import Numbering, UnnumberedFolder, write_numbered, write_unnumbered
from protocols.wire.streams import FieldType
from proxy.storage.database import open_database
from proxy.storage.stores import owned_data_folder
from tests.cluster.storage.test_tables import TRAFFIC, answers, at, rows

Recorded = Callable[[], list[str]]


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What has been synced since it was asked for last, as paths below the folder of the test."""
    found: list[str] = []

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(tmp_path):
            found.append(str(path.relative_to(tmp_path)))

    def taken() -> list[str]:
        taken = found.copy()
        found.clear()
        return taken

    monkeypatch.setattr(os, "fsync", record)
    return taken


def commit_of(version: int) -> str:
    return f"traffic/_delta_log/{version:020d}.json"


def test_a_new_data_folder_is_on_disk(tmp_path: Path, synced: Recorded) -> None:
    open_folder(tmp_path / "new" / "data").close()
    made = synced()
    assert {".", "new"} <= set(made)  # what names it, and what names that
    assert made.index("new") < made.index("new/data")  # before anything in it counts


def test_a_new_table_is_on_disk(tmp_path: Path, synced: Recorded) -> None:
    StreamTable(str(tmp_path / "new" / "traffic"), TRAFFIC)
    made = synced()
    assert made.index(f"new/{commit_of(0)}") < made.index("new/traffic/_delta_log")
    assert {".", "new", "new/traffic"} <= set(made)


def test_files_are_on_disk_before_the_commit_that_names_them(
    tmp_path: Path, synced: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    commit, before = DeltaTable.create_write_transaction, list[str]()

    def committing(self: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        before.extend(synced())
        commit(self, *arguments, **keywords)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", committing)
    synced()
    table.append([rows(1)], at(1), {("p", "e"): 1})
    (file,) = table.log.read(1).files
    assert before == [f"traffic/{file.path}", "traffic"]
    assert synced() == [commit_of(1), "traffic/_delta_log"]


def test_a_file_that_a_task_writes_is_on_disk_before_it_has_its_name(tmp_path: Path, synced: Recorded) -> None:
    results = ResultsTable(str(tmp_path / "results"), "f")
    folder = UnnumberedFolder(results.root, "run")
    folder.make()
    written: list[str] = []

    def write(files: Sequence[Numbering]) -> list[AddAction]:
        synced()
        entries = [write_numbered(each) for each in files]
        written.extend(synced())
        return entries

    results.append_parts([write_unnumbered(folder.path, answers(("a", 1)))], 0, "stateless", write)
    made, named = written
    assert made.startswith("results/_fjord_unnumbered/run/part-"), "the whole content"
    assert named == "results", "the name"
    assert synced() == ["results/_delta_log/00000000000000000001.json", "results/_delta_log"]


def test_a_merged_file_is_on_disk_before_the_commit_that_names_it(tmp_path: Path, synced: Recorded) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC, compaction=Compaction(3))
    for number in range(1, 4):
        table.append([rows(number)], at(number), {("p", "e"): number})
    synced()
    table.append([rows(4)], at(4), {("p", "e"): 4})
    done = synced()
    (merged,) = [Path(uri).name for uri in DeltaTable(table.root).file_uris()]
    assert done.index(f"traffic/{merged}") < done.index("traffic", done.index(f"traffic/{merged}"))
    assert done.index(f"traffic/{merged}") < done.index(commit_of(5)) < len(done) - 1
    assert done[-1] == "traffic/_delta_log"


def test_what_a_killed_process_committed_is_on_disk_before_it_counts(tmp_path: Path, synced: Recorded) -> None:
    StreamTable(str(tmp_path / "traffic"), TRAFFIC).append([rows(1)], at(1), {("p", "e"): 1})
    synced()
    StreamTable(str(tmp_path / "traffic"))
    commit, *names = synced()[:3]
    assert (commit, sorted(names)) == (commit_of(1), ["traffic", "traffic/_delta_log"])


def test_a_version_does_not_count_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    seen: list[tuple[bool, int]] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append((table.log.exists(1), table.version)))
    assert table.append([rows(1)], at(1), {("p", "e"): 1}) == table.version == 1
    assert seen == [(False, 0), (False, 0), (True, 0), (True, 0)]


def test_plans_versions_of_relations_and_numbers_of_dropped_streams_are_on_disk(
    tmp_path: Path, synced: Recorded
) -> None:
    PlanFiles(tmp_path / "plans").write(PhysicalPlan(1))
    assert synced() == [".", f"plans/{1:012d}.unfinished", "plans"]
    versions, frame = RelationVersions(tmp_path / "places@1"), pl.DataFrame({"x": [1]})
    versions.prepare(frame)
    versions.commit(frame, {})
    assert synced() == [
        ".", f"places@1/{1:012d}.unfinished", "places@1", f"places@1/{1:012d}.being-written", "places@1",
    ]  # fmt: skip
    DroppedStreams(tmp_path).remember("traffic", {("p", "e"): 1})
    assert synced() == [".", ".dropped/traffic.new", ".dropped"]


def test_what_an_offset_names_is_on_disk_before_there_is_one(tmp_path: Path, synced: Recorded) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    table.append([rows(1)], at(1), {("p", "e"): 1})
    versions, frame = RelationVersions(tmp_path / "places@1"), pl.DataFrame({"x": [1]})
    versions.prepare(frame)
    versions.commit(frame, {})
    PlanFiles(tmp_path / "plans").write(PhysicalPlan(1))
    synced()
    folders = (str(tmp_path), str(tmp_path / "plans"), str(tmp_path))
    first, last = Offset(1, {"traffic": 0}), Offset(2, {"traffic": 1}, {"places@1": 1})
    sync_named(first, last, *folders)
    done = synced()
    assert done[0] == commit_of(1)
    assert sorted(done[1:]) == ["places@1", "plans", "traffic/_delta_log"]
    sync_named(last, last, *folders)
    assert synced() == []


def test_the_source_syncs_what_its_offsets_name(tmp_path: Path, synced: Recorded) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    query = PlannedQuery("q", 1, Source("traffic", (Column("speed", FieldType.REAL),)))
    PlanFiles(tmp_path / "plans").write(lower(Plan(1, (query,), {"traffic": 0})))
    table.append([rows(1)], at(1), {("p", "e"): 1})
    options = SourceOptions(str(tmp_path), str(tmp_path / "plans"), 1, 1, 10, host=Host.STATELESS)
    reader = FjordReader(options)
    synced()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert (end["epoch"], end["versions"]) == (1, {"traffic": 1})
    assert {commit_of(1), "traffic/_delta_log", "plans"} <= set(synced())
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    assert synced() == []


class Frame:
    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return OUTPUT_SCHEMA.empty_table()


def test_sparks_log_and_state_are_on_disk_before_results(
    tmp_path: Path, synced: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ResultsTable(str(tmp_path / "results"), "f")
    monkeypatch.setattr("cluster.spark.hosting.collected_outputs", lambda _: CollectedOutputs([answers(("a", 1))], {}))
    log = tmp_path / "checkpoint" / "stateful"
    store = storing(
        Host.STATEFUL, CheckpointFiles(log), results, UnnumberedFolder("", "r"), list, on_commit=lambda: None
    )
    for path in ("offsets/0", "state/0/0/1.changelog", "offsets/.1.tmp"):
        (log / path).parent.mkdir(parents=True, exist_ok=True)
        (log / path).write_text("x")
    synced()
    store(Frame(), 0)  # type: ignore[arg-type] # as far as it is asked
    done = synced()
    before = done[: next(place for place, path in enumerate(done) if path.startswith("results"))]
    files = {"offsets/0", "state/0/0/1.changelog"}
    folders = {"offsets", "state", "state/0", "state/0/0"}
    assert {f"checkpoint/stateful/{path}" for path in files | folders} <= set(before)
    assert {".", "checkpoint", "checkpoint/stateful"} <= set(before)
    assert before.index("checkpoint/stateful/offsets/0") < before.index("checkpoint/stateful/offsets")
    assert "checkpoint/stateful/offsets/.1.tmp" not in before
    (log / "offsets/1").write_text("x")
    store(Frame(), 1)  # type: ignore[arg-type] # as far as it is asked
    assert synced()[:2] == ["checkpoint/stateful/offsets/1", "checkpoint/stateful/offsets"]


def test_the_names_of_a_proxys_folders_are_on_disk(tmp_path: Path, synced: Recorded) -> None:
    with owned_data_folder(tmp_path / "proxies" / "p"):
        assert synced() == [".", "proxies", "proxies/p/home.json.new"]
    with owned_data_folder(tmp_path / "proxies" / "p"):
        assert synced() == []


def test_databases_sync_what_they_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connecting(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **keywords))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connecting)
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    spool = open_database(tmp_path / "spool.sqlite", "spool", durable=True)
    modes = [database.execute("PRAGMA synchronous").fetchone()[0] for database in opened]
    registry.close()
    spool.close()
    assert modes == [2, 2, 2], "FULL: a commit is in the log, and the log on disk"
