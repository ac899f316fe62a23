"""The downstream Fjord: every query's stateful operators, one Fjord per bucket, hosted in Spark's transformWithState.

Operator state lives in Spark's state store as one value per operator and bucket, written only when it changed. A
worker keeps the Fjord it has built; a token in the store tells whether that Fjord still stands where the store does.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import polars as pl

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.compilation import add_downstream
from cluster.fjord.edges import Edge, edges_of
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.queues import PushQueue
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.spark.envelopes import CONTROL, Control, bucket_of, pack_rows, unpack_control, unpack_rows

TOKEN = ""
"""The state entry under which the token is kept; operators' entries have names."""

KEPT_FJORDS = 64


class Store(Protocol):
    """One bucket's state: values by name."""

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        ...

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        ...

    def remove(self, name: str) -> None:
        """Remove a value."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """What arrived: the edge, which part of the micro-batch it came from, and the rows (or control)."""

    edge: str
    origin: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class QueryOutput:
    """What one bucket answers to one query: rows with columns START, END, kind, row (JSON)."""

    query: str
    payload: bytes


@dataclass(slots=True)
class _Hosted:
    """The Fjord of one bucket and plan, and where it stands."""

    fjord: Fjord
    arrivals: dict[str, PushQueue]
    edges: dict[str, Edge]
    outlets: list[tuple[PlannedQuery, PushQueue]]
    token: bytes | None = None
    stateful: dict[str, Placed] = field(default_factory=dict)


_kept: OrderedDict[tuple[str, str, int, int], _Hosted] = OrderedDict()
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
    """

    def __init__(self, plans_folder: str, buckets: int, run: str) -> None:
        self._plans_folder = plans_folder
        self._buckets = buckets
        self._run = run

    def process(self, bucket: int, arrived: Iterable[Envelope], store: Store) -> Iterator[QueryOutput]:
        """Feed one micro-batch's envelopes to the bucket's Fjord, save what changed and return the answers."""
        envelopes = sorted(arrived, key=lambda envelope: (envelope.edge, envelope.origin))
        control = _merged_control([unpack_control(item.payload) for item in envelopes if item.edge == CONTROL])
        plan = PlanFiles(Path(self._plans_folder)).read(control.epoch)
        hosted = self._host(plan, bucket, store)
        before = {name: _moved(placed) for name, placed in hosted.stateful.items()}
        rows_by_edge: dict[str, list[pl.DataFrame]] = {}
        for envelope in envelopes:
            if envelope.edge != CONTROL and envelope.edge in hosted.arrivals:
                rows_by_edge.setdefault(envelope.edge, []).append(unpack_rows(envelope.payload))
        for name, queue in hosted.arrivals.items():
            pieces = rows_by_edge.get(name)
            watermark_us = control.watermarks_us.get(name)
            if watermark_us is None and not pieces:
                continue
            rows = pl.concat(pieces).sort(START, maintain_order=True) if pieces else hosted.edges[name].empty_rows()
            queue.put(Batch(rows, watermark_us if watermark_us is not None else _lowest(rows)))
        hosted.fjord.run()
        yield from self._answers(hosted, control, bucket)
        self._save(hosted, plan, control, before, store)

    def _host(self, plan: Plan, bucket: int, store: Store) -> _Hosted:
        key = (self._run, self._plans_folder, plan.epoch, bucket)
        token = store.get(TOKEN)
        hosted = _kept.pop(key, None)
        if hosted is None or hosted.token != token or token is None:
            hosted = _build(plan, bucket, self._buckets)
            for name, placed in hosted.stateful.items():
                saved = store.get(name)
                if saved is not None:
                    placed.operator.restore(unpack_state(saved))
        _kept[key] = hosted
        while len(_kept) > KEPT_FJORDS:
            _kept.popitem(last=False)
        return hosted

    def _answers(self, hosted: _Hosted, control: Control, bucket: int) -> Iterator[QueryOutput]:
        failures = {error.owner: str(error) for error in hosted.fjord.failures.values()}
        for query, outlet in hosted.outlets:
            reason = failures.get(query.identity) or control.failures.get(query.identity)
            pieces = []
            while (batch := outlet.get()) is not None:
                pieces.append(_as_json(batch.rows))
            if reason is not None and bucket == bucket_of(query.identity, self._buckets):
                pieces.append(_as_error(reason, max(control.watermarks_us.values(), default=0)))
            rows = pl.concat(pieces) if pieces else None
            if rows is not None and rows.height:
                yield QueryOutput(query.name, pack_rows(rows))

    def _save(
        self, hosted: _Hosted, plan: Plan, control: Control, before: dict[str, tuple[int, int]], store: Store
    ) -> None:
        for name, placed in hosted.stateful.items():
            if placed.owner not in hosted.fjord.failures and _moved(placed) != before[name]:
                state = placed.operator.save()
                if state:
                    store.put(name, pack_state(state))
        if control.previous_epoch != control.epoch:
            alive = {query.identity for query in plan.queries}
            for name in list(store.names()):
                if name != TOKEN and name.split("/", 1)[0] not in alive:
                    store.remove(name)
        hosted.token = uuid.uuid4().bytes
        store.put(TOKEN, hosted.token)
        if hosted.fjord.failures:
            hosted.token = None  # build it anew: a failed operator may stand anywhere


def _build(plan: Plan, bucket: int, buckets: int) -> _Hosted:
    fjord = Fjord()
    hosted = _Hosted(fjord, {}, {}, [], None, {})
    for query in plan.queries:
        edges = edges_of(query)
        if not any(edge.partition_by for edge in edges) and bucket_of(query.identity, buckets) != bucket:
            continue
        for edge in edges:
            hosted.edges[edge.name] = edge
            hosted.arrivals[edge.name] = PushQueue(capacity=2)
        root = add_downstream(fjord, query, hosted.arrivals)
        hosted.outlets.append((query, fjord.outlet(root)))
    hosted.stateful = {placed.name: placed for placed in fjord.operators}
    return hosted


def _merged_control(controls: list[Control]) -> Control:
    """One control from all parts: every part that failed, and the first one, sends one."""
    first = controls[0]
    watermarks: dict[str, int] = {}
    failures: dict[str, str] = {}
    for control in controls:
        watermarks.update(control.watermarks_us)
        failures.update(control.failures)
    return Control(first.epoch, first.previous_epoch, watermarks, failures)


def _moved(placed: Placed) -> tuple[int, int]:
    return placed.counters.rows_in, placed.counters.rows_out


def _lowest(rows: pl.DataFrame) -> int:
    return int(rows.item(0, START))


def _as_json(rows: pl.DataFrame) -> pl.DataFrame:
    payload = [name for name in rows.columns if name not in (START, END)]
    text = pl.struct(payload).struct.json_encode() if payload else pl.lit("{}")
    return rows.select(START, END, pl.lit("row").alias("kind"), text.alias("row"))


def _as_error(reason: str, at_us: int) -> pl.DataFrame:
    return pl.DataFrame(
        {START: [at_us], END: [at_us + 1], "kind": ["error"], "row": [msgspec.json.encode(reason).decode()]},
        schema_overrides={START: pl.Int64, END: pl.Int64},
    )


def outputs_of(rows: Iterable[Any]) -> list[Envelope]:
    """Return Spark's rows as envelopes."""
    return [Envelope(row.edge, row.origin, bytes(row.payload)) for row in rows]
