"""A bucket in Spark's transformWithState: the stateful operators of all queries, fed with envelopes.

A bucket runs the same everywhere (:mod:`cluster.fjord.bucket_host`); here its rows come in envelopes, and its state is
in Spark's state store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import polars as pl
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cluster.fjord import bucket_host
from cluster.fjord.bucket_host import Kept
from cluster.fjord.counters import summed
from cluster.fjord.exchange import merged_control
from cluster.fjord.overruns import WorkLimits
from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.saved_state import Store
from cluster.functions.allowed import FunctionRules
from cluster.functions.calling import CALLS
from cluster.physical.nodes import ANSWERS_OF_A_BUCKET, Host
from cluster.plan.names_read import MEMORY_BYTES
from cluster.spark.envelopes import (
    CONTROL,
    COUNTERS,
    PackedOutput,
    pack_output,
    unpack_control,
    unpack_counters,
    unpack_rows,
    written_by_task,
)
from cluster.spark.source import SourceOptions
from cluster.spark.worker_memory import WORKER_MEMORY, end_unused_functions, fragments_at
from cluster.spark.worker_watch import is_run_again, note_too_large, watched

NO_LIMITS: Final = WorkLimits()


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a bucket receives: the exchange, the part of the micro-batch that sent it, and rows or a message."""

    exchange: str
    origin: int
    payload: bytes


_kept: Kept = OrderedDict()
"""Buckets whose operators this worker has made, by run, plans folder and bucket."""


class BucketHost:
    """Runs the operators of buckets, micro-batch by micro-batch.

    Parameters
    ----------
    plans_folder
        Where plans are.
    buckets
        How many buckets there are.
    run
        Identity of the Spark query that hosts it.
    relations_folder, relation_memory_bytes
        Where versions of relations are, and what a table of them may take of the memory.
    functions
        What functions of users may be and take; None allows none.
    answers_folder, answers_returned
        Where the answers of a bucket are written if there are more than it returns; empty if it returns all.
    limits
        What a query may take of a worker.
    gone
        Identities of queries that are not computed any more, though plans have them.
    """

    def __init__(
        self,
        plans_folder: str,
        buckets: int,
        run: str,
        relations_folder: str = "",
        relation_memory_bytes: int = MEMORY_BYTES,
        *,
        functions: FunctionRules | None = None,
        answers_folder: str = "",
        answers_returned: int = ANSWERS_OF_A_BUCKET,
        limits: WorkLimits = NO_LIMITS,
        gone: tuple[str, ...] = (),
    ) -> None:
        self._limits = limits
        self._answers_folder, self._answers_returned = answers_folder, answers_returned
        self._plans_folder = plans_folder
        CALLS.use(functions or FunctionRules())
        tables = partial(
            RelationTables, relations_folder, {}, buckets=buckets, memory_bytes=relation_memory_bytes
        )  # fmt: skip
        self._host = bucket_host.BucketHost(
            lambda epoch: fragments_at(plans_folder, epoch, Host.STATEFUL, gone),
            buckets,
            tables,
            _kept,
            key=(run, plans_folder),
            most_value_bytes=limits.value_bytes,
        )

    def process(
        self, bucket: int, arrived: Iterable[Envelope], store: Store, *, again: bool = False
    ) -> PackedOutput | None:
        """Feed one micro-batch's envelopes to a bucket's operators, save what changed and return the output.

        `again` says that the micro-batch has been begun before.
        """
        envelopes = sorted(arrived, key=lambda envelope: (envelope.exchange, envelope.origin))
        control = merged_control(unpack_control(item.payload) for item in envelopes if item.exchange == CONTROL)
        upstream = summed(unpack_counters(item.payload) for item in envelopes if item.exchange == COUNTERS)
        rows: dict[str, list[pl.DataFrame]] = {}
        for envelope in envelopes:
            if envelope.exchange not in (CONTROL, COUNTERS):
                rows.setdefault(envelope.exchange, []).append(unpack_rows(envelope.payload))
        end_unused_functions(self._plans_folder, control.epoch)
        with watched(self._limits, control.micro_batch, again=again) as stopped:
            output = self._host.process(bucket, control, rows, store, upstream, stopped=stopped)
            note_too_large(self._limits, self._host.too_large)
        return pack_output(output, written_by_task(output, self._answers_folder, self._answers_returned))

    @staticmethod
    def kept() -> tuple[Hashable, ...]:
        """Return what this process has made and keeps."""
        return tuple(sorted((key, hosted.made) for key, hosted in _kept.items()))


def envelopes_of(rows: Iterable[Any]) -> list[Envelope]:
    """Return Spark's rows as envelopes."""
    return [Envelope(row.exchange, row.origin, bytes(row.payload)) for row in rows]


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
