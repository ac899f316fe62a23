"""The stateful operators of one bucket, micro-batch by micro-batch, independent of where the rows come from.

Operator state lives in a store as one value per operator and bucket, written only when it changed. A host of buckets
keeps the dataflows it has built; a token in the store shows whether such a dataflow is in the same state as the store.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import polars as pl

from cluster.fjord.answers import Answers
from cluster.fjord.batch import START, Batch
from cluster.fjord.collecting import HostOutput
from cluster.fjord.control import MicroBatchControl
from cluster.fjord.counters import CounterReports, Counters, Totals, counters_of, since
from cluster.fjord.graph import Dataflow, RunningOperator
from cluster.fjord.instantiation import add_behind, empty_crossing
from cluster.fjord.operator import State
from cluster.fjord.operators.lookup import Tables
from cluster.fjord.queues import PushQueue
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.language.columns import QUERY_GROUP
from cluster.physical.nodes import Fragment
from cluster.physical.operations import RIGHT

TOKEN = ""
"""The state entry under which the token is kept; operators' entries have names."""

KEPT_DATAFLOWS = 64


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


class VersionedTables(Tables, Protocol):
    """Tables of relations that change."""

    def advance(self, versions: Mapping[str, int]) -> None:
        """Use newer versions, given by identity of a relation."""
        ...


@dataclass(slots=True)
class HostedDataflow:
    """The dataflow of one bucket and plan, and its position."""

    dataflow: Dataflow
    arrivals: dict[str, PushQueue]
    empty: dict[str, pl.DataFrame]
    """By exchange: no rows, with the columns that cross it."""
    outlets: list[tuple[Answers, PushQueue]]
    tables: VersionedTables
    reports: CounterReports
    token: bytes | None = None
    stateful: dict[str, RunningOperator] = field(default_factory=dict)
    groups: dict[str, frozenset[int]] = field(default_factory=dict)
    """By identity of a fragment: the numbers of its query groups."""
    counted: Counters = field(default_factory=dict)
    """The counters of operators when they were last reported."""


Kept = OrderedDict[tuple[Hashable, ...], HostedDataflow]
"""Dataflows that have been built, by what they were built for; the one used last comes last."""


