"""The downstream Fjord: every query's stateful operators, one Fjord per bucket, hosted in Spark's transformWithState.

What a bucket runs is the same everywhere (:mod:`cluster.fjord.bucket_host`); here are its envelopes, and Spark's state
store holds its state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from cluster.fjord import bucket_host
from cluster.fjord.bucket_host import Kept, Store
from cluster.fjord.control import merged_control
from cluster.fjord.counters import summed
from cluster.fjord.relation_tables import RelationTables
from cluster.plan.pipelines import Host
from cluster.plan.relations_read import MEMORY_BYTES
from cluster.spark.envelopes import (
    CONTROL,
    COUNTERS,
    PackedOutput,
    pack_output,
    unpack_control,
    unpack_counters,
    unpack_rows,
)
from cluster.spark.worker_memory import fragments_at


@dataclass(frozen=True, slots=True)
class Envelope:
    """What arrived: the edge, which part of the micro-batch it came from, and the rows (or control)."""

    edge: str
    origin: int
    payload: bytes


_kept: Kept = OrderedDict()
"""Fjords this worker has built, by run, plans folder, epoch and bucket."""


class BucketHost:
    """Runs the downstream Fjord of one bucket, micro-batch by micro-batch.

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
    """

    def __init__(
        self,
        plans_folder: str,
        buckets: int,
        run: str,
        relations_folder: str = "",
        relation_memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        tables = partial(
            RelationTables, relations_folder, {}, buckets=buckets, memory_bytes=relation_memory_bytes
        )  # fmt: skip
        self._host = bucket_host.BucketHost(
            lambda epoch: fragments_at(plans_folder, epoch, Host.STATEFUL),
            buckets,
            tables,
            _kept,
            key=(run, plans_folder),
        )

    def process(self, bucket: int, arrived: Iterable[Envelope], store: Store) -> PackedOutput | None:
        """Feed one micro-batch's envelopes to the bucket's Fjord, save what changed and return the answers."""
        envelopes = sorted(arrived, key=lambda envelope: (envelope.edge, envelope.origin))
        control = merged_control(unpack_control(item.payload) for item in envelopes if item.edge == CONTROL)
        upstream = summed(unpack_counters(item.payload) for item in envelopes if item.edge == COUNTERS)
        rows: dict[str, list[pl.DataFrame]] = {}
        for envelope in envelopes:
            if envelope.edge not in (CONTROL, COUNTERS):
                rows.setdefault(envelope.edge, []).append(unpack_rows(envelope.payload))
        return pack_output(self._host.process(bucket, control, rows, store, upstream))

    @staticmethod
    def kept() -> tuple[Hashable, ...]:
        """Return what this process has built and keeps."""
        return tuple(sorted(_kept))


def envelopes_of(rows: Iterable[Any]) -> list[Envelope]:
    """Return Spark's rows as envelopes."""
    return [Envelope(row.edge, row.origin, bytes(row.payload)) for row in rows]
