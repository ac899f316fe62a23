"""
tasks      [ a a b ]      [ a c ]          files without numbers
table      a: 7, b: 2                      the last numbers
commit     a 8 9, b 3  |  a 10, c 1        the driver numbers them, in the order of the tasks
"""  # fmt: skip

from __future__ import annotations

import resource
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from cluster.storage.budgets import Budget
from cluster.storage.committed_results import RESULT_SCHEMA, CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.delta_tables import created, live_files
from cluster.storage.results_table import Part, ResultsTable
from cluster.storage.unnumbered_answers import (
    NumberedFiles,
    Numbering,
    Span,
    UnnumberedFile,
    UnnumberedFolder,
    follow_each_other,
    read_unnumbered,
    write_numbered,
    write_unnumbered,
)

WRITER = "stateless"


def answers(*named: tuple[str, int], text: str = "{}") -> pl.DataFrame:
    columns = {
        "query": [query for query, _ in named],
        "start_us": [start for _, start in named],
        "end_us": [start + 1 for _, start in named],
        "kind": ["row"] * len(named),
        "row": [text] * len(named),
    }
    return pl.DataFrame(columns)


class Tasks:
    """Tasks that write files for a table, one after the other."""

    def __init__(self, table: ResultsTable) -> None:
        self.folder = UnnumberedFolder(table.root, "run")
        self.folder.make()
        self.table = table
        self.written: list[Numbering] = []

    def file(self, *named: tuple[str, int]) -> UnnumberedFile:
        return write_unnumbered(self.folder.path, answers(*named))

    def write(self, files: Sequence[Numbering]) -> list[AddAction]:
        self.written += files
        return [write_numbered(each) for each in files]

    def append(self, micro_batch: int, *parts: Part) -> int:
        return self.table.append_parts(parts, micro_batch, WRITER, self.write)


def opened(folder: Path, **settings: object) -> ResultsTable:
    return ResultsTable(str(folder / "results"), "f", **settings)  # type: ignore[arg-type]


def numbered(table: ResultsTable) -> list[tuple[str, int, int]]:
    """Return query, number and start as another program sees them: DuckDB, over what Delta says of the table."""
    seen = DeltaTable(table.root).to_pyarrow_dataset()
    with duckdb.connect() as database:
        database.register("seen", seen)
        return database.sql("SELECT query, sequence, start_us FROM seen ORDER BY query, sequence").fetchall()


def committed(table: ResultsTable, version: int) -> list[tuple[str, int]]:
    """Return query and number as the publisher reads them."""
    found = CommittedResults(table.root).commit(version, table.version)
    assert found.schema == RESULT_SCHEMA
    return list(zip(found["query"].to_pylist(), found["sequence"].to_pylist(), strict=True))


