"""The buckets in Spark's transformWithState: the key is the bucket, the state a map of values by operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cluster.spark.downstream import BucketHost, envelopes_of
from cluster.spark.source import SourceOptions
from cluster.spark.worker_memory import WORKER_MEMORY
from cluster.spark.worker_watch import is_run_again

# Written out: Spark would parse a description in text four times per task.
_NAME = StructType([StructField("name", StringType())])
_VALUE = StructType([StructField("value", BinaryType())])


class DownstreamProcessor(StatefulProcessor):
    """Spark's side of a :class:`BucketHost`."""

    def __init__(self, options: SourceOptions, run: str) -> None:
        self._first_key = options.first_key
        self._functions = options.functions
        self._answers_folder = options.answers_folder
        self._limits, self._gone = options.limits, options.gone
        self._settings = (
            options.plans_folder, options.buckets, run, options.relations_folder, options.relation_memory_bytes,
        )  # fmt: skip

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._host = BucketHost(
            *self._settings, functions=self._functions, answers_folder=self._answers_folder, limits=self._limits,
            gone=self._gone,
        )  # fmt: skip
        self._map = handle.getMapState("operators", _NAME, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's interface
        """Run one micro-batch of one bucket."""
        bucket = key[0] - self._first_key
        output = self._host.process(bucket, envelopes_of(rows), _MapStore(self._map), again=is_run_again())
        if output is not None:
            yield Row(bucket=bucket, answers=output.answers, counters=output.counters, file=output.file)

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
