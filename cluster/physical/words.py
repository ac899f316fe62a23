"""Nodes of a physical plan in words: one line each."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cluster.operators.aggregate import aggregate_words
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Output, Scalar
from cluster.operators.count_window import count_window_words
from cluster.operators.extent import Coalescing, extent_words
from cluster.operators.held import held_words
from cluster.operators.kept_extent import kept_words
from cluster.operators.lookup import lookup_words
from cluster.operators.pattern_match import pattern_words
from cluster.operators.project import output_words
from cluster.operators.ranked import ranked_words
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of
from cluster.operators.sequence import sequence_words
from cluster.operators.session_window import session_words
from cluster.operators.source import since_words
from cluster.operators.stamp_join import stamp_join_words
from cluster.operators.time_window import grid_words, window_words
from cluster.operators.until_next import until_next_words
from cluster.operators.window_bounds import bounds_words
from cluster.operators.words import in_one_line, listed, readable
from cluster.operators.zip import zip_words
from cluster.physical import operations as kinds
from cluster.physical.mark_columns import COVERED_BY, MARKS, RIGHT
from cluster.physical.nodes import Fragment, OperatorNode
from protocols.text.durations import format_duration

NAMED = 5
"""The most queries that are named; further ones are counted."""

ALL_ROWS = "all rows"
"""A grouped filter without conditions."""

_MADE = frozenset(
    {*(mark.name for mark in MARKS), RIGHT + QUERY_GROUP.name, RIGHT + VISIBLE_FROM.name, COVERED_BY.name}
)
"""Columns that Fjord adds."""


def describe(node: OperatorNode, fragment: Fragment) -> str:
    """Return one line about a node of a fragment."""
    return in_one_line(_described(node, fragment))


def _described(node: OperatorNode, fragment: Fragment) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per kind
    match node.operation:
        case kinds.Scan() as scan:
            return _scan(scan)
        case kinds.ScanAggregates(stream=stream):
            return f"aggregates stored in {stream}"
        case kinds.Sample(period_us=period_us):
            return "samples at the default rate" if period_us is None else f"samples every {format_duration(period_us)}"
        case kinds.Columns(columns=columns):
            return f"columns {_names(column.name for column in columns)}"
        case kinds.GroupedFilter(place=place):
            return filter_words([condition for _, condition in fragment.conditions[place]]) or ALL_ROWS
        case kinds.PreaggregatedFilter():
            return "without samples that devices have aggregated"
        case kinds.Filter(predicate=predicate):
            return f"filter {readable(predicate)}"
        case kinds.PerQueryFilter(place=place):
            return _choices([each.choices[place] for each in fragment.subscribers])
        case kinds.Project(outputs=outputs):
            return f"project {_outputs(outputs)}"
        case kinds.TimeWindow(size_us=size_us, slide_us=slide_us):
            return window_words(size_us, slide_us)
        case kinds.GridWindow(grid=grid, slide_us=slide_us):
            return grid_words(grid, slide_us)
        case kinds.WindowBounds(grid=grid, start=start, end=end):
            return bounds_words(grid, start, end)
        case kinds.SessionWindow(session=session, keys=keys):
            return session_words(session, tuple(key for key in keys if key not in _MADE))
        case kinds.UntilNext(keys=keys, longest_us=longest_us, bounds=bounds, lasts=lasts):
            own = tuple(key for key in keys if key not in _MADE)
            return until_next_words(own, longest_us, whole=bounds is not None, lasts=lasts)
        case kinds.Extent(keys=keys, coalescing=how):
            return extent_words(how, tuple(key for key in keys if key not in _MADE))
        case kinds.SharedExtents(keys=keys):
            return _extents([each.extent for each in fragment.subscribers if each.extent is not None], keys)
        case kinds.CountWindow(rows=rows, slide_rows=slide_rows, keys=keys):
            return count_window_words(rows, slide_rows, tuple(key for key in keys if key not in _MADE))
        case kinds.SharedCountWindow(rows=rows, keys=keys):
            return count_window_words(rows, 1, tuple(key for key in keys if key not in _MADE))
        case kinds.Panes(width_us=width_us, family_us=family_us):
            family = "" if family_us is msgspec.UNSET else f", of the family of {format_duration(family_us)}"
            return f"panes of {format_duration(width_us)}{family}"
        case kinds.PartialAggregate(keys=keys, calls=calls):
            return f"first half of {aggregate_words(calls, _keys(keys))}"
        case kinds.DeviceAggregates(missing=missing):
            return "missing samples, by query group" if missing else "device partial aggregates, by query group"
        case kinds.Exchange() as exchange:
            return _exchange(exchange)
        case kinds.Reorder():
            return "in the order of their stamps"
        case kinds.Split():
            return "split into instants"
        case kinds.MergeAggregate(keys=columns, calls=calls) | kinds.PaneAggregate(keys=columns, calls=calls):
            return aggregate_words(calls, _keys(column.name for column in columns))
        case kinds.Union():
            return "union"
        case kinds.Distinct():
            return "distinct"
        case kinds.Difference():
            return "difference"
        case kinds.Intersection():
            return "intersection"
        case kinds.Join(predicate=predicate):
            return f"join{_condition(predicate)}" if _condition(predicate) else "product"
        case kinds.SemiJoin(predicate=predicate, anti=anti):
            return f"keep if {'none' if anti else 'any'}{_condition(predicate)}"
        case kinds.Zip(kind=kind, low_us=low_us, high_us=high_us, keys=pairs):
            return zip_words(kind, low_us, high_us, tuple(pair for pair in pairs if pair[0] not in _MADE))
        case kinds.PatternMatch(pattern=pattern, keys=keys):
            return pattern_words(pattern, tuple(key for key in keys if key not in _MADE))
        case kinds.StampJoin() as join:
            shown = tuple(pair for pair in join.keys if pair[0] not in _MADE)
            bounds_us = (join.low_us, join.high_us)
            return stamp_join_words(join.kind, bounds_us, shown, join.predicate, latest=join.latest)
        case kinds.Held(table=table, waits_us=waits_us):
            return held_words(table.table, filled=waits_us > 0)
        case kinds.Sequence(keys=keys, calls=calls):
            return sequence_words(calls, tuple(key for key in keys if key not in _MADE))
        case kinds.KeptExtent(kept=kept):
            return kept_words(kept)
        case kinds.Lookup(table=table):
            return lookup_words(table)
        case kinds.Ranked(function=function, order=order, above=above, most=most, name=name) as ranked:
            return ranked_words(function, _keys(ranked.keys), order, (above, most), name)
        case kinds.Granularity(granule_us=granule_us):
            return f"granularity of {format_duration(granule_us)}"
        case kinds.Changes(insertions=insertions):
            return "insertions" if insertions else "deletions"
        case kinds.Sink():
            return "answers"


def scan_words(fragment: Fragment, scan: OperatorNode) -> str:
    """Return one line about a scan, and the samples that the pipeline above takes."""
    above = scan.id
    for node in fragment.nodes:
        if above in node.inputs:
            if isinstance(node.operation, kinds.Sample):
                period_us = node.operation.period_us
                sampled = "" if period_us is None else f", sampled every {format_duration(period_us)}"
                return f"{describe(scan, fragment)}{sampled}"
            above = node.id
    return describe(scan, fragment)


def filter_words(conditions: list[Scalar | None]) -> str | None:
    """Return a grouped filter in words; None if it has no conditions."""
    if set(conditions) == {None}:
        return None
    everything = ", and queries without a condition" if None in conditions else ""
    some = [condition for condition in conditions if condition is not None]
    which = readable(some[0]) if len(some) == 1 else f"{len(set(some)):,} conditions"
    return f"grouped filter: {which}{everything}"


def pane_window_words(size_us: int, slide_us: int) -> str:
    """Return in words a window whose answers are made of shared panes."""
    return f"window of {format_duration(size_us)}, moving every {format_duration(slide_us)}"


def named(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def queries_counted(count: int) -> str:
    """Return a number of queries in words."""
    return "1 query" if count == 1 else f"{count:,} queries"


def _scan(scan: kinds.Scan) -> str:
    past = "" if scan.history is None else f", since {since_words(scan.history)}"
    if scan.detector is None:
        return f"stream {scan.stream}{past}"
    field, above, below = msgspec.structs.astuple(scan.detector)
    return f"events of {scan.stream} where {field} rises to {above:g} and falls to {below:g}{past}"


def _exchange(exchange: kinds.Exchange) -> str:
    match exchange.spread:
        case "keys":
            return f"exchange by {_names(_keys(exchange.by))}"
        case "lookup":
            return f"exchange by {_names(exchange.by)}, as the relation is sliced"
        case "group":
            return "exchange by query group"


def _extents(extents: list[Coalescing], keys: tuple[str, ...]) -> str:
    by, different = tuple(key for key in keys if key not in _MADE), dict.fromkeys(extents)
    if len(different) == 1:
        return extent_words(extents[0], by)
    return f"coalesce in {len(different):,} ways{f' by {listed(by)}' if by else ''}, lazily"


def _choices(choices: list[Scalar]) -> str:
    different = set(choices)
    return f"filter {readable(choices[0])}" if len(different) == 1 else f"filter by {len(different):,} own conditions"


def _outputs(outputs: tuple[Output, ...]) -> str:
    kept = (output for output in outputs if output.name not in _MADE)
    return listed(
        tuple(readable(each.scalar) if each.name.startswith("fjord_key(") else output_words(each) for each in kept)
    )


def _condition(predicate: Scalar | None) -> str:
    own = conjunction_of([part for part in conjuncts_of(predicate) if not columns_of(part) <= _MADE])
    return "" if own is None else f" {readable(own)}"


def _keys(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(_key(name) for name in names if name not in _MADE)


def _key(name: str) -> str:
    if not name.startswith("fjord_key("):
        return name
    return name.removeprefix("fjord_key(").removesuffix(")").replace('"', "")


def _names(names: Iterable[str]) -> str:
    return ", ".join(name for name in names if name not in _MADE) or "nothing"
