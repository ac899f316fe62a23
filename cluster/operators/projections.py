"""Projections that rename, choose and show columns, and what else is asked of whole plans."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.expressions import nodes as expressions
from cluster.expressions.timestamps import SHOWN_BY
from cluster.operators.columns import Column, Names, Output, Scalar, Schema
from cluster.operators.node import Node, Relation
from cluster.operators.project import Project
from cluster.operators.scalar_expressions import column_scalar, plain_column
from cluster.operators.source import Source
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType


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
