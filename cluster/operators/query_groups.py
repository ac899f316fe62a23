"""How operators with two inputs keep the tuples of query groups apart: by marks, which both sides have.

One side's marks are renamed, so that a condition or keys can compare them, and the answer has each mark once.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import Binary, Call
from cluster.operators.columns import QUERY_GROUP, RIGHT, VISIBLE_FROM, Column, Output, Scalar, Schema
from cluster.operators.held import Held
from cluster.operators.node import Node
from cluster.operators.project import Project
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, conjunction_of, conjuncts_of, passed_on
from protocols.wire.streams import FieldType

SAME_GROUP = (QUERY_GROUP.name, RIGHT + QUERY_GROUP.name)
"""Columns of the left and of the right that are equal where both are of one query group."""


def sides_apart(
    inputs: tuple[Node, ...], columns: Schema, predicate: Scalar | None, marks: Schema
) -> tuple[Node, Node, Scalar | None]:
    """Return both sides of a join, and its condition: that both are of one query group, and what it was before.

    Parameters
    ----------
    inputs
        With marks.
    columns
        Of the right one without them.
    predicate
        The condition before.
    marks
        Those of the inputs.
    """
    left, right = inputs[0], marks_renamed(inputs[1], columns, marks)
    if isinstance(left, Held) and left.input == inputs[1]:
        left = replace(left, input=right)  # the same rows, which then cross one exchange
    same = Scalar(Binary("=", *_sides(QUERY_GROUP)), FieldType.BOOLEAN)
    return left, right, conjunction_of((same, *conjuncts_of(predicate)))


def marks_renamed(right: Node, columns: Schema, marks: Schema) -> Node:
    """Return the right side with these columns, and its marks by names of their own."""
    renamed = tuple(Output(RIGHT + mark.name, column_scalar(mark)) for mark in marks)
    return Project(right, (*passed_on(columns), *renamed))


def visible_pairs(pairs: Node, columns: Schema, marks: Schema) -> Node:
    """Return pairs with these columns and the marks of one tuple: visible to queries to which both tuples are."""
    visible_from = Scalar(Call("LEAST", _sides(VISIBLE_FROM)), VISIBLE_FROM.type)
    outputs = (Output(mark.name, visible_from if mark == VISIBLE_FROM else column_scalar(mark)) for mark in marks)
    return Project(pairs, (*passed_on(columns), *outputs))


def with_either_mark(pairs: Node, columns: Schema, marks: Schema) -> Node:
    """Return pairs with these columns and the marks of the side that there is."""
    outputs = (Output(mark.name, Scalar(Call("COALESCE", _sides(mark)), mark.type)) for mark in marks)
    return Project(pairs, (*passed_on(columns), *outputs))


def marks_in_place(inputs: tuple[Node, ...], marks: Schema) -> tuple[Node, ...]:
    """Return inputs whose columns match by position, marks too: an aggregate has its marks before what it computes."""
    places = {tuple(place for place, column in enumerate(each.schema) if column in marks) for each in inputs}
    return inputs if len(places) == 1 else tuple([_with_marks_behind(each, marks) for each in inputs])


def _with_marks_behind(node: Node, marks: Schema) -> Node:
    columns = node.schema
    own = [each for each in columns if each not in marks]
    return project(node, passed_on((*own, *(each for each in columns if each in marks))))


def _sides(mark: Column) -> tuple[expressions.Column, expressions.Column]:
    """Return a mark of the left and of the right."""
    return expressions.Column(mark.name), expressions.Column(RIGHT + mark.name)