def test_files_and_rows_are_numbered_in_their_order_and_in_one_commit(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.append(answers(("b", 1), ("a", 1), ("b", 2)), 0, WRITER)
    tasks = Tasks(table)
    parts = tasks.file(("a", 5), ("a", 6), ("b", 5)), answers(("a", 6), ("c", 6)), tasks.file(("a", 7), ("c", 9))
    assert tasks.append(1, *parts) == 2
    in_order = [("a", 2), ("a", 3), ("b", 3), ("a", 4), ("c", 1), ("a", 5), ("c", 2)]
    assert committed(table, 2) == in_order
    table.append(answers(("a", 10), ("b", 10)), 2, WRITER)
    assert committed(table, 3) == [("a", 6), ("b", 4)]
    assert opened(tmp_path).last_sequence("a") == table.last_sequence("a") == 6
    assert opened(tmp_path).last_sequence("c") == table.last_sequence("c") == 2
    expected = [
        ("a", 1, 1), ("a", 2, 5), ("a", 3, 6), ("a", 4, 6), ("a", 5, 7), ("a", 6, 10),
        ("b", 1, 1), ("b", 2, 2), ("b", 3, 5), ("b", 4, 10), ("c", 1, 6), ("c", 2, 9),
    ]  # fmt: skip
    assert numbered(table) == expected
    assert table.rows_after("a", 2, 3)["sequence"].to_list() == [3, 4, 5]


def test_a_micro_batch_that_is_stored_is_not_written_again(tmp_path: Path) -> None:
    tasks = Tasks(opened(tmp_path))
    version = tasks.append(4, tasks.file(("a", 1)))
    assert tasks.append(4, tasks.file(("a", 1))) == version
    assert len(tasks.written) == 1
    again = Tasks(opened(tmp_path))
    assert again.append(4, again.file(("a", 1))) == version
    assert not again.written
    assert numbered(again.table) == [("a", 1, 1)]


def test_a_task_that_is_run_twice_writes_one_file(tmp_path: Path) -> None:
    table = opened(tmp_path)
    tasks = Tasks(table)
    file = tasks.file(("a", 1), ("a", 2))

    def twice(files: Sequence[Numbering]) -> list[AddAction]:
        first, second = tasks.write(files), tasks.write(files)
        assert [each.path for each in first] == [each.path for each in second]
        return second

    table.append_parts([file], 0, WRITER, twice)
    assert numbered(table) == [("a", 1, 1), ("a", 2, 2)]
    assert len(list(Path(table.root).glob("*.parquet"))) == 1


def test_what_a_crash_leaves_between_files_and_commit_is_removed_and_answered_once(tmp_path: Path) -> None:
    table = opened(tmp_path)
    tasks = Tasks(table)
    tasks.append(0, tasks.file(("a", 1)))
    unnumbered = tasks.file(("a", 2))

    def killed(files: Sequence[Numbering]) -> list[AddAction]:
        tasks.write(files)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.append_parts([unnumbered], 1, WRITER, killed)
    assert len(list(Path(table.root).glob("*.parquet"))) == 2
    assert table.append(answers(("a", 2)), 0, "stateful") == 2, "another writer goes on, with the next number"

    table = opened(tmp_path)
    tasks = Tasks(table)
    assert not Path(unnumbered.path).exists(), "with the folder of a run go its files"
    table.remove_uncommitted("stateful")
    assert len(list(Path(table.root).glob("*.parquet"))) == 3, "only a writer's own files"
    table.remove_uncommitted(WRITER)
    assert len(list(Path(table.root).glob("*.parquet"))) == 2, "only what does not count"
    tasks.append(1, tasks.file(("a", 2)))
    assert numbered(table) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 2)]


def test_a_micro_batch_that_is_run_again_writes_the_same_files(tmp_path: Path) -> None:
    tasks = Tasks(opened(tmp_path))

    def full(files: Sequence[Numbering]) -> list[AddAction]:
        tasks.write(files)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        tasks.table.append_parts([tasks.file(("a", 1))], 0, WRITER, full)
    tasks.append(0, tasks.file(("a", 1)))
    assert numbered(tasks.table) == [("a", 1, 1)]
    assert len(list(Path(tasks.table.root).glob("*.parquet"))) == 1


def test_files_that_another_thread_is_about_to_commit_stay(tmp_path: Path) -> None:
    table = opened(tmp_path)
    tasks, written, go_on = Tasks(table), Event(), Event()

    def slowly(files: Sequence[Numbering]) -> list[AddAction]:
        entries = tasks.write(files)
        written.set()
        go_on.wait(10)
        return entries

    with ThreadPoolExecutor() as threads:
        append = threads.submit(table.append_parts, [tasks.file(("a", 1))], 0, WRITER, slowly)
        assert written.wait(10)
        removal = threads.submit(table.remove_uncommitted, WRITER)
        with pytest.raises(TimeoutError):
            removal.result(0.2)
        go_on.set()
        append.result(10)
        removal.result(10)
    assert numbered(table) == [("a", 1, 1)]