class BucketHost:
    """Runs the stateful operators of buckets, micro-batch by micro-batch.

    Parameters
    ----------
    fragments
        The fragments of an epoch's plan.
    buckets
        How many buckets there are.
    tables
        Makes what a new dataflow's tuples are looked up in.
    kept
        A store of dataflows that have been built.
    key
        Distinguishes this host's dataflows from others that are kept there.
    clock
        Seconds that only go forward: for how often errors are repeated, and counters are reported.
    """

    def __init__(
        self,
        fragments: Callable[[int], Sequence[Fragment]],
        buckets: int,
        tables: Callable[[], VersionedTables],
        kept: Kept,
        *,
        key: tuple[Hashable, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fragments = fragments
        self._buckets = buckets
        self._tables = tables
        self._kept = kept
        self._key = key
        self._clock = clock

    def process(
        self,
        bucket: int,
        control: MicroBatchControl,
        arrived: Mapping[str, Sequence[pl.DataFrame]],
        store: Store | None,
        upstream: Mapping[str, Totals] = MappingProxyType({}),
    ) -> HostOutput:
        """Feed one micro-batch to a bucket's dataflow and save what changed.

        Parameters
        ----------
        bucket
            Its number.
        control
            Control of the micro-batch.
        arrived
            By exchange: the bucket's rows, from each part of the micro-batch in turn; those of a part in start order.
        store
            The bucket's state; None if it is not saved: then the dataflow that was built is all there is.
        upstream
            The counters of operators next to the scans, if this bucket reports them.
        """
        hosted = self._host(control.epoch, bucket, store)
        hosted.tables.advance(control.relations)
        before = {name: _moved(placed) for name, placed in hosted.stateful.items()}
        for name, queue in hosted.arrivals.items():
            pieces = arrived.get(name)
            watermark_us = control.watermarks_us.get(name)
            if watermark_us is None and not pieces:
                continue
            rows = pl.concat(pieces).sort(START, maintain_order=True) if pieces else hosted.empty[name]
            queue.put(Batch(rows, watermark_us if watermark_us is not None else _lowest(rows)))
        hosted.dataflow.run()
        found = list(self._answers(hosted, control, bucket))
        hosted.reports.add(upstream)
        counters = _counters(hosted)
        if store is not None:
            self._save(hosted, control, before, store)
        return HostOutput(found, counters)

    def _host(self, epoch: int, bucket: int, store: Store | None) -> HostedDataflow:
        key = (*self._key, epoch, bucket)
        hosted = self._kept.pop(key, None)
        if hosted is None or (store is not None and not _stands(hosted, store)):
            hosted = _build(self._fragments(epoch), bucket, self._buckets, self._tables(), self._clock)
            for name, placed in hosted.stateful.items():
                saved = None if store is None else store.get(name)
                if saved is not None:
                    placed.operator.restore(without_dropped_groups(unpack_state(saved), hosted.groups[placed.owner]))
        self._kept[key] = hosted
        while len(self._kept) > max(KEPT_DATAFLOWS, self._buckets):
            self._kept.popitem(last=False)
        return hosted

    def _answers(self, hosted: HostedDataflow, control: MicroBatchControl, bucket: int) -> Iterator[pl.DataFrame]:
        errors = [*hosted.dataflow.warnings.values(), *hosted.dataflow.failures.values()]
        failures = {error.owner: str(error) for error in errors}
        now_us = max(control.watermarks_us.values(), default=control.reached_us)
        for answers, outlet in hosted.outlets:
            while (batch := outlet.get()) is not None:
                if batch.rows.height:
                    yield from answers.of(batch.rows)
            yield from answers.errors(failures, control.failures, bucket, self._buckets, now_us)

    def _save(
        self, hosted: HostedDataflow, control: MicroBatchControl, before: dict[str, tuple[int, int]], store: Store
    ) -> None:
        new_plan = control.previous_epoch != control.epoch
        written = new_plan or hosted.token is None
        for name, placed in hosted.stateful.items():
            # With a new plan query groups may be gone, and so may what was kept for them.
            changed = _moved(placed) != before[name] or new_plan
            if placed.owner not in hosted.dataflow.failures and changed:
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
        if hosted.dataflow.failures:
            hosted.token = None  # build it anew: a failed operator may stand anywhere


def _build(
    fragments: Iterable[Fragment], bucket: int, buckets: int, tables: VersionedTables, clock: Callable[[], float]
) -> HostedDataflow:
    dataflow = Dataflow()
    hosted = HostedDataflow(dataflow, {}, {}, [], tables, CounterReports(clock))
    for fragment in fragments:
        if not fragment.in_bucket(bucket, buckets):
            continue
        for exchange in fragment.exchanges:
            hosted.empty[exchange.id] = empty_crossing(fragment, exchange)
            hosted.arrivals[exchange.id] = PushQueue(capacity=2)
        last = add_behind(dataflow, fragment, hosted.arrivals, hosted.tables)
        hosted.outlets.append((Answers(fragment, clock=clock), dataflow.outlet(last)))
        hosted.groups[fragment.identity] = fragment.groups
    hosted.stateful = {placed.name: placed for placed in dataflow.operators}
    return hosted


def _counters(hosted: HostedDataflow) -> Counters:
    """Return what operators did if that is to be reported: now and then, or before the dataflow is built anew."""
    if not hosted.reports.due and not hosted.dataflow.failures:
        return {}
    now = counters_of(hosted.dataflow.operators)
    hosted.reports.add(since(now, hosted.counted))
    hosted.counted = now
    return hosted.reports.report()


def without_dropped_groups(state: State, groups: frozenset[int]) -> State:
    """Return a fragment's saved state without the rows of query groups that were dropped."""
    alive = list(groups)
    kept = dict(state)
    for name, value in state.items():
        if isinstance(value, pl.DataFrame):
            marks = [mark for mark in (QUERY_GROUP.name, RIGHT + QUERY_GROUP.name) if mark in value.columns]
            # A row without a partner, such as an unmatched tuple of a zipper join, has one mark only.
            own = (pl.col(mark).is_in(alive) | pl.col(mark).is_null() for mark in marks)
            kept[name] = value.filter(*own) if marks else value
    return kept


def _stands(hosted: HostedDataflow, store: Store) -> bool:
    """Return whether a cached dataflow is in the state that the store holds."""
    token = store.get(TOKEN)
    return token is not None and hosted.token == token


def _moved(placed: RunningOperator) -> tuple[int, int]:
    return placed.counters.rows_in, placed.counters.rows_out


def _lowest(rows: pl.DataFrame) -> int:
    return int(rows.item(0, START))
