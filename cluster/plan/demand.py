"""A query's demands on sensors, derived from its plan; COMPLETENESS() and the samples that are counted for it.

**COMPLETENESS(): the samples that are counted for a query, and where a query can use it.**

The share of samples seen is known where the samples that are due are known: for the sensors that a query
reads, at its sample period. So it is an aggregate of windows directly over one stream, grouped by fixed properties of
sensors. Their proxies count, pane by pane (proxy/counting/sample_account.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.language.quantities import written
from cluster.operators import Aggregate, Node, Source
from cluster.operators.columns import PASSING, STAMP, Scalar
from cluster.operators.node import Conditions, Need
from cluster.operators.operation import readable
from cluster.operators.scalar_expressions import columns_of, columns_of_all, conjunction_of
from cluster.operators.walks import nodes_of
from cluster.plan.pane_query import PaneQuery, pane_query_of, without_acquisition_hints
from cluster.plan.push_down import event_fingerprint, fixed_columns, pushed_of, split_predicate
from cluster.planning_budget import spend
from protocols.wire.demands import CompletenessDemand, EventDemand, PaneDemand, QueryDemand
from protocols.wire.frames import LONGEST_PERIOD_US
from protocols.wire.programs import DeadBand, Measure, Threshold


def check_completeness(node: Node) -> None:
    """Raise an error if a plan uses completeness where it is not known.

    Raises
    ------
    PlanError
        Gives the reason, and a remedy.
    """
    if not _asks(node):
        return
    windowed = pane_query_of(node)
    if windowed is None or windowed.source.lookups:
        raise PlanError(
            "COMPLETENESS() is known only of a windowed aggregate over one stream that is the whole query",
            hint="give the stream a window with a slide, WINDOW(RANGE 5 MINUTES SLIDE 5 MINUTES), and ask for "
            "COMPLETENESS() in a query of its own, without joins and subqueries",
        )
    if windowed.own_pane_us > LONGEST_PERIOD_US:
        raise PlanError(
            f"COMPLETENESS() is counted in panes of at most {written(LONGEST_PERIOD_US)}, "
            f"and those of this window have {written(windowed.own_pane_us)}",
            hint="let the window slide by less",
        )
    fixed = fixed_columns(windowed.source)
    for key in windowed.keys:
        if not columns_of(key) <= fixed:
            raise PlanError(
                f"COMPLETENESS() of groups by {readable(key)} cannot be known: that is sampled, so the group of "
                "a missing sample is not known",
                hint=f"group by fixed fields: {', '.join(sorted(fixed)) or 'this stream has none'}",
            )


def _asks(node: Node) -> bool:
    calls = (call for each in nodes_of(node) if isinstance(each, Aggregate) for call in each.calls)
    return any(call.function == "completeness" for call in calls)


def fields_read(query: PaneQuery) -> frozenset[str]:
    """Return the columns of the stream that a windowed aggregate reads from single samples."""
    arguments = {name for call in query.calls for scalar in call.reads for name in columns_of(scalar)}
    conditions = [each.predicate for each in query.source.lookups]
    read = arguments.union(*(columns_of(each) for each in (query.predicate, *conditions, *query.keys) if each))
    return frozenset(read & {column.name for column in query.source.sampled})


@lru_cache(maxsize=65_536)
def count_fingerprint(query: PaneQuery) -> str | None:
    """Return the fingerprint of the counts of missing samples that a query uses; None if it uses none.

    It is equal for all queries that get the same samples in the same way and count in equal panes, in every cluster
    and for ever.
    """
    if not query.counts_samples:
        return None
    pushed, source = pushed_of(query), query.source
    if pushed is None:
        bands = split_predicate(source, query.predicate).bands
        samples: object = (source.detector, source.sample_period_us, bands, sorted(fields_read(query)))
    else:
        samples = pushed.fingerprint
    what = msgspec.json.encode((source.stream, samples, query.tolerances, query.slowest_us, query.own_pane_us))
    return f"c{hashlib.blake2b(what, digest_size=8).hexdigest()}"


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
