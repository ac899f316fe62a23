"""Conditions on which a scan may leave rows out: the intervals in those of all query groups that it feeds, if few.

    scan -> sample -> columns -> grouped filter: k = 0                 the scan reads other columns of a file only
                              -> grouped filter: k = 7, f(x) = 2       for rows with k = 0 or k = 7

The filters stay: what is left out is only what none of them lets pass. Stored reals may be infinite or NaN, which are
NULL above the scan; such a value may lie in an interval here, but NULL lies in none there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_, or_

import polars as pl

from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import Column, Scalar
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Columns, GroupedFilter, Sample, Scan
from cluster.plan.predicate_intervals import Interval, Intervals, extract_ranges
from protocols.wire.streams import FieldType

MOST = 8
"""With more intervals, comparing each row with all of them takes longer than an index of conditions."""


def wanted_rows(scans: Iterable[tuple[Fragment, OperatorNode]]) -> pl.Expr | None:
    """Return a condition that holds for all rows that are used of some scans; None if any row may be.

    Parameters
    ----------
    scans
        Scans that are made as one, each with its fragment.
    """
    found: dict[Scalar, pl.Expr] = {}
    left = MOST
    for fragment, node in scans:
        assert isinstance(node.operation, Scan)  # noqa: S101 - it is one
        columns = {column.name: column for column in node.operation.columns if column.type is not FieldType.BOOLEAN}
        for condition in _conditions(fragment, node):
            if condition in found:
                continue
            ranges = extract_ranges(condition, tuple(columns.values())).intervals
            unions = [(columns[name], union) for name, each in ranges.items() for union in each]
            left -= sum(max(1, len(union)) for _, union in unions)
            if condition is None or not unions or left < 0:
                return None
            found[condition] = reduce(and_, (_within(column, union) for column, union in unions))
    return reduce(or_, found.values()) if found else None


def _conditions(fragment: Fragment, below: OperatorNode) -> Iterator[Scalar | None]:
    """Yield the conditions of the query groups that rows of a node reach; None where there is none."""
    for node in fragment.nodes:
        if below.id not in node.inputs:
            continue
        match node.operation:
            case GroupedFilter(place=place):
                yield from (condition for _, condition in fragment.conditions[place])
            case Sample() | Columns():
                yield from _conditions(fragment, node)
            case _:
                yield None


def _within(column: Column, union: Intervals) -> pl.Expr:
    """Return whether a column's value is in a union of intervals."""
    nowhere = pl.lit(value=False)
    return reduce(or_, (_in(column, interval) for interval in union)) if union else nowhere


def _in(column: Column, interval: Interval) -> pl.Expr:
    value, kind = pl.col(column.name), POLARS_TYPES[column.type]
    tests = []
    if interval.low is not None:
        low = pl.lit(interval.low, kind)
        tests.append(value > low if interval.low_open else value >= low)
    if interval.high is not None:
        high = pl.lit(interval.high, kind)
        tests.append(value < high if interval.high_open else value <= high)
    return reduce(and_, tests) if tests else value.is_not_null()
