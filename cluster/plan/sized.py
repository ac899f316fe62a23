"""The plan of a query with ranges at one choice of sizes: what runs, and what its rows show of the choice.

    cars | quality                          SELECT COUNT(*) AS cars FROM traffic
    42   | window 5h, granularity 10s       WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS) GRANULARITY(COARSEST ...)

That a size holds is part of the plan: its rows are those of this size wherever they are computed, stored and shown, and
rows of another size come from another plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cluster.expressions.nodes import Literal
from cluster.operators import Node, Project
from cluster.operators.columns import Names, Output, Scalar
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.size_ranges import BEST, SizeRange, Sizes, ranges_of, with_sizes
from cluster.operators.walks import nodes_of
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration, parse_duration_us
from protocols.wire.streams import FieldType

_QUALITY = re.compile(r"(window|granularity) \w+(, (window|granularity) \w+)*")
QUALITY = "quality"
"""The column that answers of queries with ranges have besides their own; `quality_2`, if there is one of this name."""


def sized(node: Node, sizes: Sizes = BEST) -> Node:
    """Return the plan of a query at one choice of its ranges, with the choice as a column of its rows.

    Parameters
    ----------
    node
        The query as it was translated. Without ranges it stays as it is.
    sizes
        By range, in microseconds; of those that are missing it is the best.
    """
    ranges = ranges_of(node)
    if not ranges:
        return node
    chosen = with_sizes(node, sizes)
    columns = chosen.schema
    name = Names(column.name for column in columns).unique(QUALITY)
    quality = Scalar(Literal(FieldType.TEXT, quality_words(ranges, sizes)), FieldType.TEXT)
    return Project(chosen, (*passed_on(columns), Output(name, quality)))


@remembered
def quality_of(node: Node) -> str | None:
    """Return the quality that the rows of a plan have, as it runs or before it is rewritten; None without ranges."""
    for each in nodes_of(node):
        if isinstance(each, Project):
            for output in reversed(each.outputs):
                value = output.scalar.expression
                if output.name.startswith(QUALITY) and isinstance(value, Literal) and _QUALITY.fullmatch(value.text):
                    return value.text
    return None


def sizes_in(quality: str, ranges: Sequence[SizeRange]) -> Sizes | None:
    """Return the sizes that a quality names; None if it is not one of these ranges."""
    ordered, named = _ordered(ranges), [each.split(" ") for each in quality.split(", ")]
    if [each.kind for each in ordered] != [kind for kind, _ in named]:
        return None
    return {each: parse_duration_us(size) for each, (_, size) in zip(ordered, named, strict=True)}


def _ordered(ranges: Sequence[SizeRange]) -> list[SizeRange]:
    return sorted(ranges, key=lambda each: each.kind != "window")


def quality_words(ranges: Sequence[SizeRange], sizes: Sizes = BEST) -> str:
    """Return in words which sizes hold: those of windows, and then those of granularities.

    >>> hour_us = 3_600_000_000
    >>> quality_words([SizeRange("window", hour_us, 12 * hour_us, hour_us)])
    'window 12h'
    """
    return ", ".join(f"{each.kind} {format_duration(sizes.get(each, each.best_us))}" for each in _ordered(ranges))