def test_a_file_has_its_name_only_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    tasks = Tasks(table)
    file = tasks.file(("a", 1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cluster.storage.appending.Statistics.as_json", full)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    with pytest.raises(OSError, match="No space"):
        tasks.append(0, file)
    assert not list(Path(table.root).glob("*.parquet"))
    monkeypatch.undo()
    tasks.append(0, file)
    assert numbered(table) == [("a", 1, 1)]


def test_files_say_which_rows_they_hold(tmp_path: Path) -> None:
    tasks = Tasks(opened(tmp_path))
    rows = answers(("b", 3), ("b", 3), ("a", 1), ("a", 9), text='{"x":"ü"}')
    file = write_unnumbered(tasks.folder.path, rows)
    assert list(file.spans.items()) == [("b", Span(2, 3, 3)), ("a", Span(2, 1, 9))]
    assert read_unnumbered(file).equals(rows)
    tasks.append(0, file)
    (entry,) = live_files(DeltaTable(tasks.table.root)).to_pylist()
    known = {name: entry[name] for name in ("num_records", "min.query", "max.query", "min.sequence", "max.sequence")}
    assert known == {"num_records": 4, "min.query": "a", "max.query": "b", "min.sequence": 1, "max.sequence": 2}
    tasks.folder.clear()
    assert not Path(file.path).exists()


def test_a_table_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    root, schema = str(tmp_path / "results"), pa.schema([field for field in RESULT_SCHEMA if field.name != "closes"])
    created(root, schema, "results")
    tasks = Tasks(opened(tmp_path))
    tasks.append(0, tasks.file(("a", 1)), answers(("a", 2)))
    assert committed(tasks.table, tasks.table.version) == [("a", 1), ("a", 2)]
    assert tasks.table.rows_after("a", 0, 9).select("sequence", "closes").rows() == [(1, None), (2, None)]
    assert [field.name for field in DeltaTable(root).schema().fields] == RESULT_SCHEMA.names


def test_writers_of_one_run_have_folders_of_their_own(tmp_path: Path) -> None:
    root = opened(tmp_path).root
    before = UnnumberedFolder(root, "run 10", "stateful")
    before.make()
    files = {}
    for writer in ("stateless", "stateful"):
        folder = UnnumberedFolder(root, "run 1", writer)
        folder.make()
        files[writer] = folder, write_unnumbered(folder.path, answers(("a", 1)))
    assert not Path(before.path).exists(), "of an earlier run"
    files["stateful"][0].clear()
    assert [Path(file.path).exists() for _, file in files.values()] == [True, False]


def test_a_task_without_the_folder_of_its_run_cannot_write(tmp_path: Path) -> None:
    folder = UnnumberedFolder(opened(tmp_path).root, "run")
    with pytest.raises(OSError, match="No such file"):
        write_unnumbered(folder.path, answers(("a", 1)))
    folder.clear()
    remote = UnnumberedFolder("s3://bucket/results", "run")
    remote.make()
    remote.clear()
    assert not remote.path, "tasks are to return everything"
    NumberedFiles("s3://bucket/results", "f").remove_uncommitted(None)


def test_a_task_leaves_nothing_of_a_file_that_a_full_disk_has_no_room_for(tmp_path: Path) -> None:
    tasks = Tasks(ResultsTable(str(tmp_path), "fjord"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="writing"):
            tasks.file(*(("a", start) for start in range(10_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(Path(tasks.folder.path).iterdir())


def test_queries_follow_each_other_one_by_one() -> None:
    assert follow_each_other([])
    first, second = {"a": Span(2, 1, 5), "b": Span(1, 9, 9)}, {"a": Span(1, 5, 5), "c": Span(1, 0, 0)}
    assert follow_each_other([first, second])
    assert not follow_each_other([second, first])
    assert not follow_each_other([first, second, {"b": Span(1, 8, 9)}])


def test_compaction_merges_them_as_any_file(tmp_path: Path) -> None:
    table = opened(tmp_path, compaction=Compaction(4))
    tasks = Tasks(table)
    for number in range(13):
        version = tasks.append(number, tasks.file(("a", number), ("a", number)), answers(("a", number)))
        assert committed(table, version) == [("a", 3 * number + place) for place in (1, 2, 3)]
    assert [number for _, number, _ in numbered(table)] == list(range(1, 40))
    assert max(live_files(DeltaTable(table.root)).column("num_records").to_pylist()) > 3, "some are merged"


def test_retention_removes_them_as_any_file(tmp_path: Path) -> None:
    published, budget = [0], Budget(bytes=20_000)
    compaction = Compaction(4, budget=lambda: budget)
    table = opened(tmp_path, compaction=compaction, budget=budget, published=lambda: published[0])
    tasks = Tasks(table)
    for number in range(21):
        version = tasks.append(number, tasks.file(("a", number), ("a", number)))
        published[0] = version - 3
    left = numbered(table)
    assert [number for _, number, _ in left] == list(range(43 - len(left), 43))
    assert table.retention.numbers.dropped_rows == 42 - len(left) > 0
    assert opened(tmp_path).last_sequence("a") == 42


def test_files_are_as_young_as_their_commit_whatever_the_clock_of_their_task(tmp_path: Path) -> None:
    tasks = Tasks(opened(tmp_path))

    def long_ago(files: Sequence[Numbering]) -> list[AddAction]:
        entries = tasks.write(files)
        for entry in entries:
            entry.modification_time = 0
        return entries

    tasks.table.append_parts([tasks.file(("a", 1))], 0, WRITER, long_ago)
    (written,) = live_files(DeltaTable(tasks.table.root)).column("modification_time").to_pylist()
    assert written > 1e12, "milliseconds since 1970"
