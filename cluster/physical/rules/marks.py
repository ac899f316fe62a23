"""Templates as plans that keep query groups apart: every operator passes on the marks of rows."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import Binary, Call
from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Extent,
    Held,
    Intersection,
    Join,
    KeptExtent,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    Union,
    UntilNext,
    Zip,
)
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Column, Output, Scalar, Schema
from cluster.operators.mark_columns import RIGHT
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, conjunction_of, conjuncts_of, passed_on
from protocols.wire.streams import FieldType


def marked(template: Node, marks: Schema) -> Node:
    """Return a template as a plan that keeps query groups apart.

    Parameters
    ----------
    template
        The template.
    marks
        The marks of rows: QUERY_GROUP; and VISIBLE_FROM, if the template shares tuples.
    """
    return _marked(template, marks, {})


def _marked(template: Node, marks: Schema, done: dict[int, Node]) -> Node:
    if id(template) not in done:
        inputs = tuple([_marked(each, marks, done) for each in template.inputs])
        done[id(template)] = _marked_above(template, inputs, marks)
    return done[id(template)]


def _marked_above(template: Node, inputs: tuple[Node, ...], marks: Schema) -> Node:
    match template:
        case Source():
            return replace(template, columns=(*template.columns, *marks))
        case Project():
            return replace(template, input=inputs[0], outputs=(*template.outputs, *passed_on(marks)))
        case (
            Aggregate()
            | Extent()
            | PartitionedWindow()
            | SessionWindow()
            | PatternMatch()
            | Ranked()
            | Sequence()
            | UntilNext()
        ):
            return replace(template, input=inputs[0], keys=(*template.keys, QUERY_GROUP.name))
        case KeptExtent():
            return replace(template, input=inputs[0], kept=replace(template.kept, apart=(QUERY_GROUP.name,)))
        case CountWindow(rows=int(rows)):
            return PartitionedWindow(inputs[0], (QUERY_GROUP.name,), rows, template.slide_rows)
        case Join() | SemiJoin() | AntiJoin():
            renamed = tuple(Output(RIGHT + mark.name, column_scalar(mark)) for mark in marks)
            right = Project(inputs[1], (*passed_on(template.right.schema), *renamed))
            same = Scalar(Binary("=", *_sides(QUERY_GROUP)), FieldType.BOOLEAN)
            predicate = conjunction_of((same, *conjuncts_of(template.predicate)))
            left = inputs[0]
            if isinstance(left, Held) and left.input == inputs[1]:
                left = replace(left, input=right)  # the same rows, which then cross one exchange
            pairs = replace(template, left=left, right=right, predicate=predicate)
            return _visible_pairs(pairs, template.schema, marks) if isinstance(template, Join) else pairs
        case Held():
            return replace(template, input=inputs[0], marks=marks)
        case Zip() | StampJoin():
            return _zipped_apart(template, inputs, marks)
        case Union() | Difference() | Intersection() if len({_places(each, marks) for each in inputs}) > 1:
            # Columns of both sides match by position, and an aggregate has its marks before what it computes.
            return template.with_inputs(tuple([_with_marks_behind(each, marks) for each in inputs]))
        case _:
            return template.with_inputs(inputs)


def _places(node: Node, marks: Schema) -> tuple[int, ...]:
    return tuple(place for place, column in enumerate(node.schema) if column in marks)


def _with_marks_behind(node: Node, marks: Schema) -> Node:
    columns = node.schema
    own = [each for each in columns if each not in marks]
    return project(node, passed_on((*own, *(each for each in columns if each in marks))))


def _zipped_apart(template: Zip | StampJoin, inputs: tuple[Node, ...], marks: Schema) -> Node:
    """Return pairs of one query group; an unmatched tuple has the marks of its own side."""
    renamed = tuple(Output(RIGHT + mark.name, column_scalar(mark)) for mark in marks)
    right = Project(inputs[1], (*passed_on(template.right.schema), *renamed))
    keys = (*template.keys, (QUERY_GROUP.name, RIGHT + QUERY_GROUP.name))
    pairs = replace(template, left=inputs[0], right=right, keys=keys)
    outputs = (Output(mark.name, Scalar(Call("COALESCE", _sides(mark)), mark.type)) for mark in marks)
    return Project(pairs, (*passed_on(template.schema), *outputs))


def _visible_pairs(pairs: Node, columns: Schema, marks: Schema) -> Node:
    """Return pairs with the marks of one tuple: a pair is visible to queries to which both tuples are."""
    visible_from = Scalar(Call("LEAST", _sides(VISIBLE_FROM)), VISIBLE_FROM.type)
    outputs = (Output(mark.name, visible_from if mark == VISIBLE_FROM else column_scalar(mark)) for mark in marks)
    return Project(pairs, (*passed_on(columns), *outputs))


def _sides(mark: Column) -> tuple[expressions.Column, expressions.Column]:
    """Return a mark of the left and of the right."""
    return expressions.Column(mark.name), expressions.Column(RIGHT + mark.name)
