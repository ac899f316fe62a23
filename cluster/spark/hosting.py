"""The one Structured Streaming query of a Fjord: source -> shuffle by bucket -> transformWithState -> results table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import structlog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cluster.fjord.batch import END, START
from cluster.fjord.counters import Counters, added
from cluster.spark.checkpoint import forget_unbegun
from cluster.spark.downstream import COUNTERS, BucketHost, outputs_of
from cluster.spark.envelopes import RESULT_DDL, unpack_rows
from cluster.spark.source import SOURCE_NAME, FjordSource, SourceOptions
from cluster.spark.worker_memory import WORKER_MEMORY
from cluster.storage.results_table import ResultsTable

_NUMBER = "fjord_number"

# Written out: Spark would be asked four times per task what a description in text means.
_NAME = StructType([StructField("name", StringType())])
_VALUE = StructType([StructField("value", BinaryType())])

log = structlog.get_logger(__name__)


class DownstreamProcessor(StatefulProcessor):
    """Spark's side of a :class:`BucketHost`: its key is the bucket, its state a map of values by operator."""

    def __init__(self, options: SourceOptions, run: str) -> None:
        self._settings = (
            options.plans_folder, options.buckets, run, options.relations_folder, options.relation_memory_bytes,
        )  # fmt: skip

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._host = BucketHost(*self._settings)
        self._map = handle.getMapState("operators", _NAME, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's interface
        """Run one micro-batch of one bucket."""
        for output in self._host.process(key[0], outputs_of(rows), _MapStore(self._map)):
            yield Row(bucket=key[0], payload=output.payload)

    def close(self) -> None:
        """Keep what was built for the next micro-batch."""
        WORKER_MEMORY.keep(self._host.kept())


class _MapStore:
    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        found = self._state.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, name: str, value: bytes) -> None:
        self._state.updateValue((name,), (value,))

    def remove(self, name: str) -> None:
        self._state.removeKey((name,))

    def names(self) -> Iterable[str]:
        return [key[0] for key in self._state.keys()]  # noqa: SIM118 - Spark's map state is no dictionary


def start_fjord(
    spark: SparkSession,
    *,
    options: SourceOptions,
    checkpoint: Path,
    results: ResultsTable,
    on_commit: Callable[[], None],
    run: str,
    trigger_seconds: float = 0.0,
    on_counters: Callable[[Counters], None] | None = None,
) -> StreamingQuery:
    """Start the Fjord and return its Spark query.

    Parameters
    ----------
    spark
        The session.
    options
        What the source needs to know.
    checkpoint
        Spark's own log of offsets and state; belongs to one results table.
    results
        Where answers are stored, once per micro-batch.
    on_commit
        Called, in one of Spark's threads, after answers have been stored.
    run
        Identity of this run; workers keep what they have built for it.
    trigger_seconds
        Least time between two micro-batches; 0 starts the next as soon as there is something to do.
    on_counters
        Called with what operators did, as it becomes known.
    """
    if forget_unbegun(checkpoint):
        log.warning("the last run was killed before its first micro-batch was logged: begins anew")
    spark.dataSource.register(FjordSource)

    def store(answers: DataFrame, micro_batch: int) -> None:
        if results.committed(micro_batch):
            log.info("micro-batch is stored already", micro_batch=micro_batch)
            return
        rows, counters = split_counters(collect_answers(answers))
        if counters and on_counters is not None:
            on_counters(counters)
        if rows.height:
            results.append(rows, micro_batch)
            on_commit()

    envelopes = spark.readStream.format(SOURCE_NAME).option("fjord", msgspec.json.encode(options).decode()).load()
    answers = envelopes.groupBy("bucket").transformWithState(
        statefulProcessor=DownstreamProcessor(options, run),
        outputStructType=RESULT_DDL,
        outputMode="Append",
        timeMode="None",
    )
    return (
        answers.writeStream.queryName("fjord")
        .foreachBatch(store)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{trigger_seconds} seconds")
        .start()
    )


def split_counters(rows: pl.DataFrame) -> tuple[pl.DataFrame, Counters]:
    """Return the answers, and apart from them what the operators did."""
    found: Counters = {}
    for text in rows.filter(pl.col("kind") == COUNTERS)["row"]:
        found = added(found, msgspec.json.decode(text, type=Counters))
    return rows.filter(pl.col("kind") != COUNTERS), found


def collect_answers(answers: DataFrame) -> pl.DataFrame:
    """Return a micro-batch's answers as rows for the results table, each query's in start order."""
    table = answers.toArrow()
    pieces = [
        unpack_rows(payload.as_py()).select(
            "query", pl.col(START).alias("start_us"), pl.col(END).alias("end_us"), "kind", "row"
        )
        for _, payload in sorted(
            zip(*(table.column(name) for name in ("bucket", "payload")), strict=True),
            key=lambda answer: answer[0].as_py(),
        )
    ]
    if not pieces:
        return pl.DataFrame(
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
        )
    # Within a bucket rows are in order already; between buckets the sort decides, the same way at every replay.
    rows = pl.concat(pieces)
    number = rows["query"].cast(pl.Categorical).to_physical()  # far quicker to sort by than the names
    return rows.with_columns(number.alias(_NUMBER)).sort(_NUMBER, "start_us", maintain_order=True).drop(_NUMBER)
