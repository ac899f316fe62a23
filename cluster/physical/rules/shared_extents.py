"""Extents: queries that coalesce the samples of one window and condition keep them once.

    lane by sensor, eagerly: q1, q2      one operator, whatever their conditions on rows and their columns
    lane by sensor, lazily: q3           one operator with the whole samples of the window, which q3 and q4 coalesce
    speed by sensor, lazily: q4          each in its way

What is left of each query, filters and projections, is made of its extent's rows. Queries with other operators above
are folded as all others (:mod:`cluster.physical.rules.folded_queries`), and keep their extents for themselves.

Windows by count are behind the exchange, and shared with the extents above them, if these are eager. What a window has
that moves with every sample does not depend on when a query began, but for samples from before. Where it slides by
several, it depends on which sample was the first: only queries that began together share samples, in one fragment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from cluster.expressions import nodes as expressions
from cluster.operators import Extent, Filter, Node, PartitionedWindow, Project, Source, TimeWindow
from cluster.operators.columns import (
    EXTENT,
    QUERY_GROUP,
    RUN_BEGIN,
    RUN_END,
    STAMP,
    SUPERSEDED_UNTIL,
    VISIBLE_FROM,
    Column,
    Output,
    Scalar,
    Schema,
    identity_of,
)
from cluster.operators.extent import Coalescing
from cluster.operators.scalar_expressions import column_scalar, plain_column
from cluster.physical.nodes import Fragment, Host, OperatorNode, Subscriber
from cluster.physical.operations import CountWindow, Exchange, Reorder, SharedCountWindow, SharedExtents, Sink
from cluster.physical.operations import Extent as ExtentOperation
from cluster.physical.operations import Filter as FilterOperation
from cluster.physical.rules.folding import Fingerprint, Finish, finish_of, group_of, marked, template_of
from cluster.physical.rules.pieces import MOST_LAG_US
from cluster.physical.rules.pipelines import pipeline
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.epoch import PlannedQuery
from cluster.plan.extents import Counted, common_part, counted_extent_of, extent_of
from cluster.plan.names_read import functions_of
from cluster.plan.stored_plans import encoded
from protocols.wire.streams import FieldType

_MARKS = (QUERY_GROUP, VISIBLE_FROM)


@dataclass(frozen=True, slots=True)
class CoalescingQuery:
    """A query with one extent over a window of a stream, and only filters and projections above.

    Parameters
    ----------
    extent
        Its extent over the template of what is below, with the columns of all shared extents for its intervals.
    predicate
        The condition on its samples; None for all.
    top
        The rest of the plan, above a source with the rows of the extent.
    """

    extent: Extent
    predicate: Scalar | None
    top: Node

    @classmethod
    def of(cls, plan: Node) -> CoalescingQuery | None:
        """Return the pieces of a plan; None if it is another one."""
        whole = extent_of(plan) or counted_extent_of(plan)
        if whole is None or functions_of(plan):
            return None
        own, lifted = (whole, None) if whole.coalescing.counted is not True else common_part(whole) or (None, None)
        if own is None:
            return None
        above: list[Filter | Project] = []
        node = plan
        while isinstance(node, Filter | Project):
            above.append(node)
            node = node.input
        template, conditions, _ = template_of(own)
        assert isinstance(template, Extent)  # noqa: S101 - only what is below has changed
        bounds = dict(zip(own.coalescing.bounds, (RUN_BEGIN.name, RUN_END.name), strict=True))
        outputs = tuple(
            Output(each.name, column_scalar(Column(bounds.get(each.name, each.name), each.type)), each.unit)
            for each in own.schema
        )
        coalescing = replace(own.coalescing, bounds=(RUN_BEGIN.name, RUN_END.name))
        extent = _over_whole_samples(replace(template, coalescing=coalescing))
        numbered = () if _slides(extent.input) else (EXTENT,)
        top: Node = Project(Source("", (*extent.schema, *numbered)), outputs)
        if lifted is not None:
            top = Filter(top, lifted)
        for each in reversed(above):
            top = replace(each, input=top)
        return cls(extent, conditions[0], top)

    @property
    def identity(self) -> str:
        """Name of the fragment: of a lazy extent it depends on window and keys, of an eager one on all of it."""
        extent = self.extent
        if not _lazily_shared(extent):
            return f"extent-{_digest(encoded(extent))}@0"
        return f"extents-{_digest(encoded(extent.input) + identity_of(extent.keys))}@0"

    @property
    def number(self) -> int:
        """The number of the extent among those that share samples; never changes."""
        return _number(self.extent.coalescing)

    def subscriber(self, query: PlannedQuery) -> Subscriber:
        """Return the query as a subscriber.

        Its group is a digest of its condition; and of the epoch with which it began, if it shares samples with no
        query of another one.
        """
        return Subscriber(
            query.name,
            query.since_epoch,
            group_of((self.predicate, *([Fingerprint(f"since {query.since_epoch}")] if self.apart else []))),
            (self.predicate,),
            finish=self._finish,
            demands=sensor_demands(query),
            early=query.early,
            since=query.since,
            until=query.until,
            **query.node.time_bounds._asdict(),
            extent=self.extent.coalescing,
        )

    @property
    def apart(self) -> bool:
        """Whether it shares samples only with queries that began with the same epoch, and the fragment with all."""
        return _slides(self.extent.input)

    @property
    def _finish(self) -> Finish:
        if self.apart:
            return finish_of(self.top, (QUERY_GROUP,))
        own = Scalar(
            expressions.Binary(
                "=", expressions.Column(EXTENT.name), expressions.Literal(FieldType.INTEGER, str(self.number))
            ),
            FieldType.BOOLEAN,
        )
        return (FilterOperation(own), *finish_of(self.top, (*_MARKS, SUPERSEDED_UNTIL)))

    def fragment(self, subscribers: Sequence[Subscriber]) -> Fragment:
        """Return the fragment that answers some queries with such extents."""
        nodes = _nodes(self.identity, self.extent, not _lazily_shared(self.extent))
        return Fragment(self.identity, Host.STATEFUL, nodes, tuple(subscribers), shares_rows=True)

    def changed(self, _: SubscriberTally, subscribers: tuple[Subscriber, ...]) -> Fragment:
        """Return the fragment with other subscribers, whatever they need together."""
        return self.fragment(subscribers)


def extents_of(subscribers: Iterable[Subscriber]) -> dict[int, Coalescing]:
    """Return how subscribers coalesce the samples that they share, by number."""
    return {_number(each.extent): each.extent for each in subscribers if each.extent is not None}


@lru_cache(maxsize=4096)
def _number(coalescing: Coalescing) -> int:
    return int(_digest(identity_of(replace(coalescing, kept="eager"))), 16) >> 1


def _over_whole_samples(extent: Extent) -> Extent:
    """Return a lazy extent over all columns of the stream, if its own are some of these as they are."""
    node = extent.input
    if extent.coalescing.kept == "eager":
        return extent
    if isinstance(node, Project) and all(plain_column(each.scalar) == each.name for each in node.outputs):
        node = node.input
    if not (isinstance(node, TimeWindow) and isinstance(node.input, Source)):
        return extent
    source = node.input
    own = tuple(sorted((each for each in source.columns if each != STAMP), key=lambda each: each.name))
    return replace(extent, input=replace(node, input=replace(source, columns=(*own, STAMP))))


def _lazily_shared(extent: Extent) -> bool:
    """Return whether an extent is lazy, and over whole samples."""
    whole = isinstance(extent.input, TimeWindow) and isinstance(extent.input.input, Source)
    return extent.coalescing.kept == "lazy" and whole


def _digest(what: bytes) -> str:
    return hashlib.blake2b(what, digest_size=8).hexdigest()


def _slides(node: Node) -> bool:
    """Return whether a node is a window by count that moves by several samples."""
    return isinstance(node, Counted) and node.slide_rows > 1


@lru_cache(maxsize=4096)
def _nodes(identity: str, extent: Extent, eager: bool) -> tuple[OperatorNode, ...]:  # noqa: FBT001 - of a cache
    name, marks = f"{identity}/0", (QUERY_GROUP,) if _slides(extent.input) else _MARKS
    below, keys = marked(extent.input, marks), (*extent.keys, QUERY_GROUP.name)
    window = below if isinstance(below, PartitionedWindow) else None
    stateless = below if window is None else window.input
    columns = stateless.schema
    upstream = pipeline(name, stateless, None)
    by = tuple(key for key in (keys if window is None else window.keys) if key != QUERY_GROUP.name)
    spread = Exchange("keys", by, columns) if by else Exchange("group", (QUERY_GROUP.name,), columns)
    found = [*upstream, OperatorNode(name, spread, (upstream[-1].id,))]
    for operation in (Reorder(columns), *_behind(window, columns), _extents(extent, columns, keys, eager=eager)):
        found.append(OperatorNode(f"{name} {operation.state_name()}", operation, (found[-1].id,)))
    return (*found, OperatorNode(f"{identity} {Sink.state_name()}", Sink(), (found[-1].id,)))


def _behind(window: PartitionedWindow | None, columns: Schema) -> tuple[CountWindow | SharedCountWindow, ...]:
    """Return the window by count behind the exchange, if there is one."""
    if window is None:
        return ()
    if _slides(window):
        return (CountWindow(columns, window.rows, window.slide_rows, window.keys, MOST_LAG_US),)
    return (SharedCountWindow(columns, window.rows, window.keys, MOST_LAG_US),)


def _extents(extent: Extent, columns: Schema, keys: tuple[str, ...], *, eager: bool) -> SharedExtents | ExtentOperation:
    if _slides(extent.input):
        return ExtentOperation(columns, keys, extent.coalescing, None)
    of_count = isinstance(extent.input, Counted)
    return SharedExtents((*columns, SUPERSEDED_UNTIL) if of_count else columns, keys, eager)
