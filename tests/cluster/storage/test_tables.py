"""Stream and results tables: positions and transactions live in the commits; any Delta reader can open them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from cluster.errors import StorageError
from cluster.storage import appending, results_table
from cluster.storage.budgets import Budget
from cluster.storage.commit_log import CommitLog
from cluster.storage.committed_results import CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.delta_tables import COMMITS_BETWEEN_CHECKPOINTS
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_retention import StreamRetention
from cluster.storage.stream_tables import (
    ProxyPosition,
    StreamPosition,
    StreamTable,
    arrow_schema,
    open_stream_tables,
    watermark_at,
)
from protocols.wire.streams import Field, FieldType, StreamSchema

ROOT = Path(__file__).parents[3]
TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL, "mph")))


def rows(*starts: int) -> pa.Table:
    count = len(starts)
    return pa.table(
        {
            "fjord_start_us": list(starts),
            "fjord_mote": ["m"] * count,
            "fjord_default_rate": [True] * count,
            "sensor": ["a"] * count,
            "speed": [1.5] * count,
        }
    ).cast(arrow_schema(TRAFFIC))


def at(watermark: int) -> StreamPosition:
    return StreamPosition(watermark, {"p": ProxyPosition(watermark, True)})


OPENED = """
import sys
from cluster.storage.stream_tables import StreamPosition, StreamTable
from protocols.wire.streams import Field, FieldType, StreamSchema
table = StreamTable(sys.argv[1], StreamSchema("s", (Field("speed", FieldType.REAL),)))
assert table.latest_stamp() is None
table.append([], StreamPosition(5), {})
print(*(name for name in ("pandas", "pyspark") if name in sys.modules))
"""


def test_making_a_table_does_not_load_pandas_for_a_second_on_the_event_loop(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENED, str(tmp_path / "s")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_position_and_sequence_survive_reopening(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    assert table.position() == StreamPosition()
    assert table.last_sequence("p", "e") == 0
    first = table.append([rows(1), rows(2)], at(5), {("p", "e"): 3, ("q", "f"): 1})
    second = table.append([], at(6), {("p", "e"): 4})
    again = open_stream_tables(tmp_path)["traffic"]
    assert again.schema == TRAFFIC
    assert again.position() == at(6)
    assert [again.last_sequence(*lane) for lane in (("p", "e"), ("q", "f"), ("p", "f"))] == [4, 1, 0]
    assert [watermark_at(again.log, version) for version in (0, first, second)] == [None, 5, 6]
    assert again.log.read(first).rows == 2
    assert again.log.read(second).files == ()


def test_any_delta_reader_can_open_it(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    table.append([rows(1, 2)], at(5), {("p", "e"): 1})
    assert pl.read_delta(str(tmp_path / "traffic"))["fjord_start_us"].to_list() == [1, 2]


def test_other_schema_is_refused_and_described(tmp_path: Path) -> None:
    StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    with pytest.raises(StorageError, match="flow integer instead of sensor text, speed real mph"):
        StreamTable(str(tmp_path / "traffic"), StreamSchema("traffic", (Field("flow", FieldType.INTEGER),)))


def test_compaction_adds_nothing_to_the_stream(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    for start in range(3):
        table.append([rows(start)], at(start), {("p", "e"): start + 1})
    delta = DeltaTable(str(tmp_path / "traffic"))
    delta.optimize.compact()
    log = CommitLog(str(tmp_path / "traffic"))
    newest = log.latest(0)
    assert newest == 4
    assert log.read(newest).files == ()
    assert watermark_at(log, newest) == 2


def test_many_small_commits_are_merged_and_nothing_changes_for_readers(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC, compaction=Compaction(commits_between=10))
    for start in range(25):
        table.append([rows(start)], at(start), {("p", "e"): start + 1})
    assert len(DeltaTable(table.root).file_uris()) < 10
    again = StreamTable(str(tmp_path / "traffic"))
    assert (again.position(), again.last_sequence("p", "e")) == (at(24), 25)
    log = CommitLog(table.root)
    added = [file.path for version in range(1, log.latest(0) + 1) for file in log.read(version).files]
    assert len(added) == 25, "a reader that is behind still reads version by version"
    stamps = [pl.read_parquet(f"{table.root}/{path}")["fjord_start_us"].to_list() for path in added]
    assert stamps == [[start] for start in range(25)]
    assert sorted(pl.read_delta(table.root)["fjord_start_us"].to_list()) == list(range(25))


def committed(table: ResultsTable, version: int) -> pl.DataFrame:
    return pl.DataFrame(CommittedResults(table.root).commit(version, table.version))


def published(*neighbours: tuple[int, int | None, int | None]) -> pa.Table:
    """Return rows: stamp, and the neighbours of published ones."""
    starts, previous, following = zip(*neighbours, strict=True)
    found = rows(*starts)
    for name, values in (("fjord_previous_us", previous), ("fjord_next_us", following)):
        found = found.append_column(name, pa.array(values, pa.int64()))
    return found.cast(arrow_schema(TRAFFIC, published=True))


def test_an_old_table_gets_the_columns_of_published_tuples_and_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "traffic"
    old = StreamTable(str(folder), TRAFFIC)
    for stamp in (1, 2):
        old.append([rows(stamp)], at(stamp), {("p", "e"): stamp})
    budget = Budget(age_us=8)
    retention = StreamRetention(lambda: budget)
    table = StreamTable(str(folder), compaction=Compaction(3, budget=lambda: budget), retention=retention)
    table.append([rows(3), published((4, 1, None), (5, None, None))], at(4), {("p", "e"): 3})
    assert table.schema == TRAFFIC
    table.append([published((6, 4, 9))], at(6), {("p", "e"): 4})
    for stamp in range(7, 12):
        table.append([rows(stamp)], at(stamp), {("p", "e"): stamp - 2})
    assert table.retention.dropped.rows
    kept = pl.read_delta(str(folder)).sort("fjord_start_us")
    expected = {4: (1, None), 6: (4, 9)}
    found = kept.select("fjord_start_us", "fjord_previous_us", "fjord_next_us").rows()
    assert found == [(stamp, *expected.get(stamp, (None, None))) for stamp in kept["fjord_start_us"]]
    assert StreamTable(str(folder), TRAFFIC).schema == TRAFFIC


def test_results_are_merged_too_and_read_alike(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f", compaction=Compaction(commits_between=5))
    versions = [table.append(answers(("a", batch), ("b", batch)), batch) for batch in range(12)]
    assert len(DeltaTable(table.root).file_uris()) < 8
    assert table.rows_after("a", 0, 100)["start_us"].to_list() == list(range(12))
    assert [committed(table, version)["start_us"].to_list() for version in versions] == [[n, n] for n in range(12)]
    assert ResultsTable(table.root, "f").committed(11)
    assert ResultsTable(table.root, "f").last_sequence("b") == 12


def test_missing_version_is_an_error_with_a_hint(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    with pytest.raises(StorageError, match="version 7") as caught:
        table.log.read(7)
    assert caught.value.hint is not None


def answers(*named: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "query": [query for query, _ in named],
            "start_us": [start for _, start in named],
            "end_us": [start + 1 for _, start in named],
            "kind": ["row"] * len(named),
            "row": ["{}"] * len(named),
        }
    )


def test_rows_are_numbered_per_query_and_a_replayed_micro_batch_is_stored_once(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    first = table.append(answers(("a", 1), ("a", 2), ("b", 1)), 0)
    assert table.append(answers(("a", 1), ("a", 2), ("b", 1)), 0) == first
    again = ResultsTable(str(tmp_path / "results"), "f")
    assert again.committed(0)
    assert not again.committed(1)
    second = again.append(answers(("a", 3)), 1)
    assert second == first + 1
    assert committed(again, first).select("query", "sequence").rows() == [("a", 1), ("a", 2), ("b", 1)]
    assert again.rows_after("a", 1, 10)["sequence"].to_list() == [2, 3]
    assert again.rows_after("a", 0, 2)["sequence"].to_list() == [1, 2]
    assert (again.last_sequence("a"), again.last_sequence("b"), again.last_sequence("c")) == (3, 1, 0)


def test_two_writers_count_micro_batches_each_and_rows_together(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")

    def write(writer: str) -> None:
        for batch in range(25):
            table.append(answers(("a", batch), (writer, batch)), batch, writer)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, ("one", "other")))
    again = ResultsTable(table.root, "f")
    for writer in ("one", "other"):
        assert again.committed(24, writer)
        assert not again.committed(25, writer)
    assert not again.committed(0, "third")
    stored = pl.read_delta(table.root).sort("sequence")
    assert stored.filter(query="a")["sequence"].to_list() == list(range(1, 51)), "no number twice, none left out"
    assert stored.filter(query="other")["start_us"].to_list() == list(range(25))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_column_with_a_long_text_has_no_bounds(place: int) -> None:
    texts: list[str | None] = [None, "a", "b"]
    found = appending.Statistics()
    found.add(pa.table({"text": texts}))
    assert '"maxValues":{"text":"b"}' in found.as_json()
    texts[place] = "x" * (appending.LONGEST_BOUND + 1)
    found = appending.Statistics()
    found.add(pa.table({"text": texts}))
    assert '"maxValues":{}' in found.as_json()


@pytest.mark.parametrize(("at_once", "files"), [(1, [10]), (2, [5, 5]), (4, [3, 3, 4])])
def test_many_answers_are_written_into_several_files_of_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, files: list[int]
) -> None:
    monkeypatch.setattr(appending, "ROWS_OF_A_FILE", 3)
    monkeypatch.setattr(results_table, "FILES_AT_ONCE", at_once)
    table = ResultsTable(str(tmp_path), "fjord")
    table.append(answers(*(("a", start) for start in range(10))), 0)
    assert [each.rows for each in CommitLog(table.root).read(1).files] == files
    assert committed(table, 1).select("sequence", "start_us").rows() == [(n + 1, n) for n in range(10)]
    assert not list(tmp_path.glob(".*")), "no file is left of writing"
    table.append(answers(("a", 10)), 1)
    assert table.rows_after("a", 8, 9)["start_us"].to_list() == [8, 9, 10]


def test_a_file_of_several_that_cannot_be_written_costs_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "ROWS_OF_A_FILE", 3)
    monkeypatch.setattr(results_table, "FILES_AT_ONCE", 2)
    table = ResultsTable(str(tmp_path), "fjord")
    write, rows = appending.write_data_file, answers(*(("a", start) for start in range(10)))

    def full(root: str, schema: pa.Schema, groups: list[pa.Table], **options: Any) -> AddAction:
        if groups[0].column("sequence")[0].as_py() > 1:
            raise OSError("no space left")
        return write(root, schema, groups, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "write_data_file", full)
        with pytest.raises(StorageError, match="no space left"):
            table.append(rows, 0)
    assert table.version == 0
    table.append(rows, 0)
    assert committed(table, 1)["sequence"].to_list() == list(range(1, 11))


def test_nothing_to_store_makes_no_version(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    assert table.append(answers(), 0) == 0


def test_tables_opened_anew_go_on_where_they_were(tmp_path: Path) -> None:
    stream = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    results = ResultsTable(str(tmp_path / "results"), "fjord")
    before = stream._table, results._table
    for number in range(COMMITS_BETWEEN_CHECKPOINTS + 5):
        stream.append([rows(number)], at(number), {("p", "e"): number})
        results.append(answers(("a", number)), number)
        assert results.committed(number)
        assert not results.committed(number + 1)
    assert stream._table is not before[0]
    assert results._table is not before[1]
    assert (stream.version, stream.last_sequence("p", "e")) == (number + 1, number)
    stored = results.rows_after("a", 0, 1_000)
    assert stored["sequence"].to_list() == list(range(1, number + 2))
    assert stored["start_us"].to_list() == list(range(number + 1))
    logs = (tmp_path / name / "_delta_log" for name in ("traffic", "results"))
    assert all((log / f"{COMMITS_BETWEEN_CHECKPOINTS - 1:020d}.checkpoint.parquet").exists() for log in logs)


def test_all_proxies_that_ever_fed_a_stream_are_remembered_over_checkpoints(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    assert table.sequences() == {}
    for number in range(1, COMMITS_BETWEEN_CHECKPOINTS + 5):
        table.append([], at(number), {("p", "e"): number, (f"q{number % 2}", "with/slash"): number})
    last = COMMITS_BETWEEN_CHECKPOINTS + 4
    expected = {("p", "e"): last, ("q0", "with/slash"): last, ("q1", "with/slash"): last - 1}
    assert table.sequences() == expected
    assert open_stream_tables(tmp_path)["traffic"].sequences() == expected
    table.append([], at(last + 1), {("p", "e"): last + 1})
    assert table.sequences() == {**expected, ("p", "e"): last + 1}
