"""Extents as plans of what there was before them: LAG, a running sum, and groups of the window (decision 0067).

Whether a sample goes on with the one before does not depend on the window, which removes the first samples of a key
only. So it is found once, by functions over tuples in order; a run is a group of an aggregate over the window, to which
the sample that begins the next one gives its end. Queries were translated so, and plans of that time still are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.expressions import nodes
from cluster.operators import (
    Aggregate,
    CountWindow,
    Extent,
    Filter,
    Node,
    PartitionedWindow,
    Project,
    Sequence,
    TimeWindow,
    Union,
)
from cluster.operators.columns import STAMP, AggregateCall, Column, Output, Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, passed_on
from cluster.operators.sequence import SequenceCall
from cluster.operators.walks import rebuilt
from protocols.wire.streams import FieldType

INTEGER = FieldType.INTEGER


@dataclass(frozen=True, slots=True)
class _Runs:
    """Columns with the order of a sample, whether it begins a run, and the number of its run."""

    number = Column("fjord_nth_of_key", INTEGER)
    begins = Column("fjord_new_run", INTEGER)
    run = Column("fjord_run_of_key", INTEGER)


def as_groups(plan: Node) -> Node:
    """Return a plan without extents; each stands above its window, as a query is translated."""
    return rebuilt(plan, lambda each: _as_groups(each) if isinstance(each, Extent) else each)


def _as_groups(extent: Extent) -> Node:
    window, how = extent.input, extent.coalescing
    assert isinstance(window, TimeWindow | CountWindow | PartitionedWindow)
    columns = {column.name: column for column in window.input.schema}
    shown = [columns[name] for name in dict.fromkeys((*extent.keys, *how.columns))]
    runs = _Runs()
    below = _in_runs(window.input, extent, columns, runs)
    below = replace(window, input=project(below, passed_on((*shown, STAMP, runs.number, runs.begins, runs.run))))
    return _rows(below, shown, extent, runs)


def _in_runs(node: Node, extent: Extent, columns: dict[str, Column], runs: _Runs) -> Node:
    how = extent.coalescing
    if how.link is None:
        before = tuple((f"fjord_before_{name}", name) for name in how.columns)
        same = tuple(
            nodes.Binary("IS NOT DISTINCT FROM", nodes.Column(name), nodes.Column(one)) for one, name in before
        )
        link: nodes.Expression = nodes.chain("AND", same) if len(same) > 1 else same[0]
    else:
        before, link = how.link.before, how.link.condition.expression
    lags = (SequenceCall(one, "lag", name, columns[name].type, columns[name].unit, rows=1) for one, name in before)
    counted = SequenceCall(runs.number.name, "count", None, INTEGER)
    ordered = Sequence(node, extent.keys, how.ties, (*lags, counted))
    goes_on = nodes.chain("AND", (_compared(runs.number, ">", 1), nodes.grouped(link)))
    value = nodes.Case(None, (goes_on,), (_integer(0),), _integer(1))
    flagged = Project(ordered, (*passed_on((*node.schema, runs.number)), _output(runs.begins, value)))
    total = SequenceCall(runs.run.name, "sum", runs.begins.name, INTEGER)
    return Sequence(flagged, extent.keys, (runs.number.name,), (total,))


def _rows(node: Node, shown: Iterable[Column], extent: Extent, runs: _Runs) -> Node:
    """Return one row for each run in a window."""
    shown = [*shown]
    ends = Column("fjord_ends_run", FieldType.BOOLEAN)
    run, passed = runs.run, (*shown, STAMP, runs.number)
    own = Project(node, (*passed_on((*passed, run)), _output(ends, nodes.FALSE)))
    later = nodes.chain("AND", (_compared(runs.begins, "=", 1), _compared(run, ">", 1)))
    before = nodes.Binary("-", nodes.Column(run.name), _integer(1))
    begun = Filter(node, Scalar(later, FieldType.BOOLEAN))
    ending = Project(begun, (*passed_on(passed), _output(run, before), _output(ends, nodes.TRUE)))
    begin, end = (Column(name, INTEGER, STAMP.unit) for name in extent.coalescing.bounds)

    def of_own(value: nodes.Expression, type_: FieldType) -> Scalar:
        return Scalar(nodes.Case(None, (nodes.Not(nodes.Column(ends.name)),), (value,), None), type_)

    def first(name: str, value: nodes.Expression, type_: FieldType, unit: str = "") -> AggregateCall:
        of = of_own(nodes.Column(runs.number.name), INTEGER)
        return AggregateCall(name, "arg_min", of_own(value, type_), type_, unit=unit, by=of)

    calls, outputs = [], [*passed_on(column for column in shown if column.name in extent.keys)]
    for column in (column for column in shown if column.name not in extent.keys):
        # ARG_MIN looks for the first value that is known, and the first value may be NULL.
        known, value = f"fjord_known_{column.name}", nodes.Column(column.name)
        calls.append(first(column.name, value, column.type, column.unit))
        calls.append(first(known, _not_null(column), FieldType.BOOLEAN))
        outputs.append(_output(column, nodes.Case(None, (nodes.Column(known),), (value,), None)))
    calls.append(AggregateCall(begin.name, "min", of_own(nodes.Column(STAMP.name), INTEGER), INTEGER, unit=STAMP.unit))
    calls.append(AggregateCall(end.name, "max", column_scalar(STAMP), INTEGER, unit=STAMP.unit))
    grouped = Aggregate(Union(own, ending), (*extent.keys, run.name), tuple(calls))
    there = Filter(grouped, Scalar(_not_null(begin), FieldType.BOOLEAN))
    return Project(there, (*outputs, *passed_on((begin, end))))


def _not_null(column: Column) -> nodes.Expression:
    return nodes.Not(nodes.Binary("IS", nodes.Column(column.name), nodes.NULL))


def _output(column: Column, value: nodes.Expression) -> Output:
    return Output(column.name, Scalar(value, column.type), column.unit)


def _integer(number: int) -> nodes.Literal:
    return nodes.Literal(INTEGER, str(number))


def _compared(column: Column, sign: str, number: int) -> nodes.Expression:
    return nodes.Binary(sign, nodes.Column(column.name), _integer(number))
