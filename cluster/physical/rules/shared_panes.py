"""Panes: windowed aggregates of one stream by the same keys are one, whatever their windows, conditions and aggregates.

    AVG(speed) over 5 minutes, every minute              panes of a minute: one partial row per key, pane and condition,
    MAX(speed) over 1 hour, every 10 minutes       ->    with what all aggregates need; each window is made of whole
    COUNT(*) WHERE lane = 1, 15 minutes, every 15        panes, and the rest of each query is made of its window's rows

A tuple stamped t lies in the pane that ends with the least multiple of the pane's width above t. Where that divides
slide and size of a window, all tuples of a pane enter and leave the window together (papers/pipes_algebra.md section 3,
with advance), so a window over panes holds exactly the tuples of a window over the stream: a coarser slide is answered
from a finer one's panes.

Queries with equal conditions share their tuples and are a *query group*, named by a digest of the condition. A query
must not see tuples from before its beginning; so partial rows carry the newest query's epoch at their arrival
(``VISIBLE_FROM``), and an answer is for the queries that began after ``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from cluster.operators import Aggregate, Project, Source
from cluster.operators.columns import QUERY_GROUP, STAMP, VISIBLE_FROM, AggregateCall, Output, Scalar
from cluster.operators.scalar_expressions import columns_of, passed_on
from cluster.physical.nodes import Fragment, Host, OperatorNode, PaneWindow, Reported, Subscriber
from cluster.physical.operations import (
    DeviceAggregates,
    Exchange,
    Measures,
    PaneAggregate,
    Panes,
    ScanAggregates,
    Sink,
)
from cluster.physical.rules.folding import Fingerprint, finish_of, group_of
from cluster.physical.rules.pipelines import pipeline
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.demand import count_fingerprint
from cluster.plan.epoch import PlannedQuery
from cluster.plan.pane_query import PaneQuery, key_name
from cluster.plan.push_down import fixed_columns, pushed_of, split_predicate
from protocols.wire.programs import Measure


@dataclass(frozen=True, slots=True)
class WindowedQuery:
    """A windowed aggregate as one of those that share panes."""

    pane_query: PaneQuery

    @property
    def identity(self) -> str:
        """Name of the fragment; depends on stream, keys, and the family or else the class of pane widths only."""
        return self.pane_query.family

    def subscriber(self, query: PlannedQuery) -> Subscriber:
        """Return the query as a subscriber; its group is a digest of everything that chooses its samples."""
        windowed = self.pane_query
        pushed, counted = pushed_of(windowed), count_fingerprint(windowed)
        # Samples that sensors have aggregated count for some queries only, even if the conditions are equal.
        marks: list[Scalar | Fingerprint | None] = [
            windowed.predicate,
            None if pushed is None else Fingerprint(pushed.fingerprint),
        ]
        devices = missing = None
        if pushed is not None:
            fixed = pushed.predicate.fixed
            devices = Reported(pushed.fingerprint, fixed, windowed.own_pane_us, pushed.measures, pushed.counts_events)
        if counted is not None:
            # Counts of missing samples are for queries that demand them, in panes of their width.
            marks.append(Fingerprint(counted))
            missing = Reported(
                counted, split_predicate(windowed.source, windowed.predicate).fixed, windowed.own_pane_us
            )
        return Subscriber(
            query.name,
            query.since_epoch,
            group_of(tuple(marks)),
            (windowed.predicate,),
            window=PaneWindow(windowed.size_us, windowed.slide_us),
            calls=windowed.calls,
            devices=devices,
            missing=missing,
            finish=finish_of(windowed.top),
            demands=sensor_demands(query),
            early=query.early,
            since=query.since,
            until=query.until,
            **query.node.time_bounds._asdict(),
        )

    def fragment(self, subscribers: Sequence[Subscriber]) -> Fragment:
        """Return the fragment that answers some queries of this family."""
        return self.changed(SubscriberTally.of(subscribers), tuple(subscribers))

    def changed(self, tally: SubscriberTally, subscribers: tuple[Subscriber, ...]) -> Fragment:
        """Return the fragment with other subscribers, given what they need together."""
        calls = {call.name: call for call in tally.calls}
        panes = _Panes(
            self.identity,
            self.pane_query.source,
            self.pane_query.keys,
            tuple(calls[name] for name in sorted(calls)),
            math.gcd(*(length for window in tally.windows for length in window)),
            _measures(tally),
            tally.missing > 0,
            self.pane_query.family_us,
        )
        return Fragment(self.identity, Host.STATEFUL, _nodes(panes), subscribers, shares_rows=True)


@dataclass(frozen=True, slots=True)
class _Panes:
    """What some windowed aggregates need together.

    Parameters
    ----------
    name
        Of the fragment.
    source, keys
        What all of them have in common.
    calls
        All their aggregates, by name.
    pane_us
        The width of their panes.
    measures
        What devices report to them; None for nothing.
    missing
        True if proxies report missing samples to any of them.
    family_us
        The width that names their family; None for the common one.
    """

    name: str
    source: Source
    keys: tuple[Scalar, ...]
    calls: tuple[AggregateCall, ...]
    pane_us: int
    measures: Measures | None
    missing: bool
    family_us: int | None = None

    @property
    def operation(self) -> Panes:
        """What puts tuples into panes."""
        return Panes(self.pane_us) if self.family_us is None else Panes(self.pane_us, self.family_us)

    @property
    def named_keys(self) -> tuple[Output, ...]:
        """The group keys, named as in the partial rows."""
        return tuple(Output(key_name(key), key) for key in self.keys)

    @property
    def pipeline_plan(self) -> Project:
        """The pipeline next to the scan: the stream's tuples with the keys and the columns that the aggregates read."""
        read = {name for call in self.calls for scalar in call.reads for name in columns_of(scalar)}
        stamp = [STAMP] if STAMP.name in read and STAMP not in self.source.columns else []
        columns = [*self.source.columns, *stamp, QUERY_GROUP, VISIBLE_FROM]
        kept = [column for column in columns if column.name in read or column in (QUERY_GROUP, VISIBLE_FROM)]
        outputs = (*self.named_keys, *passed_on(kept))
        return Project(replace(self.source, columns=tuple(columns)), outputs)

    @property
    def aggregate(self) -> Aggregate:
        """The aggregate whose first half makes the panes."""
        return Aggregate(
            self.pipeline_plan,
            (*(key.name for key in self.named_keys), QUERY_GROUP.name, VISIBLE_FROM.name),
            self.calls,
        )


