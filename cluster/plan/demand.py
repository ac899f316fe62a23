"""A query's demands on sensors: fields, period, bands, panes and events per stream, derived from its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Held,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    SemiJoin,
    SessionWindow,
    Source,
    StampJoin,
    TimeWindow,
    Union,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.columns import PASSING, STAMP, Scalar
from cluster.language.walks import nodes_of
from cluster.plan.completeness import count_fingerprint, fields_read
from cluster.plan.expressions import columns_of, conjunction_of, conjuncts_of, names_of, substituted
from cluster.plan.pane_query import PaneQuery, pane_query_of, without_acquisition_hints
from cluster.plan.push_down import event_fingerprint, pushed_of, split_predicate
from cluster.planning_budget import spend
from cluster.shared_nodes import remembered
from protocols.wire.demands import CompletenessDemand, EventDemand, PaneDemand, QueryDemand
from protocols.wire.programs import DeadBand, Measure, Threshold


def demands_of(query: str, node: Node) -> dict[str, tuple[QueryDemand, ...]]:
    """Return, by stream, the demands of a query.

    A windowed aggregate that sensors can compute demands its panes. Any other query demands samples: of the fields it
    reads, in the bands and of the sensors that satisfy its conditions directly above the stream. An explicit period and
    the sensor's default cannot be compared here, because only the proxy knows the default: they stay separate.
    """
    windowed = pane_query_of(node)
    if windowed is not None:
        source = next(source for source, _, _ in _needs(node, frozenset(), ()))
        return {source.stream: (_windowed_demand(query, windowed, source),)}
    found: dict[str, dict[QueryDemand, set[str]]] = {}
    for source, needed, conditions in _needs(node, names_of(node), ()):
        read = needed.union(*(columns_of(condition) for condition in conditions)) if conditions else needed
        demand = _samples_demand(query, source, conjunction_of(conditions))
        found.setdefault(source.stream, {}).setdefault(demand, set()).update(read)
    return {
        stream: tuple(replace(demand, fields=_stored(fields)) for demand, fields in demands.items())
        for stream, demands in found.items()
    }


def _windowed_demand(query: str, windowed: PaneQuery, source: Source) -> QueryDemand:
    counted = count_fingerprint(windowed)
    demand = replace(
        _samples_demand(query, source, windowed.predicate),
        output_us=windowed.slide_us,
        completeness=None if counted is None else CompletenessDemand(counted, windowed.own_pane_us),
    )
    pushed = pushed_of(windowed)
    if pushed is None:
        return replace(demand, fields=_stored(fields_read(windowed)))
    wanted = {measure for _, measures in pushed.measures for measure in measures}
    panes = PaneDemand(pushed.fingerprint, windowed.own_pane_us, tuple(each for each in Measure if each in wanted))
    # The fields of its bands need not be reported, and the sensors that report are known.
    return replace(demand, fields=tuple(name for name, _ in pushed.measures), panes=panes)


def _samples_demand(query: str, source: Source, predicate: Scalar | None) -> QueryDemand:
    pushable = split_predicate(without_acquisition_hints(source), predicate)
    events = None
    if source.detector is not None:
        threshold = Threshold(source.detector.field, source.detector.above, source.detector.below)
        events = EventDemand(event_fingerprint(source), threshold)
    return QueryDemand(
        query,
        (),
        source.sample_period_us,
        pushable.bands if events is None else (),
        pushable.sensors,
        events=events,
        tolerances=tuple(DeadBand(each.field, each.error) for each in source.tolerances),
        slowest_us=source.slowest_us,
        lifetime_us=source.lifetime_us,
    )


def _stored(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name not in (STAMP.name, PASSING.name)))


@remembered
def streams_of(node: Node) -> frozenset[str]:
    """Return the names of the streams a plan reads."""
    return frozenset(each.stream for each in nodes_of(node) if isinstance(each, Source))


Conditions = tuple[Scalar, ...]

N = TypeVar("N", bound=Node)
_Need = tuple[N, frozenset[str], Conditions]
"""A part of a plan, the needed ones of its columns, and conditions that all needed tuples meet."""


def _needs(node: Node, wanted: frozenset[str], conditions: Conditions) -> Iterator[_Need[Source]]:
    """Yield each source below `node` with the needed part of it, if `wanted` are needed of the node's output.

    This is its columns, and the conditions directly above it: this occurrence does not need other tuples.
    """
    waiting: list[_Need[Node]] = [(node, wanted, conditions)]
    seen: set[tuple[int, frozenset[str], Conditions]] = set()
    while waiting:
        current, needed, known = waiting.pop()
        # The same need, reached on another path, adds nothing.
        if (id(current), needed, known) in seen:
            continue
        seen.add((id(current), needed, known))
        spend()
        if isinstance(current, Source):
            yield _needed_of_source(current, needed, known)
        else:
            waiting.extend(reversed(list(_needed_below(current, needed, known))))


def _needed_of_source(node: Source, wanted: frozenset[str], conditions: Conditions) -> _Need[Source]:
    sampled = {column.name for column in node.sampled if column != STAMP}
    probed = _columns(each.predicate for each in node.lookups if each.predicate)
    # A condition on columns of the relation does not restrict the samples.
    known = tuple(condition for condition in conditions if columns_of(condition) <= sampled)
    unknown = _columns(condition for condition in conditions if condition not in known)
    return node, (wanted | probed | unknown) & sampled, known


def _needed_below(  # noqa: C901 - a case per kind of node
    node: Node, wanted: frozenset[str], conditions: Conditions
) -> Iterator[_Need[Node]]:
    match node:
        case Project():
            outputs = {output.name: output.scalar for output in node.outputs}
            below = [substituted(condition, outputs) for condition in conditions]
            known = tuple(condition for condition in below if condition is not None)
            scalars = [scalar for name, scalar in outputs.items() if name in wanted]
            yield node.input, _columns(scalars), known
        case Filter():
            here = (*conditions, *conjuncts_of(node.predicate))
            yield node.input, wanted | columns_of(node.predicate), here
        case TimeWindow():
            # The tuples in a window of time do not depend on each other.
            yield node.input, wanted, conditions
        case Aggregate():
            arguments = [scalar for call in node.calls if call.name in wanted for scalar in call.reads]
            yield node.input, frozenset(node.keys) | _columns(arguments), ()
        case Ranked():
            read = frozenset((*node.keys, *(each.column for each in node.order)))
            yield node.input, (wanted & names_of(node.input)) | read, ()
        case PartitionedWindow() | SessionWindow():
            yield node.input, wanted | frozenset(node.keys), ()
        case Lookup():
            needed = wanted | (columns_of(node.predicate) if node.predicate else frozenset())
            yield node.input, needed & names_of(node.input), ()
        case Held():
            # Only the time of these streams matters.
            yield node.input, frozenset(), ()
        case Join() | Zip() | StampJoin() | SemiJoin() | AntiJoin():
            # The pairs of a zipper join depend on all tuples: no condition from above holds below.
            needed = wanted if isinstance(node, Zip) else wanted | _read_of_pairs(node)
            needed = needed.union(*node.keys) if isinstance(node, Zip | StampJoin) else needed
            for side in (node.left, node.right):
                yield side, needed & names_of(side), ()
        case Union():
            places = [place for place, column in enumerate(schema_of(node)) if column.name in wanted]
            for side in (node.left, node.right):
                yield side, frozenset(schema_of(side)[place].name for place in places), ()
        case Distinct() | Difference() | Intersection() | Istream() | Dstream() | PatternMatch():
            # Equality of whole tuples, or their order: every column matters.
            for side in inputs_of(node):
                yield side, names_of(side), ()
        case _:
            for side in inputs_of(node):
                yield side, wanted, ()


def _read_of_pairs(node: Join | StampJoin | SemiJoin | AntiJoin) -> frozenset[str]:
    return columns_of(node.predicate) if node.predicate else frozenset()


def _columns(scalars: Iterable[Scalar]) -> frozenset[str]:
    return frozenset().union(*(columns_of(scalar) for scalar in scalars))
