"""Runs plans as Spark does, from the source's reader to the buckets: offsets, partitions, epochs, crashes. No JVM."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from cluster.fjord.overruns import WorkLimits
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import MemoryStore
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import history_starts, with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.spark import bucket_processor
from cluster.spark.bucket_processor import BucketHost, Envelope
from cluster.spark.envelopes import OUTPUT_SCHEMA, CollectedOutputs, collected_outputs
from cluster.spark.source import FjordReader, SourceOptions
from cluster.spark.worker_memory import WORKER_MEMORY
from cluster.storage.compaction import Compaction
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema, watermark_at
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.spark.hosted_run import PLACES, relation_rows

FIELDS = (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.INTEGER))
SCHEMAS = [StreamSchema("traffic", FIELDS), StreamSchema("other", FIELDS)]
BUCKETS = 3
WORKER_MEMORY.keep = lambda _: None  # type: ignore[method-assign]  # this process goes on with other tests
Row = tuple[int, str, int]
"""Stamp, sensor, speed; a speed that divides by 3 does not belong to the default rate."""


class ReaderRun:
    """An engine over two streams, whose queries come and go."""

    def __init__(
        self, folder: Path, *, history_rows: int = 1_000, max_rows: int = 1_000, parts: int = 2, overruns: str = ""
    ) -> None:
        self._options = SourceOptions(
            str(folder / "streams"),
            str(folder / "plans"),
            BUCKETS,
            parts,
            max_rows,
            str(folder / "relations"),
            history_rows=history_rows,
            answers_folder=str(folder / "answers"),
            awaited_seconds=0.0,
            limits=WorkLimits(overruns),
        )
        (folder / "answers").mkdir(parents=True)
        self._catalog = Catalog.of([*SCHEMAS, PLACES])
        self._never = Compaction(1_000_000)
        self.tables = {
            schema.name: StreamTable(str(folder / "streams" / schema.name), schema, compaction=self._never)
            for schema in SCHEMAS
        }
        self.plans = PlanFiles(folder / "plans")
        self.plan = Plan(1)
        self.plans.write(lower(self.plan))
        self._readers = {host: self._reader(host) for host in Host}
        self.offsets = {host: reader.initialOffset() for host, reader in self._readers.items()}
        self.stores = [MemoryStore() for _ in range(BUCKETS)]
        self.rows: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.micro_batches = Counter[Host]()

    def add(self, name: str, sql: str) -> PlannedQuery:
        """Add a query as the query service does."""
        epoch = self.plan.epoch + 1
        stands = {stream: watermark_at(table.log, table.version) for stream, table in self.tables.items()}
        node = with_history_starts(rewrite(translate(sql, self._catalog).node).node, epoch, stands)
        query = PlannedQuery(name, epoch, node)
        self._begin((*self.plan.queries, query))
        return query

    def drop(self, name: str) -> None:
        self._begin(tuple(query for query in self.plan.queries if query.name != name))

    def _begin(self, queries: tuple[PlannedQuery, ...]) -> None:
        positions = {stream: table.version for stream, table in self.tables.items()}
        self.plan = Plan(self.plan.epoch + 1, queries, positions)
        self.plans.write(lower(self.plan))

    def append(
        self, stream: str, rows: Sequence[Row], watermark: int, device_columns: dict[str, list[Any]] | None = None
    ) -> None:
        """Store samples; `device_columns` are those of device partial aggregates, events and published tuples."""
        table = pl.DataFrame(
            {
                "fjord_start_us": [at for at, _, _ in rows],
                "fjord_mote": ["m"] * len(rows),
                "fjord_default_rate": [speed % 3 > 0 for _, _, speed in rows],
                "sensor": [sensor for _, sensor, _ in rows],
                "speed": [speed for _, _, speed in rows],
            },
            schema={
                "fjord_start_us": pl.Int64, "fjord_mote": pl.String, "fjord_default_rate": pl.Boolean,
                "sensor": pl.String, "speed": pl.Int64,
            },
        )  # fmt: skip
        schema = arrow_schema(SCHEMAS[0])
        if device_columns is not None:
            table = table.with_columns(pl.Series(name, values) for name, values in device_columns.items())
            known = arrow_schema(SCHEMAS[0], aggregates=True, published=True)
            schema = pa.schema([field for field in known if field.name in table.columns])
        self.tables[stream].append([table.to_arrow().cast(schema)], StreamPosition(watermark, {}), {})

    def change(self, places: list[tuple[str, int, str]], instants: dict[str, int]) -> None:
        """Give the relation a new version, for tuples of each stream from an instant on."""
        versions = RelationVersions(Path(self._options.relations_folder, PLACES.identity))
        table = relation_rows(PLACES, places)
        versions.prepare(table)
        versions.commit(table, instants)

    def compact(self, stream: str) -> None:
        self.tables[stream]._table.optimize.compact()

    def step(self, *, crash: bool = False) -> bool:
        """Run one micro-batch of each host that has anything to do; with a crash, twice: the first one is lost."""
        found = [self._step(host, crash=crash) for host in Host]
        return any(found)

    def _reader(self, host: Host) -> FjordReader:
        return FjordReader(msgspec.structs.replace(self._options, host=host))

    def _step(self, host: Host, *, crash: bool) -> bool:
        reader, begin = self._readers[host], self.offsets[host]
        end = _logged(reader.latestOffset(begin, ReadMaxRows(self._options.max_rows)))
        if end == begin:
            return False
        if crash:
            before, lost = copy.deepcopy(self.stores), self._run(host, end)
            self.stores, self._readers[host] = before, self._reader(host)
            bucket_processor._kept.clear()
            answers = self._run(host, end)
            assert _bag(answers) == _bag(lost)
        else:
            answers = self._run(host, end)
        self.offsets[host] = end
        self._readers[host].commit(end)
        self.micro_batches[host] += 1
        for query, *row in answers:
            self.rows.setdefault(query, []).append(tuple(row))  # type: ignore[arg-type]
        return True

    def drain(self) -> None:
        """Run until there is nothing left to do."""
        while self.step():
            assert self.micro_batches.total() < 10_000, "the backfill never ends"

    def _run(self, host: Host, end: dict[str, Any]) -> list[tuple[str, int, int, dict[str, Any]]]:
        reader, envelopes = self._readers[host], dict[int, list[Envelope]]()
        batches = [batch for task in reader.partitions(self.offsets[host], end) for batch in reader.read(task)]
        if host is Host.STATELESS:
            return _rows(collected_outputs(pa.Table.from_batches(batches, OUTPUT_SCHEMA)))
        for batch in batches:
            for row in batch.to_pylist():
                envelopes.setdefault(row["bucket"], []).append(Envelope(row["exchange"], row["origin"], row["payload"]))
        outputs = []
        for bucket in range(BUCKETS):
            host = BucketHost(
                self._options.plans_folder,
                BUCKETS,
                "run",
                self._options.relations_folder,
                answers_folder=self._options.answers_folder,
                answers_returned=2,
            )
            output = host.process(bucket, envelopes[bucket], self.stores[bucket])
            if output is not None:
                outputs.append({"bucket": bucket, **asdict(output)})
        return _rows(collected_outputs(pa.Table.from_pylist(outputs, OUTPUT_SCHEMA)))


def begins(query: PlannedQuery, stream: str) -> int:
    """Return the instant from which on a query reads a stream."""
    return history_starts(query.node)[stream]


def coverage(rows: Iterable[tuple[int, int, dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """Return, by row, how many more copies of it are valid from each instant on: equal for equal snapshots."""
    found: Counter[tuple[Any, ...]] = Counter()
    for start, end, row in rows:
        key = tuple(sorted(row.items()))
        found[key, start] += 1
        found[key, end] -= 1
    return Counter({change: count for change, count in found.items() if count})


def _logged(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as it comes out of Spark's log."""
    return dict(json.loads(json.dumps(offset)))


def _rows(outputs: CollectedOutputs) -> list[tuple[str, int, int, dict[str, Any]]]:
    rows = outputs.rows()
    assert set(rows["kind"]) <= {"row"}, rows
    return [(query, start, stop, msgspec.json.decode(row)) for query, start, stop, _, row in rows.iter_rows()]


def _bag(answers: Iterable[tuple[str, int, int, dict[str, Any]]]) -> Counter[str]:
    return Counter(repr(answer) for answer in answers)
