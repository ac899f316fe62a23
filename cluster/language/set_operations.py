"""UNION, EXCEPT and INTERSECT: with ALL over bags, without over sets (papers/pipes_algebra.md section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.nodes import Cast
from cluster.language.typing_rules import TypeMismatchError, common_type
from cluster.operators import Difference, Distinct, Intersection, Node, Union
from cluster.operators.columns import Column, Output, Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar

if TYPE_CHECKING:
    from cluster.language.context import Context
    from protocols.wire.streams import FieldType


def combine(operation: exp.SetOperation, left: Node, right: Node, context: Context) -> Node:
    """Return the union, difference or intersection of two plans; columns match by position and are named by the left.

    Raises
    ------
    FjordSqlError
        If their columns do not match.
    """
    left, right = _aligned(operation, left, right, context)
    distinct = bool(operation.args.get("distinct"))
    match operation:
        case exp.Except():
            return Difference(Distinct(left), Distinct(right)) if distinct else Difference(left, right)
        case exp.Intersect():
            both: Node = Intersection(left, right)
        case _:
            both = Union(left, right)
    return Distinct(both) if distinct else both


def _aligned(operation: exp.SetOperation, left: Node, right: Node, context: Context) -> tuple[Node, Node]:
    ours, theirs = left.schema, right.schema
    if len(ours) != len(theirs):
        raise context.error(
            operation.expression, f"this query selects {len(theirs)} columns, but the first one {len(ours)}"
        )
    types: list[FieldType] = []
    for one, other in zip(ours, theirs, strict=True):
        try:
            found = common_type((one.type, other.type))
        except TypeMismatchError as mismatch:
            raise context.error(
                operation.expression, f"column {one.name!r} does not fit: {mismatch}", "convert one of them with CAST"
            ) from None
        assert found is not None  # noqa: S101 - columns have types
        types.append(found)
        if one.unit and other.unit and one.unit != other.unit:
            context.warn(f"column {one.name!r} mixes {one.unit} and {other.unit}")
    wanted = [
        Column(one.name, type_, one.unit or other.unit) for one, other, type_ in zip(ours, theirs, types, strict=True)
    ]
    return _shaped(left, wanted), _shaped(right, wanted)


def _shaped(node: Node, wanted: list[Column]) -> Node:
    return project(node, [_output(column, shape) for column, shape in zip(node.schema, wanted, strict=True)])


def _output(column: Column, shape: Column) -> Output:
    scalar = column_scalar(column)
    if column.type != shape.type:
        scalar = Scalar(Cast(scalar.expression, shape.type), shape.type)
    return Output(shape.name, scalar, shape.unit)
