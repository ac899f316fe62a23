"""Runs a plan in one process, micro-batch by micro-batch, with relations in memory.

It does what the two Spark queries do together: queries without state read what lies between two watermarks, in order;
all others read rows as they come, and send theirs to buckets. Nothing here waits or writes: the caller brings the rows
and takes the answers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.answers import Answered, HostOutput, collected
from cluster.fjord.batch import ALWAYS, START
from cluster.fjord.bucket_host import BucketHost, Kept, VersionedTables
from cluster.fjord.counters import Counters, summed
from cluster.fjord.exchange import MicroBatchControl, merged_control, sent_by
from cluster.fjord.lookup_tables import LookupTable, Parts, UnreadableRelationError
from cluster.fjord.snapshot_evaluation import evaluate_snapshot
from cluster.fjord.stream_scan import StoredRows, StreamScan, read_together
from cluster.fjord.upstream_dataflow import StatelessHost, UpstreamDataflow
from cluster.operators import Node, Relation
from cluster.operators.source import History
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, Fragment, Host, beginning_us, unbegun_streams
from cluster.plan.epoch import Plan
from cluster.scalars.real_values import settled_scan
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class RelationRows:
    """A relation's rows from some instant on.

    Parameters
    ----------
    rows
        All its rows.
    begins_us
        By stream: tuples stamped at or after this instant meet them; streams that are not named always do. The first
        rows of a relation have always been there.
    """

    rows: pl.DataFrame
    begins_us: Mapping[str, int] = field(default_factory=dict)


class MemoryTables:
    """Tables of relations in memory, for lookups.

    Parameters
    ----------
    relations
        By identity of a relation: its rows, oldest first. May grow: what has been read stays as it was.
    """

    def __init__(self, relations: Mapping[str, Sequence[RelationRows]] | None = None) -> None:
        self._relations = relations or {}
        self._made: dict[tuple[Node, tuple[int, ...]], LookupTable] = {}

    def advance(self, versions: Mapping[str, int]) -> None:
        """Do nothing: all versions are in memory already."""
        del versions

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, Parts | PlanError]]:
        """Return a table's versions between two instants: since when, and its rows; the first holds at `first_us`.

        Raises
        ------
        UnreadableRelationError
            If one of its relations has no rows yet.
        """
        del key
        relations = table.relations
        begins = {each: self._begins(each, streams) for each in relations}
        changes = {since for known in begins.values() for since in known if first_us < since <= last_us}
        return [
            (since, self._table(table, {each: _active(known, since) for each, known in begins.items()}))
            for since in [first_us, *sorted(changes)]
        ]

    def _begins(self, relation: Relation, streams: frozenset[str]) -> list[int]:
        versions = self._relations.get(relation.identity, ())
        if not versions:
            raise UnreadableRelationError(f"relation {relation.name} has not been read yet")
        later = [
            max((each.begins_us.get(stream, ALWAYS) for stream in streams), default=ALWAYS) for each in versions[1:]
        ]
        return [ALWAYS, *later]

    def _table(self, table: Node, active: Mapping[Relation, int]) -> LookupTable:
        key = (table, tuple(active.values()))
        if key not in self._made:
            scans = {each: _scan(each, self._relations[each.identity][number]) for each, number in active.items()}
            self._made[key] = LookupTable(evaluate_snapshot(table, scans))
        return self._made[key]


def _active(begins: Sequence[int], instant_us: int) -> int:
    return max(number for number, since in enumerate(begins) if since <= instant_us)


def _scan(relation: Relation, version: RelationRows) -> pl.LazyFrame:
    reals = [column.name for column in relation.columns if column.type is FieldType.REAL]
    return settled_scan(version.rows.lazy(), reals)


class MemoryStore(dict[str, bytes]):
    """Values by name. A copy is a snapshot: values never change."""

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        self[name] = value

    def remove(self, name: str) -> None:
        """Remove a value."""
        del self[name]

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        return list(self)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a micro-batch brings of one stream.

    Parameters
    ----------
    rows
        In any order, but none stamped before the watermark of the micro-batch before.
    watermark_us
        The stream's low watermark from now on: nothing that comes later is stamped before it. None if it stays.
    """

    rows: tuple[StoredRows, ...] = ()
    watermark_us: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of an engine after a micro-batch.

    Parameters
    ----------
    plan
        The plan.
    stores
        By bucket: the operators' state.
    watermarks_us
        By stream.
    ahead
        By stream: rows that have come and that its watermark has not passed.
    """

    plan: Plan
    stores: tuple[MemoryStore, ...]
    watermarks_us: Mapping[str, int]
    ahead: Mapping[str, tuple[StoredRows, ...]]


class LocalEngine:
    """Runs a plan, which may change between micro-batches.

    Parameters
    ----------
    plan
        The plan that runs from the beginning.
    buckets
        Into how many buckets keyed state is divided. Answers are the same with any number.
    tables
        Makes the tables of relations, with :meth:`~cluster.fjord.bucket_host.VersionedTables.advance`.
    keeps_state
        False if state is never saved: that is quicker, and the plan cannot change.
    clock
        Seconds that only go forward: for how often errors are repeated, and counters are reported.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        buckets: int = 1,
        tables: Callable[[], VersionedTables] = MemoryTables,
        keeps_state: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buckets = buckets
        self._tables = tables
        self._keeps_state = keeps_state
        self._clock = clock
        self._physical = NOTHING
        self._stores = [MemoryStore() for _ in range(buckets)]
        self._watermarks_us: dict[str, int] = {}
        self._ahead: dict[str, tuple[StoredRows, ...]] = {}
        self._kept: Kept = OrderedDict()
        self._host = BucketHost(lambda _: self._fragments[Host.STATEFUL], buckets, tables, self._kept, clock=clock)
        self._begin(plan)

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self._plan

    @property
    def stores(self) -> Sequence[MemoryStore]:
        """By bucket: the operators' state."""
        return self._stores

    def run(
        self,
        arrivals: Mapping[str, Arrival],
        *,
        plan: Plan | None = None,
        parts: int = 1,
        relations: Mapping[str, int] | None = None,
    ) -> Answered:
        """Run one micro-batch.

        Parameters
        ----------
        arrivals
            What is new, by stream.
        plan
            The plan from this micro-batch on; None if it stays.
        parts
            In how many parts streams are read; answers are the same with any number.
        relations
            By identity of a relation: the newest version that counts.

        Raises
        ------
        PlanError
            If the plan changes, and no state is kept.
        """
        previous = self._plan.epoch
        if plan is not None and plan.epoch != previous:
            if not self._keeps_state:
                raise PlanError("the plan of an engine that keeps no state cannot change")
            self._begin(plan)
        passed_us = dict(self._watermarks_us)
        new = {stream: each.watermark_us for stream, each in arrivals.items() if each.watermark_us is not None}
        self._watermarks_us |= new
        for stream, arrival in arrivals.items():
            self._ahead[stream] = (*self._ahead.get(stream, ()), *arrival.rows)
        versions = dict(relations or {})
        found = [
            *self._without_state(passed_us, parts, versions),
            *self._with_state({stream: each.rows for stream, each in arrivals.items()}, previous, parts, versions),
        ]
        self._ahead = {
            stream: tuple(left for each in rows if (left := each.rest(self._watermarks_us.get(stream, ALWAYS))))
            for stream, rows in self._ahead.items()
        }
        return collected(found)

    def checkpoint(self) -> Checkpoint:
        """Return its state."""
        stores = tuple(MemoryStore(store) for store in self._stores)
        return Checkpoint(self._plan, stores, dict(self._watermarks_us), dict(self._ahead))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint, of this engine or of another one with as many buckets."""
        self._stores = [MemoryStore(store) for store in checkpoint.stores]
        self._watermarks_us = dict(checkpoint.watermarks_us)
        self._ahead = dict(checkpoint.ahead)
        self._begin(checkpoint.plan)

    def forget(self) -> None:
        """Forget the operators, as a process that ends does; they are built again from the state that was kept."""
        self._kept.clear()
        self._physical = NOTHING
        self._begin(self._plan)

    def _begin(self, plan: Plan) -> None:
        self._plan = plan
        self._physical = lower(plan, self._physical)
        self._fragments = {host: self._physical.hosted(host).fragments for host in Host}
        self._unbegun = set(unbegun_streams(self._fragments[Host.STATEFUL]))
        self._stateless = StatelessHost(self._fragments[Host.STATELESS], clock=self._clock)

    def _without_state(
        self, passed_us: Mapping[str, int], parts: int, relations: Mapping[str, int]
    ) -> list[HostOutput]:
        if not self._fragments[Host.STATELESS]:
            return []
        between = {
            stream: (passed_us.get(stream, ALWAYS), self._watermarks_us.get(stream, ALWAYS)) for stream in self._ahead
        }
        fragments = self._fragments[Host.STATELESS]
        at_us = max(self._watermarks_us.values(), default=0)
        return [
            self._stateless.process(self._dataflow(fragments, pieces, relations, between), at_us)
            for pieces in _dealt(self._ahead, parts)
        ]

    def _with_state(
        self, rows: Mapping[str, Sequence[StoredRows]], previous: int, parts: int, relations: Mapping[str, int]
    ) -> list[HostOutput]:
        if not self._fragments[Host.STATEFUL] and previous == self._plan.epoch:
            return []
        arrived: list[dict[str, list[pl.DataFrame]]] = [{} for _ in range(self._buckets)]
        controls: list[MicroBatchControl] = []
        counted: list[Counters] = []
        reached_us = max(self._watermarks_us.values(), default=0)
        versions = dict(relations)
        begun_us = self._beginnings()
        for pieces in _dealt(rows, parts):
            sent = sent_by(self._dataflow(self._fragments[Host.STATEFUL], pieces, relations, {}), self._buckets)
            for bucket, exchange, piece in sent.pieces:
                arrived[bucket].setdefault(exchange, []).append(piece)
            controls.append(
                MicroBatchControl(
                    self._plan.epoch,
                    previous,
                    sent.watermarks_us,
                    sent.failures,
                    versions,
                    reached_us,
                    begun_us,
                    dict(self._watermarks_us),
                    lost_us=sent.lost_us,
                )
            )
            counted.append(sent.counters)
        control = merged_control(controls)
        return [
            self._host.process(
                bucket,
                control,
                arrived[bucket],
                store if self._keeps_state else None,
                {} if bucket else summed(counted),
            )
            for bucket, store in enumerate(self._stores)
        ]

    def _beginnings(self) -> dict[str, int]:
        """Return where streams begin that a query waits for; nothing has been forgotten of one that has not begun."""
        found = {}
        for stream in self._unbegun:
            pieces = read_together(list(self._ahead.get(stream, ())), (START,))
            first_us = min((each.select(pl.col(START).min()).item() for each in pieces if each.height), default=None)
            begins_us = beginning_us(None, [(first_us, self._watermarks_us.get(stream))])
            if begins_us is not None:
                found[stream] = begins_us
        self._unbegun -= found.keys()
        return found

    def _dataflow(
        self,
        fragments: Sequence[Fragment],
        pieces: Mapping[str, Sequence[StoredRows]],
        relations: Mapping[str, int],
        between_us: Mapping[str, tuple[int, int]],
    ) -> UpstreamDataflow:
        tables = self._tables()
        tables.advance(relations)

        def live(stream: str, _: History | None) -> StreamScan:
            return StreamScan(
                pieces.get(stream, ()), self._watermarks_us.get(stream), between_us=between_us.get(stream)
            )

        return UpstreamDataflow(fragments, live, tables)


def _dealt(rows: Mapping[str, Sequence[StoredRows]], parts: int) -> list[dict[str, list[StoredRows]]]:
    """Distribute pieces among the parts of a micro-batch in turn."""
    found: list[dict[str, list[StoredRows]]] = [{} for _ in range(parts)]
    pieces = [(stream, piece) for stream, each in rows.items() for piece in each]
    for number, (stream, piece) in enumerate(pieces):
        found[number % parts].setdefault(stream, []).append(piece)
    return found