def _measures(tally: SubscriberTally) -> Measures | None:
    """Return what devices report to all subscribers together; None for nothing."""
    if not tally.measures:
        return None
    found: dict[str, tuple[Measure, ...]] = {}
    for each in tally.measures:
        for field, measures in each:
            found[field] = tuple(dict.fromkeys((*found.get(field, ()), *measures)))
    return tuple(found.items())


@lru_cache(maxsize=4096)
def _nodes(panes: _Panes) -> tuple[OperatorNode, ...]:
    name, aggregate = f"{panes.name}/0", panes.aggregate
    upstream = pipeline(
        name, panes.pipeline_plan, aggregate, panes=panes.operation, preaggregated=panes.measures is not None
    )  # fmt: skip
    reported = tuple(_reported(panes, name))
    keys = tuple(key.name for key in panes.named_keys)
    crossing = (upstream[-1].id, *(node.id for node in reported if isinstance(node.operation, DeviceAggregates)))
    spread = (
        Exchange("keys", keys, panes.pipeline_plan.schema)
        if keys
        else Exchange("group", (QUERY_GROUP.name,), panes.pipeline_plan.schema)
    )
    merged = OperatorNode(
        f"{name} {PaneAggregate.state_name()}",
        PaneAggregate(panes.pipeline_plan.schema[: len(keys)], panes.calls),
        (name,),
    )
    sink = OperatorNode(f"{panes.name} {Sink.state_name()}", Sink(), (merged.id,))
    return (*upstream, *reported, OperatorNode(name, spread, crossing), merged, sink)


def _reported(panes: _Panes, name: str) -> Iterator[OperatorNode]:
    """Yield the operators that read device partial aggregates, and the counts of missing samples."""
    names = fixed_columns(panes.source)
    fixed = tuple(column for column in panes.source.columns if column.name in names)
    keys = tuple(key for key in panes.named_keys if columns_of(key.scalar) <= {column.name for column in fixed})
    if len(keys) < len(panes.keys):
        return
    for missing, called in ((False, "ToldAggregates"), (True, "ToldCounts")):
        if not (panes.missing if missing else panes.measures is not None):
            continue
        scan = ScanAggregates(panes.source.stream, fixed, panes.measures or (), panes.source.history)
        below = OperatorNode(f"{name} {scan.kind_name()}{' 2' if missing else ''}", scan)
        yield below
        aggregates = DeviceAggregates(missing, fixed, keys, panes.calls, panes.pane_us)
        yield OperatorNode(f"{name} {called}", aggregates, (below.id,))
