"""The downstream Fjord: every query's stateful operators, one Fjord per bucket, hosted in Spark's transformWithState.

Operator state lives in Spark's state store as one value per operator and bucket, written only when it changed. A
worker keeps the Fjord it has built; a token in the store tells whether that Fjord still stands where the store does.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.compilation import add_downstream, add_pane_aggregate
from cluster.fjord.counters import Counters, added, counters_of, since
from cluster.fjord.edges import Edge
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.operator import State
from cluster.fjord.queues import PushQueue
from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.language.algebra import MEMBER
from cluster.plan.folding import RIGHT
from cluster.plan.hosts import Host
from cluster.plan.pane_folding import PaneFold
from cluster.plan.relations_read import MEMORY_BYTES
from cluster.spark.answers import COUNT_EVERY_SECONDS, Answers, said_counters
from cluster.spark.envelopes import CONTROL, Control, pack_rows, unpack_control, unpack_rows
from cluster.spark.placement import Part, parts_at

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
class BucketOutput:
    """What one bucket answers: rows with columns query, START, END, kind, row (JSON), each query's in start order.

    Rows of the kind :data:`~cluster.spark.answers.COUNTERS` are no answers: they say what the operators did.
    """

    payload: bytes


@dataclass(slots=True)
class _Hosted:
    """The Fjord of one bucket and plan, and where it stands."""

    fjord: Fjord
    arrivals: dict[str, PushQueue]
    edges: dict[str, Edge]
    outlets: list[tuple[Answers, PushQueue]]
    tables: RelationTables
    token: bytes | None = None
    stateful: dict[str, Placed] = field(default_factory=dict)
    groups: dict[str, frozenset[int]] = field(default_factory=dict)
    """By identity of a part: the numbers of its groups."""
    upstream: Counters = field(default_factory=dict)
    """What operators next to the scans did, not yet passed on."""
    told: Counters = field(default_factory=dict)
    told_at: float = field(default_factory=time.monotonic)


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
        self._relations_folder = relations_folder
        self._relation_memory_bytes = relation_memory_bytes
        self._plans_folder = plans_folder
        self._buckets = buckets
        self._run = run

    def process(self, bucket: int, arrived: Iterable[Envelope], store: Store) -> Iterator[BucketOutput]:
        """Feed one micro-batch's envelopes to the bucket's Fjord, save what changed and return the answers."""
        envelopes = sorted(arrived, key=lambda envelope: (envelope.edge, envelope.origin))
        control = _merged_control([unpack_control(item.payload) for item in envelopes if item.edge == CONTROL])
        hosted = self._host(control.epoch, bucket, store)
        hosted.tables.advance(control.relations)
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
        self._save(hosted, control, before, store)

    @staticmethod
    def kept() -> tuple[Hashable, ...]:
        """Return what this process has built and keeps."""
        return tuple(sorted(_kept))

    def _host(self, epoch: int, bucket: int, store: Store) -> _Hosted:
        key = (self._run, self._plans_folder, epoch, bucket)
        token = store.get(TOKEN)
        hosted = _kept.pop(key, None)
        if hosted is None or hosted.token != token or token is None:
            tables = RelationTables(
                self._relations_folder, {}, buckets=self._buckets, memory_bytes=self._relation_memory_bytes
            )
            hosted = _build(parts_at(self._plans_folder, epoch, Host.STATEFUL), bucket, self._buckets, tables)
            for name, placed in hosted.stateful.items():
                saved = store.get(name)
                if saved is not None:
                    placed.operator.restore(without_strangers(unpack_state(saved), hosted.groups[placed.owner]))
        _kept[key] = hosted
        while len(_kept) > KEPT_FJORDS:
            _kept.popitem(last=False)
        return hosted

    def _answers(self, hosted: _Hosted, control: Control, bucket: int) -> Iterator[BucketOutput]:
        told = [*hosted.fjord.complaints.values(), *hosted.fjord.failures.values()]
        failures = {error.owner: str(error) for error in told}
        now_us = max(control.watermarks_us.values(), default=control.reached_us)
        found: list[pl.DataFrame] = []
        for answers, outlet in hosted.outlets:
            while (batch := outlet.get()) is not None:
                if batch.rows.height:
                    found.extend(answers.of(batch.rows))
            found.extend(answers.errors(failures, control.failures, bucket, self._buckets, now_us))
        found.extend(self._counted(hosted, control))
        if found:
            yield BucketOutput(pack_rows(pl.concat(found), compress=True))

    def _counted(self, hosted: _Hosted, control: Control) -> Iterator[pl.DataFrame]:
        """Say now and then what the operators did; at once if the Fjord is going to be built anew."""
        hosted.upstream = added(hosted.upstream, control.counters)
        if time.monotonic() - hosted.told_at < COUNT_EVERY_SECONDS and not hosted.fjord.failures:
            return
        now = counters_of(hosted.fjord.operators)
        did = added(since(now, hosted.told), hosted.upstream)
        hosted.told, hosted.upstream, hosted.told_at = now, {}, time.monotonic()
        if did:
            yield said_counters(did)

    def _save(self, hosted: _Hosted, control: Control, before: dict[str, tuple[int, int]], store: Store) -> None:
        new_plan = control.previous_epoch != control.epoch
        written = new_plan or hosted.token is None
        for name, placed in hosted.stateful.items():
            # With a new plan members may be gone, and so may what was kept for them.
            changed = _moved(placed) != before[name] or new_plan
            if placed.owner not in hosted.fjord.failures and changed:
                state = placed.operator.save()
                if state:
                    store.put(name, pack_state(state))
                    written = True
        if new_plan:
            for name in list(store.names()):
                if name != TOKEN and name not in hosted.stateful:
                    store.remove(name)
        if written:
            hosted.token = uuid.uuid4().bytes
            store.put(TOKEN, hosted.token)
        if hosted.fjord.failures:
            hosted.token = None  # build it anew: a failed operator may stand anywhere


def _build(parts: Iterable[Part], bucket: int, buckets: int, tables: RelationTables) -> _Hosted:
    fjord = Fjord()
    hosted = _Hosted(fjord, {}, {}, [], tables)
    for part in parts:
        if not part.in_bucket(bucket, buckets):
            continue
        for edge in part.edges:
            hosted.edges[edge.name] = edge
            hosted.arrivals[edge.name] = PushQueue(capacity=2)
        hosted.outlets.append((Answers(part), fjord.outlet(_add(fjord, part, hosted))))
        hosted.groups[part.identity] = frozenset(listener.group for listener in part.listeners)
    hosted.stateful = {placed.name: placed for placed in fjord.operators}
    return hosted


def _add(fjord: Fjord, part: Part, hosted: _Hosted) -> Placed:
    if isinstance(part.plan, PaneFold):
        return add_pane_aggregate(fjord, part.plan, hosted.arrivals[part.edges[0].name])
    return add_downstream(fjord, part.plan, hosted.arrivals, hosted.tables, part.choices)


def without_strangers(state: State, groups: frozenset[int]) -> State:
    """Return a part's saved state without the rows of groups that are there no more."""
    alive = list(groups)
    kept = dict(state)
    for name, value in state.items():
        if isinstance(value, pl.DataFrame):
            marks = [mark for mark in (MEMBER.name, RIGHT + MEMBER.name) if mark in value.columns]
            kept[name] = value.filter(pl.col(mark).is_in(alive) for mark in marks) if marks else value
    return kept


def _merged_control(controls: list[Control]) -> Control:
    """One control from all parts: the first one sends one, every part that failed, and to one bucket all."""
    first = controls[0]
    watermarks: dict[str, int] = {}
    failures: dict[str, str] = {}
    counters: Counters = {}
    for control in controls:
        watermarks.update(control.watermarks_us)
        failures.update(control.failures)
        counters = added(counters, control.counters)
    return Control(first.epoch, first.previous_epoch, watermarks, failures, counters, first.relations, first.reached_us)


def _moved(placed: Placed) -> tuple[int, int]:
    return placed.counters.rows_in, placed.counters.rows_out


def _lowest(rows: pl.DataFrame) -> int:
    return int(rows.item(0, START))


def outputs_of(rows: Iterable[Any]) -> list[Envelope]:
    """Return Spark's rows as envelopes."""
    return [Envelope(row.edge, row.origin, bytes(row.payload)) for row in rows]
