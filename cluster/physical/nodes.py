"""The physical plan of an epoch: fragments, the nodes they consist of, and the queries that subscribe to their rows.

    fragment   scan -> ... -> exchange -> ... -> sink -> subscribers       keeps state: behind an exchange
    fragment   scan -> ... -> sink -> subscribers                          keeps none: all of it next to the scan

Values: a plan is written and read by msgspec, and two are compared node by node (:mod:`cluster.physical.difference`).
Estimates and measurements of a node are kept outside the plan, by the node's id.

**Which answers tasks may write into files of the results table themselves, and which the driver writes.**

    without state    task    [ stamps 0 to 5 ][ stamps 5 to 9 ]     in order as they come: only numbers are missing
    with state       bucket  [ some keys of each window        ]    the driver puts each query's in order of their
                             [ other keys of each window       ]    starts, and finds the rows that others close

Buckets with many answers hand them to the driver in files, which it reads.

The plan says which may; whether a task does depends on how many answers it has
(docs/decisions/0023-tasks-write-many-answers.md).

**Where streams begin, for queries that were there before them: their rows of relations flow from there.**

    commit      1       2       3           watermark behind it, by commit: none, 2, 6
    stamps      5       4       9           begins at 4: then no earlier tuple can come any more

A query that is added later begins at the watermark that the stream has then (cluster/plan/history.py). A beginning
depends only on what is stored and in which commits: not on conditions, micro-batches, or where a replay begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from cluster.expressions.user_functions import UserFunction
from cluster.layered_map import LayeredMap
from cluster.operators import Node
from cluster.operators.columns import AggregateCall, Scalar
from cluster.operators.extent import Coalescing
from cluster.physical.operations import (
    Exchange,
    Filter,
    Held,
    Lookup,
    Measures,
    Operation,
    Project,
    Scan,
    Sink,
    WindowBounds,
)
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.epoch import Handover
from cluster.plan.history import EVER_US
from cluster.plan.names_read import called_by, functions_of, scalars_in
from cluster.plan.pipelines import is_pipeline
from protocols.wire.demands import QueryDemand


class Host(StrEnum):
    """The two hosts of operators."""

    STATELESS = "stateless"
    STATEFUL = "stateful"


def host_of(node: Node) -> Host:
    """Return the host that answers a query, given its plan."""
    return Host.STATELESS if is_pipeline(node) else Host.STATEFUL


Origins = Literal["none", "kept", "dropped"]
"""Rows that come and go without their origins; that have them; that come with them to go without."""


class OperatorNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator, or one end of an exchange between machines.

    Parameters
    ----------
    id
        The name of its state and of its measurements; it never changes.
    operation
        What it does.
    inputs
        Ids of the nodes of the same fragment that feed it, which come before it.
    origins
        Whether the pieces of cut rows carry where these began (:mod:`cluster.physical.rules.pieces`).
    """

    id: str
    operation: Operation
    inputs: tuple[str, ...] = ()
    origins: Origins = "none"


