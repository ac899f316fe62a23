"""Small functions on plans, and for building plans, which the translation uses everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import NULL, Cast, bare
from cluster.expressions.reading import expression_of
from cluster.expressions.timestamps import SHOWN_BY
from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    Distinct,
    Filter,
    Granularity,
    Held,
    Join,
    Node,
    PatternMatch,
    Project,
    Ranked,
    Relation,
    SemiJoin,
    Source,
    StampJoin,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.columns import Output, Scalar
from cluster.language.scope import Names
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.language.columns import Column, Schema
    from cluster.language.typing_rules import Typed


def column_scalar(column: Column) -> Scalar:
    """Return the expression that is just `column`."""
    return Scalar(expressions.Column(column.name), column.type)


def null_scalar(column: Column) -> Scalar:
    """Return NULL of the type of `column`."""
    return Scalar(Cast(NULL, column.type), column.type)


def passed_on(columns: Iterable[Column]) -> tuple[Output, ...]:
    """Return the outputs of a projection that pass columns on unchanged."""
    return tuple(Output(column.name, column_scalar(column), column.unit) for column in columns)


def plain_column(scalar: Scalar) -> str | None:
    """Return the name of the column that `scalar` is, or None if it is more than a column.

    >>> from protocols.wire.streams import FieldType
    >>> speed = expressions.Column("speed")
    >>> plain_column(Scalar(speed, FieldType.REAL))
    'speed'
    >>> plain_column(Scalar(expressions.Negative(speed), FieldType.REAL)) is None
    True
    """
    return scalar.expression.name if isinstance(scalar.expression, expressions.Column) else None


def scalar_of(typed: Typed, type_: FieldType) -> Scalar:
    """Return a checked expression in the form that plans hold; outer parentheses have no meaning and are removed."""
    return Scalar(bare(expression_of(typed.expression)), type_)


def project(node: Node, outputs: Iterable[Output]) -> Node:
    """Return `node` with `outputs`; `node` itself if these are exactly its columns."""
    outputs = tuple(outputs)
    schema = schema_of(node)
    unchanged = len(outputs) == len(schema) and all(
        plain_column(output.scalar) == column.name == output.name and output.unit == column.unit
        for output, column in zip(outputs, schema, strict=True)
    )
    return node if unchanged else Project(node, outputs)


def shown(node: Node) -> Node:
    """Return `node` with timestamps and intervals as texts (ISO 8601), as results have them."""
    outputs: list[Output] = []
    for column in schema_of(node):
        scalar = column_scalar(column)
        if column.type in SHOWN_BY:
            scalar = Scalar(expressions.Call(SHOWN_BY[column.type], (scalar.expression,)), FieldType.TEXT)
        outputs.append(Output(column.name, scalar, column.unit))
    return project(node, outputs)


def named_as(node: Node, columns: Iterable[Column]) -> Node:
    """Return `node` with its columns called as other columns are, by position."""
    pairs = zip(columns, schema_of(node), strict=True)
    return project(node, [Output(one.name, column_scalar(other), one.unit) for one, other in pairs])


def renamed_apart(node: Node, taken: Iterable[str]) -> tuple[Node, dict[str, str]]:
    """Return `node` with the columns that are among `taken` renamed, and their new names."""
    before = [*taken]
    used = Names(before)
    names: dict[str, str] = {}
    outputs: list[Output] = []
    schema: Schema = schema_of(node)
    both = Names((*before, *(column.name for column in schema)))
    for column in schema:
        name = column.name
        if name in used:
            name = names[column.name] = both.unique(name)
        used.add(name)
        outputs.append(Output(name, column_scalar(column), column.unit))
    return (project(node, outputs) if names else node), names


@remembered
def never_null(node: Node) -> frozenset[str]:
    """Return the columns of `node` that can never be NULL: counts, also when other operators pass them on."""
    match node:
        case Source() | Relation():
            return frozenset()
        case Aggregate():
            below = never_null(node.input)
            counts = {call.name for call in node.calls if call.function == "count"}
            return frozenset(counts | (below & set(node.keys)))
        case Project():
            below = never_null(node.input)
            return frozenset(output.name for output in node.outputs if plain_column(output.scalar) in below)
        case Join():
            return never_null(node.left) | never_null(node.right)
        case Held():
            return never_null(node.table)
        case StampJoin():
            left = never_null(node.left) if node.kind != "full" else frozenset()
            return left | never_null(node.right) if node.kind == "inner" else left
        case Zip():
            left = never_null(node.left) if node.kind != "full" else frozenset()
            return left | never_null(node.right) | {node.apart} if node.kind == "inner" else left
        case PatternMatch():
            return never_null(node.input) & frozenset(node.keys)
        case _:
            first, *others = inputs_of(node)
            found = never_null(first)
            if type(node).__name__ == "Union":
                for other in others:
                    found &= never_null(other)
            return found


@remembered
def reads_relations_only(node: Node) -> bool:
    """Return whether a plan reads relations, and no stream."""
    if isinstance(node, Source | Relation):
        return isinstance(node, Relation)
    return all(reads_relations_only(each) for each in inputs_of(node))


@remembered
def single_row(node: Node) -> bool:
    """Return whether `node` has at most one row at any instant: an aggregate over all rows, or the first one."""
    match node:
        case Aggregate():
            return not node.keys
        case Ranked(keys=(), function="row_number", most=int(most)) if most - node.above <= 1:
            return True
        case Project() | Filter() | Distinct() | Ranked():
            return single_row(node.input)
        case SemiJoin() | AntiJoin():
            return single_row(node.left)
        case _:
            return False


@remembered
def unique_columns(node: Node) -> frozenset[str] | None:
    """Return columns by which no two rows of an instant are equal; None if none are known."""
    if single_row(node):
        return frozenset()
    match node:
        case Aggregate():
            return frozenset(node.keys)
        case Distinct():
            return frozenset(column.name for column in schema_of(node))
        case Project():
            below = unique_columns(node.input)
            names = {plain_column(output.scalar): output.name for output in reversed(node.outputs)}
            return frozenset(names[each] for each in below) if below is not None and below <= names.keys() else None
        case Filter() | Granularity() | Ranked():
            return unique_columns(node.input)
        case SemiJoin() | AntiJoin():
            return unique_columns(node.left)
        case Join():
            left, right = unique_columns(node.left), unique_columns(node.right)
            return None if left is None or right is None else left | right
        case _:
            return None


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
