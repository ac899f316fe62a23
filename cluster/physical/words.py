"""Nodes of a physical plan in words: one line each."""

from __future__ import annotations

from cluster.operators.columns import Scalar
from cluster.operators.extent import Coalescing, extent_words
from cluster.operators.operation import own
from cluster.operators.words import in_one_line, listed, readable
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from protocols.text.durations import format_duration

NAMED = 5
"""The most queries that are named; further ones are counted."""

ALL_ROWS = "all rows"
"""A grouped filter without conditions."""


def describe(node: OperatorNode, fragment: Fragment) -> str:
    """Return one line about a node of a fragment."""
    return in_one_line(_described(node, fragment))


def _described(node: OperatorNode, fragment: Fragment) -> str:
    match node.operation:
        case kinds.GroupedFilter(place=place):
            return filter_words([condition for _, condition in fragment.conditions[place]]) or ALL_ROWS
        case kinds.PerQueryFilter(place=place):
            return _choices([each.choices[place] for each in fragment.subscribers])
        case kinds.SharedExtents(keys=keys):
            return _extents([each.extent for each in fragment.subscribers if each.extent is not None], keys)
        case operation:
            return operation.describe()


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


def _extents(extents: list[Coalescing], keys: tuple[str, ...]) -> str:
    by, different = own(keys), dict.fromkeys(extents)
    if len(different) == 1:
        return extent_words(extents[0], by)
    return f"coalesce in {len(different):,} ways{f' by {listed(by)}' if by else ''}, lazily"


def _choices(choices: list[Scalar]) -> str:
    different = set(choices)
    return f"filter {readable(choices[0])}" if len(different) == 1 else f"filter by {len(different):,} own conditions"
