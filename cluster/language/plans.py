"""Small functions on plans, and for building plans, which the translation uses everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import bare
from cluster.expressions.reading import expression_of
from cluster.expressions.timestamps import SHOWN_BY
from cluster.language.scope import Names
from cluster.operators import (
    Node,
    Project,
    Relation,
    Source,
)
from cluster.operators.columns import Output, Scalar
from cluster.operators.scalar_expressions import column_scalar, plain_column
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.language.typing_rules import Typed
    from cluster.operators.columns import Column, Schema


def scalar_of(typed: Typed, type_: FieldType) -> Scalar:
    """Return a checked expression in the form that plans hold; outer parentheses have no meaning and are removed."""
    return Scalar(bare(expression_of(typed.expression)), type_)


def project(node: Node, outputs: Iterable[Output]) -> Node:
    """Return `node` with `outputs`; `node` itself if these are exactly its columns."""
    outputs = tuple(outputs)
    schema = node.schema
    unchanged = len(outputs) == len(schema) and all(
        plain_column(output.scalar) == column.name == output.name and output.unit == column.unit
        for output, column in zip(outputs, schema, strict=True)
    )
    return node if unchanged else Project(node, outputs)


def shown(node: Node) -> Node:
    """Return `node` with timestamps and intervals as texts (ISO 8601), as results have them."""
    outputs: list[Output] = []
    for column in node.schema:
        scalar = column_scalar(column)
        if column.type in SHOWN_BY:
            scalar = Scalar(expressions.Call(SHOWN_BY[column.type], (scalar.expression,)), FieldType.TEXT)
        outputs.append(Output(column.name, scalar, column.unit))
    return project(node, outputs)


def named_as(node: Node, columns: Iterable[Column]) -> Node:
    """Return `node` with its columns called as other columns are, by position."""
    pairs = zip(columns, node.schema, strict=True)
    return project(node, [Output(one.name, column_scalar(other), one.unit) for one, other in pairs])


def renamed_apart(node: Node, taken: Iterable[str]) -> tuple[Node, dict[str, str]]:
    """Return `node` with the columns that are among `taken` renamed, and their new names."""
    before = [*taken]
    used = Names(before)
    names: dict[str, str] = {}
    outputs: list[Output] = []
    schema: Schema = node.schema
    both = Names((*before, *(column.name for column in schema)))
    for column in schema:
        name = column.name
        if name in used:
            name = names[column.name] = both.unique(name)
        used.add(name)
        outputs.append(Output(name, column_scalar(column), column.unit))
    return (project(node, outputs) if names else node), names


@remembered
def reads_relations_only(node: Node) -> bool:
    """Return whether a plan reads relations, and no stream."""
    if isinstance(node, Source | Relation):
        return isinstance(node, Relation)
    return all(reads_relations_only(each) for each in node.inputs)


def conjunction(parts: list[exp.Expr]) -> Scalar:
    """Return the expression that all of `parts` are true."""
    if len(parts) == 1:
        alone = parts[0].unnest() if isinstance(parts[0], exp.Paren) else parts[0]
        return Scalar(expression_of(alone), FieldType.BOOLEAN)
    built: exp.Expr | None = None
    for part in parts:
        safe = exp.Paren(this=part) if isinstance(part, exp.Or) else part
        built = safe if built is None else exp.And(this=built, expression=safe)
    assert built is not None  # noqa: S101 - callers have at least one part
    return Scalar(expression_of(built), FieldType.BOOLEAN)
