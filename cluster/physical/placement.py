"""What EXPLAIN says of a plan: where its parts run and why, how relations are looked up, what it would share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec import UNSET

from cluster.errors import PlanError
from cluster.expressions.conditions import equal_sides
from cluster.expressions.nodes import Column
from cluster.operators import Node, Source, TableLookup
from cluster.operators.lookup import lookup_words
from cluster.operators.operation import readable
from cluster.operators.scalar_expressions import columns_of, conjuncts_of, plain_column
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower_alone, with_query
from cluster.physical.nodes import Fragment, Host, OperatorNode, PhysicalPlan, answers_words
from cluster.physical.operations import (
    Columns,
    Exchange,
    Held,
    Lookup,
    Panes,
    PartialAggregate,
    PreaggregatedFilter,
    Reorder,
    Sample,
    Scan,
)
from cluster.physical.text import ALL_ROWS, describe, named, queries_counted, scan_words
from cluster.plan.demand import check_completeness
from cluster.plan.epoch import PlannedQuery
from cluster.plan.expressions import joins_by_equality
from cluster.plan.lookups import partners_of
from cluster.plan.names_read import RelationSize, slices_of
from cluster.plan.pane_query import PaneQuery, pane_query_of
from cluster.plan.push_down import MEASURES, fixed_columns, pushed_of, split_predicate
from protocols.acquisition.words import band_words
from protocols.text.quantities import format_byte_size, format_duration
from protocols.wire.demands import PropertyBand, QueryDemand


def placement_of(node: Node) -> str:
    """Return in words where the parts of a plan run.

    Parameters
    ----------
    node
        The rewritten plan of a query.
    """
    lines = []
    try:
        check_completeness(node)
    except PlanError as error:
        lines.append(f"it would be refused: {error}")
    try:
        fragment = lower_alone(node)
    except PlanError as error:
        return "\n".join(f"  {line}" for line in [*lines, f"it would be refused: {error}"])
    (query,) = fragment.subscribers
    for stream, demands in sorted(query.demands.streams):
        lines += [f"on the motes of {stream}: {_demanded(demand)}" for demand in demands]
    if query.demands.refused:
        lines.append(f"it would be refused: {query.demands.refused}")
    notes = {each.unchanged for each in nodes_of(node) if isinstance(each, Source) and each.unchanged is not UNSET}
    reasons = sorted(each.why_not for each in notes if each.why_not)
    lines += [f"  not only changes: {reason}" for reason in reasons]
    windowed = pane_query_of(node)
    if windowed is not None:
        lines += [f"  {reason}" for reason in _why(windowed)]
    for counted in (each.completeness for _, demands in query.demands.streams for each in demands):
        if counted is not None:
            lines.append(
                "at the proxy: how many samples were due, and how many of them are missing, of each mote in panes of "
                f"{format_duration(counted.pane_us)}"
            )
    lines.append(
        "at the proxy: the cheapest sampling program for this and all other queries together; samples that motes leave "
        "out because nothing has changed, and events they cannot detect, are filled in"
    )
    lines += _in_spark(fragment)
    return "\n".join(f"  {line}" for line in lines)


def _in_spark(fragment: Fragment) -> Iterator[str]:
    """Yield what runs next to the scans, and what behind the shuffle."""
    if fragment.host is Host.STATELESS:
        yield f"in Spark, next to the scan: {_pipeline(fragment, fragment.sink)}"
        yield "  no state is kept: tuples are read in the order of their stamps, as far as the watermark has come"
        yield answers_words(fragment)
        return
    for exchange in fragment.exchanges:
        yield f"upstream in Spark, next to the scan: {_pipeline(fragment, exchange)}"
    if fragment.shares_panes:
        yield "downstream in Spark, keyed: windows are merged from panes, those of motes and those made here alike"
    else:
        steps = (each for each in fragment.behind if not isinstance(each.operation, PartialAggregate))
        yield f"downstream in Spark, keyed: {'; '.join(describe(each, fragment) for each in steps)}"
    yield answers_words(fragment)


def _demanded(demand: QueryDemand) -> str:
    every = "at the default period" if demand.period_us is None else f"every {format_duration(demand.period_us)}"
    parts = []
    if demand.events is not None:
        threshold = demand.events.threshold
        what = "the number of events" if demand.panes is not None else "each event"
        parts.append(f"{what} of {threshold.field} rising to {threshold.above:g} and falling to {threshold.below:g}")
    elif demand.panes is not None:
        measures = ", ".join(each.value.replace("_", " ") for each in demand.panes.measures)
        parts.append(f"{measures} of {', '.join(demand.fields)}" if measures else "the number of samples")
    else:
        parts.append(f"samples of {', '.join(demand.fields) or 'whatever there is'}")
    if demand.panes is not None:
        parts.append(f"in panes of {format_duration(demand.panes.pane_us)}")
    parts.append(f"sampled {every}")
    by_field: dict[str, list[str]] = {}
    for band in demand.bands:
        by_field.setdefault(band.field, []).append(band_words(band))
    parts += [f"only {name} {' or '.join(words)}" for name, words in by_field.items()]
    parts += [f"{each.field} may be wrong by {each.width:g}" for each in demand.tolerances]
    if demand.sensors:
        parts.append(f"only of motes with {', '.join(dict.fromkeys(map(_property, demand.sensors)))}")
    if demand.silence_us:
        parts.append(
            f"only changes: one that equals the one before may stay away for {format_duration(demand.silence_us)}"
        )
    if demand.slowest_us:
        parts.append(f"down to every {format_duration(demand.slowest_us)} if batteries are to last")
    if demand.lifetime_us:
        parts.append(f"batteries should last {format_duration(demand.lifetime_us)}")
    return ", ".join(parts)


def _property(band: PropertyBand) -> str:
    if band.low == band.high and band.low is not None:
        return f"{band.field} = {band.low}"
    low = "" if band.low is None else f"{band.low} {'<' if band.low_open else '<='} "
    high = "" if band.high is None else f" {'<' if band.high_open else '<='} {band.high}"
    return f"{low}{band.field}{high}"


def _why(windowed: PaneQuery) -> Iterator[str]:
    """Yield why motes can aggregate, or what prevents it."""
    if pushed_of(windowed) is not None:
        yield (
            "because it groups by fixed fields only, motes know its aggregates, and its condition is about intervals "
            "of values: a mote sends panes if no other query needs its samples, else Spark aggregates these"
        )
        return
    if windowed.source.lookups:
        yield "motes cannot aggregate: each sample is looked up in a relation, which they do not have"
        return
    fixed = fixed_columns(windowed.source)
    for key in windowed.keys:
        if not columns_of(key) <= fixed:
            yield f"motes cannot aggregate: it groups by {readable(key)}, which is sampled"
    for call in windowed.calls:
        if call.function == "completeness":
            continue
        simple = call.function in MEASURES and not call.distinct
        plain = call.argument is None or plain_column(call.argument) is not None
        if not simple or not plain:
            what = "distinct values" if call.distinct else f"{call.function.upper()}"
            yield f"motes cannot aggregate: they do not support {what}{'' if plain else ' of an expression'}"
    for part in conjuncts_of(windowed.predicate):
        if not columns_of(part) <= fixed and not split_predicate(windowed.source, part).exactly:
            yield f"motes cannot aggregate: {readable(part)} is not an interval of one field's values"


def _pipeline(fragment: Fragment, end: OperatorNode) -> str:
    """Return a pipeline in words, the scan first; it may end with the first half of an aggregate."""
    words: list[str] = []
    for node in fragment.pipeline(end):
        if isinstance(node.operation, Scan):
            words.append(scan_words(fragment, node))
        elif isinstance(node.operation, PartialAggregate):
            words.append("first half of the aggregate, one partial row per key and pane")
        elif not isinstance(node.operation, Columns | Sample | Panes | PreaggregatedFilter):
            words.append(describe(node, fragment).removeprefix("grouped "))
    return "; ".join(word for word in words if word != ALL_ROWS)


def emission_words(node: Node, *, early: bool) -> str | None:
    """Return in words when the rows of a query are published, given its rewritten plan; None if EMIT changes nothing.

    Parameters
    ----------
    node
        The plan.
    early
        Whether it is published early.
    """
    try:
        if not lower_alone(node).late_nodes:
            return None
    except PlanError:  # it cannot be run, and is explained nevertheless
        return None
    if early:
        return "each row as soon as its beginning is certain (EMIT EARLY): one whose end is not known is closed later"
    return "each row once its end is known (EMIT FINAL)"


def sharing_of(node: Node, running: PhysicalPlan) -> str:
    """Return in words what a plan would share.

    Parameters
    ----------
    node
        The rewritten plan of the query.
    running
        The running plan.
    """
    try:
        after = with_query(running, PlannedQuery("", running.epoch + 1, node))
    except PlanError:
        return "  nothing: it would be refused"
    own = after.by_query[f"@{after.epoch}"]
    lines = []
    others = [each.query for each in own.subscribers[:-1]]
    if others:
        with_them = f"with {queries_counted(len(others))}: {named(others)}"
        lines.append(f"{_what(own)} {with_them}")
    beside = [each for each in running.fragments if each.host is own.host]
    for stream in sorted(own.streams):
        subscribers = (each for fragment in beside if stream in fragment.streams for each in fragment.subscribers)
        readers = [each.query for each in sorted(subscribers, key=lambda each: each.visible_from)]
        if readers:
            lines.append(f"the scan of {stream} with {queries_counted(len(readers))}: {named(readers)}")
    return "\n".join(f"  {line}" for line in lines) if lines else "  nothing: no running query has anything in common"


def _what(fragment: Fragment) -> str:
    widths = [node.operation.width_us for node in fragment.nodes if isinstance(node.operation, Panes)]
    return f"panes of {format_duration(widths[0])}" if widths else "all but its conditions"


def lookup_choices(node: Node, sizes: Mapping[str, RelationSize], *, memory_bytes: int, buckets: int) -> str:
    """Return a line for each lookup of a plan and how it is made; empty if there is none.

    Parameters
    ----------
    node
        The rewritten plan.
    sizes
        By identity; relations without a version are left out.
    memory_bytes
        The memory of a worker that one table may take.
    buckets
        The number of buckets downstream.
    """
    try:
        fragment = lower_alone(node)
    except PlanError:
        return ""  # another section of EXPLAIN has the reason
    lines: list[str] = []
    for lookup, spread in _lookups(fragment).items():
        lines.append(f"  {lookup_words(lookup)}")
        found = [(each.name, sizes.get(each.identity)) for each in lookup.table.relations]
        lines += [f"    {name}: {_size(size)}" for name, size in found]
        partners = partners_of(lookup, sizes)
        if lookup.kind in ("inner", "left") and math.isfinite(partners):
            lines.append(f"    about {_rows(round(partners))} for a tuple that finds any")
        total = sum(size.bytes for _, size in found if size is not None)
        lines.append(f"    {_choice(lookup, total, memory_bytes, buckets, spread=spread)}")
    return "\n".join(lines)


def _lookups(fragment: Fragment) -> dict[TableLookup, bool]:
    """Return the lookups, and whether Spark partitions the tuples by their keys."""
    spread = {
        node.id
        for node in fragment.exchanges
        if isinstance(node.operation, Exchange) and node.operation.spread == "lookup"
    }
    found: dict[TableLookup, bool] = {}
    for node in fragment.nodes:
        if isinstance(node.operation, Reorder) and spread.issuperset(node.inputs):
            spread.add(node.id)
        elif isinstance(node.operation, Lookup | Held):
            found.setdefault(node.operation.table, spread.issuperset(node.inputs))
    return found


def _size(size: RelationSize | None) -> str:
    if size is None:
        return "not read yet"
    return f"{_rows(size.rows)}, {format_byte_size(size.bytes)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _choice(lookup: TableLookup, total: int, memory_bytes: int, buckets: int, *, spread: bool) -> str:
    key = _key(lookup)
    limit = format_byte_size(memory_bytes)
    if total <= memory_bytes:
        how = (
            f"by a hash table on {key}" if key else "row by row: no equality with its columns says which rows can match"
        )
        return f"whole in the memory of each worker (up to {limit}), {how}"
    if key is None:
        return f"cannot run: larger than {limit}, and no equality with a column by which it could be partitioned"
    slices = f"in {slices_of(total, memory_bytes, buckets)} slices by {key}, as it is larger than {limit}"
    if spread:
        return f"{slices}; Spark spreads the tuples over {buckets} buckets by the same key"
    return f"{slices}; each worker loads those that its tuples need, one after the other"


def _key(lookup: TableLookup) -> str | None:
    """Return the column of the table that is looked up by equality."""
    right = frozenset(column.name for column in lookup.table.schema)
    for part in conjuncts_of(lookup.predicate):
        left = columns_of(part) - right
        if left and joins_by_equality(part, left, right):
            keys = [side.name for side in equal_sides(part.expression) or () if isinstance(side, Column)]
            key = next((name for name in keys if name in right), None)
            if key is not None:
                return key
    return None