class PaneWindow(msgspec.Struct, frozen=True):
    """The window of a query that shares panes."""

    size_us: int
    slide_us: int

    @property
    def slides(self) -> int:
        """How many of its answers a tuple is in, at most."""
        return -(-self.size_us // self.slide_us)


class Reported(msgspec.Struct, frozen=True, omit_defaults=True):
    """What devices or proxies report to a query instead of samples.

    Parameters
    ----------
    fingerprint
        The push-down fingerprint: names the samples that are aggregated.
    fixed
        The part of its condition that is about fixed columns; None for none.
    own_pane_us
        Its windows are made of whole panes of this width.
    measures
        What it has to know.
    only
        True if it is given nothing else, no samples.
    """

    fingerprint: str = msgspec.field(name="form")
    fixed: Scalar | None
    own_pane_us: int
    measures: Measures = ()
    only: bool = False


class SensorDemands(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a query demands of sensors.

    Parameters
    ----------
    streams
        Its demands by stream.
    refused
        Why they cannot be asked for it; empty if they can.
    """

    streams: tuple[tuple[str, tuple[QueryDemand, ...]], ...] = ()
    refused: str = ""

    def of(self, stream: str) -> tuple[QueryDemand, ...]:
        """Return its demands on a stream."""
        return dict(self.streams).get(stream, ())


NO_DEMANDS = SensorDemands()


class Subscriber(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query, and which rows of a fragment are its own.

    Parameters
    ----------
    query
        Its name.
    visible_from
        The epoch with which it began: rows from before are not its own. Tells it from earlier queries of its name.
    group
        Its query group: rows with this number are its own. Queries with equal conditions may have the same.
    conditions
        By grouped filter of the fragment: its own condition; None for all rows.
    choices
        By per-query filter: its own condition.
    window
        The window whose answers are its own, where windows share panes.
    calls
        The aggregates that it needs of this window.
    devices, missing
        What devices report to it, and what proxies report of missing samples.
    finish
        The operations still to be applied to its rows.
    demands
        What it demands of sensors.
    early
        True if its rows are answered as soon as their beginning is certain, before their end is known.
    since, until
        As in :class:`~cluster.plan.epoch.PlannedQuery`.
    extent
        How its samples are coalesced, where extents are shared.
    reach_us, delay_us
        How long after its stamp a tuple may matter to its answers, and how long before it these may begin; None if
        there is no bound.
    """

    query: str
    visible_from: int
    group: int
    conditions: tuple[Scalar | None, ...]
    choices: tuple[Scalar, ...] = ()
    window: PaneWindow | None = None
    calls: tuple[AggregateCall, ...] = ()
    devices: Reported | None = None
    missing: Reported | None = None
    finish: tuple[Filter | Project | WindowBounds, ...] = ()
    demands: SensorDemands = msgspec.field(default=NO_DEMANDS, name="asked")
    early: bool = False
    since: Handover | None = None
    until: Handover | None = None
    extent: Coalescing | None = None
    reach_us: int | None = None
    delay_us: int | None = None

    @property
    def identity(self) -> str:
        """A name that no other query of this engine has, had or will have."""
        return f"{self.query}@{self.visible_from}"

    def home(self, buckets: int) -> int:
        """Return the bucket that reports its errors where no rows do."""
        return self.group % buckets


Conditions = tuple[tuple[int, Scalar | None], ...]
"""By query group."""


class Fragment(msgspec.Struct, frozen=True, dict=True):
    """A piece of the plan that is scheduled, fails and answers queries as a unit.

    Parameters
    ----------
    identity
        A name no other fragment of this engine ever has.
    host
        Which of the two Spark queries runs it.
    nodes
        Inputs before what reads them; the last one is the sink.
    subscribers
        The queries that it answers, oldest first.
    shares_rows
        True if several subscribers may have the same query group; marks in the rows then tell their rows apart.
    """

    identity: str
    host: Host
    nodes: tuple[OperatorNode, ...]
    subscribers: tuple[Subscriber, ...]
    shares_rows: bool

    @cached_property
    def by_id(self) -> dict[str, OperatorNode]:
        """Its nodes."""
        return {node.id: node for node in self.nodes}

    @property
    def sink(self) -> OperatorNode:
        """Its last node."""
        return self.nodes[-1]

    @cached_property
    def exchanges(self) -> tuple[OperatorNode, ...]:
        """Its exchanges: where rows cross the shuffle."""
        return tuple(node for node in self.nodes if isinstance(node.operation, Exchange))

    @cached_property
    def behind(self) -> tuple[OperatorNode, ...]:
        """The nodes behind its exchanges, without the sink."""
        found: dict[str, OperatorNode] = {}
        ends = {node.id for node in self.exchanges}
        for node in self.nodes:
            if any(each in found or each in ends for each in node.inputs):
                found[node.id] = node
        return tuple(node for node in found.values() if not isinstance(node.operation, Sink))

    @property
    def late_nodes(self) -> tuple[OperatorNode, ...]:
        """The nodes that answer rows after their beginning is certain; inputs come first."""
        late: dict[str, OperatorNode] = {}
        for node in self.behind:
            if node.operation.holds_rows_back or any(each in late for each in node.inputs):
                late[node.id] = node
        return tuple(late.values())

    @cached_property
    def next_to_scan(self) -> tuple[OperatorNode, ...]:
        """The nodes next to its scans, with the exchanges or, if there are none, the sink."""
        behind = {node.id for node in self.behind}
        last = {self.sink.id} if self.exchanges else set()
        return tuple(node for node in self.nodes if node.id not in behind | last)

    def pipeline(self, end: OperatorNode) -> tuple[OperatorNode, ...]:
        """Return the nodes from a scan to an exchange, or to the sink of a fragment without exchanges; scan first."""
        found = [self.by_id[end.inputs[0]]]
        while found[-1].inputs:
            found.append(self.by_id[found[-1].inputs[0]])
        return tuple(reversed(found))

    @property
    def shares_panes(self) -> bool:
        """True if its subscribers' windows are made of the same panes."""
        return self.subscribers[0].window is not None

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams it reads."""
        return tuple(dict.fromkeys(node.operation.stream for node in self.nodes if isinstance(node.operation, Scan)))

    @cached_property
    def relations(self) -> frozenset[str]:
        """Identities of the relations that it reads."""
        tables = (node.operation.table.table for node in self.nodes if isinstance(node.operation, Lookup | Held))
        return frozenset(each.identity for table in tables for each in table.relations)

    @cached_property
    def functions(self) -> frozenset[UserFunction]:
        """The functions of users that it calls."""
        tables = (node.operation.table.table for node in self.nodes if isinstance(node.operation, Lookup | Held))
        own = called_by(scalars_in((tuple(node.operation for node in self.nodes), self.subscribers)))
        return own.union(*map(functions_of, tables))

    @cached_property
    def beginnings(self) -> Mapping[str, int]:
        """The instant from which it reads stored rows, by stream; streams that are read live only are left out."""
        found: dict[str, int] = {}
        for node in self.nodes:
            if isinstance(node.operation, Scan) and (history := node.operation.history) is not None:
                begins = EVER_US if history.begins_us is None else history.begins_us
                found[node.operation.stream] = min(begins, found.get(node.operation.stream, begins))
        return found

    @cached_property
    def begins_with(self) -> frozenset[str]:
        """The streams with whose beginning its rows of relations begin to flow (cluster/physical/nodes.py)."""
        held = (node.operation for node in self.nodes if isinstance(node.operation, Held))
        return frozenset().union(*(each.against or each.streams for each in held if each.begins_us is None))

    @cached_property
    def spread(self) -> bool:
        """True if its rows go to buckets by their values, so that each bucket has a share."""
        return any(isinstance(node.operation, Exchange) and node.operation.spread != "group" for node in self.nodes)

    @cached_property
    def tally(self) -> SubscriberTally:
        """What its subscribers need together."""
        return SubscriberTally.of(self.subscribers)

    @cached_property
    def groups(self) -> frozenset[int]:
        """Its query groups."""
        return frozenset(self.tally.groups)

    @cached_property
    def conditions(self) -> tuple[Conditions, ...]:
        """The conditions of each of its grouped filters."""
        places = range(len(self.subscribers[0].conditions))
        return tuple(
            tuple({each.group: each.conditions[place] for each in self.subscribers}.items()) for place in places
        )

    @cached_property
    def newest(self) -> dict[int, int]:
        """By query group: the newest epoch to which its rows are visible."""
        found: dict[int, int] = {}
        for each in self.subscribers:
            found[each.group] = max(found.get(each.group, 0), each.visible_from)
        return found

    def in_bucket(self, bucket: int, buckets: int) -> bool:
        """Return whether a bucket has work for this fragment."""
        return self.spread or any(each.home(buckets) == bucket for each in self.subscribers)


class _FragmentsOfQueries(Mapping[str, "Fragment"]):
    """The fragments of a plan by the queries that they answer, without a table of its own for each plan."""

    def __init__(self, homes: Mapping[str, str], fragments: Mapping[str, Fragment]) -> None:
        self._homes = homes
        self._fragments = fragments

    def __getitem__(self, query: str) -> Fragment:
        return self._fragments[self._homes[query]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


class PhysicalPlan(msgspec.Struct, frozen=True, dict=True):
    """The physical plan of an epoch.

    Parameters
    ----------
    epoch
        The epoch of the logical plan that it was lowered from.
    fragments
        Those of folded queries, then those that share panes; ordered by their oldest subscribers.
    positions
        By stream: the last table version that belongs to the previous epoch.
    """

    epoch: int
    fragments: tuple[Fragment, ...] = ()
    positions: Mapping[str, int] = {}

    def hosted(self, host: Host) -> PhysicalPlan:
        """Return the fragments that one of the two Spark queries runs."""
        return replace(self, fragments=tuple(each for each in self.fragments if each.host is host))

    def without(self, queries: frozenset[str]) -> PhysicalPlan:
        """Return the plan without the fragments that answer only these queries, given by their identities."""
        if not queries:
            return self
        left = (each for each in self.fragments if any(one.identity not in queries for one in each.subscribers))
        return replace(self, fragments=tuple(left))

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams that are read."""
        return frozenset(self.readers)

    @cached_property
    def relations(self) -> frozenset[str]:
        """Identities of the relations that are read."""
        return frozenset(self.relation_readers)

    @cached_property
    def functions(self) -> frozenset[UserFunction]:
        """The functions of users that are called."""
        return frozenset[UserFunction]().union(*(each.functions for each in self.fragments))

    @cached_property
    def with_history(self) -> tuple[tuple[Subscriber, Mapping[str, int]], ...]:
        """The queries with history, oldest first, and by stream the instant from which they read it."""
        found = [(each, part.beginnings) for part in self.fragments if part.beginnings for each in part.subscribers]
        return tuple(sorted(found, key=lambda each: each[0].visible_from))

    @cached_property
    def readers(self) -> Counter[str]:
        """By stream: how many fragments read it."""
        return Counter(stream for fragment in self.fragments for stream in fragment.streams)

    @cached_property
    def relation_readers(self) -> Counter[str]:
        """By identity of a relation: how many fragments read it."""
        return Counter(identity for fragment in self.fragments for identity in fragment.relations)

    @cached_property
    def by_identity(self) -> LayeredMap[str, Fragment]:
        """Its fragments."""
        return LayeredMap({each.identity: each for each in self.fragments})

    @cached_property
    def homes(self) -> LayeredMap[str, str]:
        """The identity of the fragment that answers each query, by the query's identity."""
        return LayeredMap(
            {each.identity: fragment.identity for fragment in self.fragments for each in fragment.subscribers}
        )

    @property
    def by_query(self) -> Mapping[str, Fragment]:
        """The fragment that answers each query, by the query's identity."""
        return _FragmentsOfQueries(self.homes, self.by_identity)

    def alone(self, query: str) -> Fragment:
        """Return the fragment that answers a query, by the query's identity, as if it had no other subscriber."""
        return replace(self.by_query[query], subscribers=(self.subscribers[query],))

    @cached_property
    def subscribers(self) -> LayeredMap[str, Subscriber]:
        """By identity of the query."""
        return LayeredMap({each.identity: each for fragment in self.fragments for each in fragment.subscribers})

    @cached_property
    def oldest_first(self) -> tuple[Subscriber, ...]:
        """All subscribers in the order in which they began."""
        return tuple(sorted(self.subscribers.values(), key=lambda each: each.visible_from))


NOTHING = PhysicalPlan(0)
"""The plan of an engine that has never had a query."""


@dataclass(frozen=True, slots=True)
class Shed:
    """What a fragment has dropped since its process began: tuples, and how accurate its rows were on average."""

    tuples: int
    accuracy: float | None = None

    @property
    def words(self) -> str:
        """The same in words."""
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.2f} on average"
        return f"{self.tuples:,} tuples dropped by KEEP{accuracy}"


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a fragment: tuples in, rows out (shared rows counted once), processor time, what was dropped."""

    tuples: int
    answers: int
    seconds: float
    shed: Shed | None = None

    @property
    def words(self) -> str:
        """The same in words."""
        shed = f", {self.shed.words}" if self.shed else ""
        return f"{self.tuples:,} tuples in, {self.answers:,} rows out, {self.seconds:,.2f} s of work{shed}"


ANSWERS_RETURNED = 50_000
"""So many answers a task returns to the driver: one file of all tasks is quicker then, and leaves fewer small files."""
ANSWERS_OF_A_BUCKET = 5_000
"""So many answers a bucket returns to the driver by way of Java; more it hands over in a file
(docs/decisions/0077-buckets-hand-over-files.md)."""


def may_be_written_by_tasks(fragment: Fragment) -> bool:
    """Return whether the answers of a fragment may be written by the tasks that make them.

    Parameters
    ----------
    fragment
        A fragment of the physical plan; the tasks of a Spark query write nothing unless this is so of all that it runs.
    """
    return fragment.host is Host.STATELESS


def answers_words(fragment: Fragment) -> str:
    """Return in words which part of Spark writes the answers of a fragment, for EXPLAIN.

    Parameters
    ----------
    fragment
        A fragment of the physical plan; of a query that is only explained, one of its own.
    """
    if may_be_written_by_tasks(fragment):
        return f"answers: written by the driver; by a task itself when it has more than {ANSWERS_RETURNED:,} of them"
    return "answers: written by the driver"


def unbegun_streams(fragments: Iterable[Fragment]) -> frozenset[str]:
    """Return the streams with whose beginning rows of relations begin to flow."""
    return frozenset().union(*(each.begins_with for each in fragments))


def beginning_us(first_us: int | None, commits: Iterable[tuple[int | None, int | None]]) -> int | None:
    """Return where a stream begins: at its earliest tuple, or at its first watermark if that comes before any tuple.

    Parameters
    ----------
    first_us
        Its earliest stamp before these commits; None if there was no tuple.
    commits
        The earliest stamp of each, and the stream's watermark behind it; None for those that there are not.

    Returns
    -------
    int or None
        The instant; None if it does not begin with these commits. For a stream that has begun already it may be any.
    """
    for stamped_us, watermark_us in commits:
        if stamped_us is not None:
            first_us = stamped_us if first_us is None else min(first_us, stamped_us)
        if watermark_us is None:
            continue
        if first_us is None or first_us <= watermark_us:
            return watermark_us if first_us is None else first_us
    return None
