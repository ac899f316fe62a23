"""The Delta log in Python is deltalake's, in all that its users see: the same operations on both, compared."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.storage import archived_log, delta_tables
from cluster.storage.appending import NO_HOOKS
from cluster.storage.budgets import Budget, Passed
from cluster.storage.committed_results import CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.delta_tables import live_files
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_retention import StoredFiles, StreamRetention
from cluster.storage.stream_tables import ProxyPosition, StreamPosition, StreamTable, arrow_schema
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.simulation.delta_log import DeltaLog

SPEEDS = StreamSchema("speeds", (Field("speed", FieldType.INTEGER), Field("road", FieldType.TEXT)))
LANES = [("p", "e"), ("q", "e"), ("p", "f")]
Driver = type[DeltaTable] | type[DeltaLog]


@contextmanager
def driven_by(driver: Driver) -> Iterator[None]:
    """Open and make tables with one of the two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_tables, "DeltaTable", driver)
        patch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 4)
        patch.setattr(archived_log, "COMMITS_KEPT", 3)
        yield


class Stream:
    """A stream's table, and what its users see of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.versions: list[int] = []
        self._open()

    def _open(self) -> None:
        self.table = StreamTable(
            str(self.root),
            SPEEDS,
            compaction=Compaction(5),
            retention=StreamRetention(lambda: Budget(age_us=40), lambda: Passed(1_000)),
        )

    def append(self, stamps: list[int], lane: tuple[str, str], sequence: int, *, aggregates: bool) -> object:
        """Append rows; the watermark is what came before them."""
        schema = arrow_schema(SPEEDS, aggregates=aggregates)
        columns: dict[str, Any] = {
            name: pa.nulls(len(stamps), kind) for name, kind in zip(schema.names, schema.types, strict=True)
        }
        columns["fjord_start_us"] = stamps
        columns["fjord_mote"] = ["m"] * len(stamps)
        columns["fjord_default_rate"] = [True] * len(stamps)
        columns["speed"] = [None if stamp % 3 == 0 else stamp for stamp in stamps]
        rows = [pa.table(columns, schema=schema)] if stamps else []
        watermark_us = len(self.versions) * 5
        position = StreamPosition(watermark_us, {lane[0]: ProxyPosition(watermark_us, sampling=True)})
        version = self.table.append(rows, position, {lane: sequence})
        self.versions.append(version)
        return version

    def seen(self) -> object:
        """Return what users see."""
        table = self.table
        return (
            table.version,
            table.position(),
            table.rows_stored(table.version),
            table.tuples_per_second(),
            table.latest_stamp(),
            {lane: table.last_sequence(*lane) for lane in LANES},
            table.holds(dict.fromkeys(LANES, 3)),
            table.retention.dropped,
            [self._added(version) for version in self.versions[-4:]],
            sorted(live_files(table._table).column("num_records").to_pylist()),
            sorted(_cells(pl.from_arrow(table._table.to_pyarrow_table()))),
        )

    def _added(self, version: int) -> object:
        commit = self.table.log.read(version)
        rows = [pq.read_table(self.root / file.path).to_pylist() for file in commit.files]
        return commit.metadata, rows, [(each.rows, each.first_us, each.last_us) for each in commit.files]

    def stored(self) -> object:
        """Return the stamps of the files of some versions, also of those that only the archive has."""
        newest = self.table.version
        found = (StoredFiles.at(str(self.root), version).files for version in (newest, newest // 2))
        # Files of equal stamps have no order among them.
        return [sorted((file.first_us, file.last_us, file.rows) for file in files) for files in found]


def _cells(frame: pl.DataFrame | pl.Series) -> list[str]:
    assert isinstance(frame, pl.DataFrame)
    return [repr(sorted(row.items())) for row in frame.to_dicts()]


APPENDS = st.tuples(
    st.just("append"),
    st.lists(st.integers(0, 300), max_size=4),
    st.sampled_from(LANES),
    st.integers(1, 5),
    st.sampled_from([False, False, True]),
)
OPERATIONS = st.lists(APPENDS | st.tuples(st.sampled_from(["open", "sequences", "stored"])), min_size=4, max_size=16)


def _done(stream: Stream, operation: tuple[Any, ...]) -> object:
    match operation:
        case ("append", stamps, lane, sequence, aggregates):
            return stream.append(stamps, lane, sequence, aggregates=aggregates)
        case ("open",):
            stream._open()
            return None
        case ("sequences",):
            return stream.table.sequences()
        case _:
            return stream.stored()


@settings(max_examples=15, deadline=None)
@example([("append", [], ("p", "e"), 1, False)] * 3 + [("append", [0], ("p", "e"), 1, True)])
@example([("open",), ("append", [0], ("p", "e"), 1, False), ("append", [0, 0], ("p", "e"), 1, False), ("stored",)])
@given(OPERATIONS)
def test_a_stream_table_is_the_same_with_either(operations: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen = []
        for driver in (DeltaTable, DeltaLog):
            with driven_by(driver):
                stream = Stream(Path(folder, driver.__name__, "speeds"))
                seen.append([(_done(stream, each), stream.seen()) for each in operations])
        assert seen[0] == seen[1]
        # Each opens the tables of the other, and finds the same.
        for driver, other in ((DeltaTable, DeltaLog), (DeltaLog, DeltaTable)):
            root = str(Path(folder, driver.__name__, "speeds"))
            assert _opened(driver, root) == _opened(other, root)


def _opened(driver: Driver, root: str) -> object:
    table = driver(root)
    files = live_files(table)  # type: ignore[arg-type] # either
    rows = {column: files.column(column).to_pylist() for column in ("path", "size_bytes", "num_records")}
    return (
        table.version(),
        table.metadata().name,
        json.loads(table.schema().to_json()),
        sorted(zip(*rows.values(), strict=True)),
        [table.transaction_version(f"fjord/{proxy}/{epoch}") for proxy, epoch in LANES],
        sorted(_cells(pl.from_arrow(table.to_pyarrow_dataset().to_table()))),
    )


RESULTS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9), st.sampled_from(["row", "open"])), max_size=4
)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), RESULTS, st.booleans()), min_size=3, max_size=12))
def test_a_results_table_is_the_same_with_either(
    micro_batches: list[tuple[int, list[tuple[str, int, str]], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for driver in (DeltaTable, DeltaLog):
            with driven_by(driver):
                root = str(Path(folder, driver.__name__, "results"))
                found.append(list(_run(root, micro_batches)))
        assert found[0] == found[1]


def _run(root: str, micro_batches: list[tuple[int, list[tuple[str, int, str]], bool]]) -> Iterator[object]:
    budget = Budget(bytes=6_000)

    def opened() -> ResultsTable:
        return ResultsTable(root, "e", compaction=Compaction(4), budget=budget, published=lambda: None)

    table = opened()
    for number, rows, again in micro_batches:
        if again:
            table = opened()
        frame = pl.DataFrame(
            {
                "query": [query for query, _, _ in rows],
                "start_us": [start for _, start, _ in rows],
                "end_us": [start + 1 for _, start, _ in rows],
                "kind": [kind for _, _, kind in rows],
                "row": ["{}"] * len(rows),
            },
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String},
        )
        version = table.append(frame, number, "stateless")
        committed = CommittedResults(root).commit(version, version).to_pylist() if table.committed(number) else []
        rows_after = {query: table.rows_after(query, 1, 100).rows() for query in ("a", "b")}
        last = [table.last_sequence(query) for query in ("a", "b")]
        yield version, table.committed(number, "stateless"), committed, rows_after, last


def _write(table: DeltaTable | DeltaLog, application: str, number: int) -> None:
    properties = CommitProperties(app_transactions=[Transaction(application, number)])
    table.create_write_transaction(
        [], "append", table.schema(), commit_properties=properties, post_commithook_properties=NO_HOOKS
    )


@pytest.mark.parametrize("driver", [DeltaTable, DeltaLog])
def test_of_two_writers_that_know_the_same_version_one_is_behind_the_other(tmp_path: Path, driver: Driver) -> None:
    with driven_by(driver):
        Stream(tmp_path / "speeds")
        first, second = driver(str(tmp_path / "speeds")), driver(str(tmp_path / "speeds"))
        _write(first, "a", 1)
        _write(second, "b", 1)
        second.update_incremental()
        assert (second.version(), second.transaction_version("a")) == (2, 1)


@pytest.mark.parametrize("driver", [DeltaTable, DeltaLog])
def test_two_writers_with_the_same_application_conflict(tmp_path: Path, driver: Driver) -> None:
    with driven_by(driver):
        Stream(tmp_path / "speeds")
        first, second = driver(str(tmp_path / "speeds")), driver(str(tmp_path / "speeds"))
        _write(first, "a", 1)
        with pytest.raises(CommitFailedError):
            _write(second, "a", 1)


@pytest.mark.parametrize("driver", [DeltaTable, DeltaLog])
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda log: [path.unlink() for path in log.iterdir()], TableNotFoundError),
        (lambda log: (log / f"{1:020d}.json").unlink(), DeltaError),
        (lambda log: (log / f"{2:020d}.json").write_bytes(b'{"add":{"pa'), DeltaError),
    ],
    ids=["no log", "a commit is missing", "a commit is cut off"],
)
def test_a_damaged_table_cannot_be_opened(
    tmp_path: Path, driver: Driver, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    with driven_by(driver):
        stream = Stream(tmp_path / "speeds")
        for number in (1, 2):
            stream.append([number], ("p", "e"), number, aggregates=False)
        damage(tmp_path / "speeds" / "_delta_log")
        with pytest.raises(error):
            driver(str(tmp_path / "speeds"))


def test_an_error_after_a_commit_leaves_it_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(what: str, *_: object) -> None:
        if what == "committed":
            raise DeltaError("the connection broke")

    with driven_by(DeltaLog):
        table = Stream(tmp_path / "speeds").table
        monkeypatch.setattr(DeltaLog, "instant", staticmethod(failing))
        assert table.append([], StreamPosition(5, {}), {("p", "e"): 1}) == 1  # its transaction shows that it was made
        assert table.last_sequence("p", "e") == 1
