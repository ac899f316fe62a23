"""A query's demands on sensors: fields, period, bands, panes and events per stream, derived from its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import Node, Source
from cluster.operators.columns import PASSING, STAMP, Scalar
from cluster.operators.node import Conditions, Need
from cluster.operators.scalar_expressions import columns_of, columns_of_all, conjunction_of
from cluster.plan.completeness import count_fingerprint, fields_read
from cluster.plan.pane_query import PaneQuery, pane_query_of, without_acquisition_hints
from cluster.plan.push_down import event_fingerprint, pushed_of, split_predicate
from cluster.planning_budget import spend
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
    for source, needed, conditions in _needs(node, node.names, ()):
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
        silence_us=0 if source.unchanged is UNSET else source.unchanged.silence_us,
    )


def _stored(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name not in (STAMP.name, PASSING.name)))


_SourceNeed = tuple[Source, frozenset[str], Conditions]


def _needs(node: Node, wanted: frozenset[str], conditions: Conditions) -> Iterator[_SourceNeed]:
    """Yield each source below `node` with the needed part of it, if `wanted` are needed of the node's output.

    This is its columns, and the conditions directly above it: this occurrence does not need other tuples.
    """
    waiting: list[Need] = [(node, wanted, conditions)]
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
            waiting.extend(reversed(list(current.needed_below(needed, known))))


def _needed_of_source(node: Source, wanted: frozenset[str], conditions: Conditions) -> _SourceNeed:
    sampled = {column.name for column in node.sampled if column != STAMP}
    probed = columns_of_all(each.predicate for each in node.lookups if each.predicate)
    # A condition on columns of the relation does not restrict the samples.
    known = tuple(condition for condition in conditions if columns_of(condition) <= sampled)
    unknown = columns_of_all(condition for condition in conditions if condition not in known)
    return node, (wanted | probed | unknown) & sampled, known
