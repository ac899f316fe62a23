"""The last operations on the rows of one query whose windows share panes or extents with others."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Filter, Node, Project, Source, WindowBounds
from cluster.operators.columns import Schema
from cluster.operators.mark_columns import MARKS
from cluster.operators.scalar_expressions import passed_on
from cluster.physical import operations

Finish = tuple[operations.Filter | operations.Project | operations.WindowBounds, ...]


def finish_of(top: Node, marks: Schema = MARKS) -> Finish:
    """Return the last operations, in their order; they keep the marks of the rows.

    Parameters
    ----------
    top
        The top of a query's plan: filters and projections above a source with the answers of windows.
    marks
        The marks.
    """
    node = carrying(top, marks)
    found: list[operations.Filter | operations.Project | operations.WindowBounds] = []
    while not isinstance(node, Source):
        match node:
            case Filter():
                found.append(operations.Filter(node.predicate))
                node = node.input
            case WindowBounds():
                found.append(operations.WindowBounds(node.grid, node.start, node.end))
                node = node.input
            case Project():
                found.append(operations.Project(node.outputs))
                node = node.input
            case _:
                raise AssertionError(f"{type(node).__name__} above shared panes")
    return tuple(reversed(found))


def carrying(node: Node, columns: Schema) -> Node:
    """Return a plan of filters, projections and a source with these additional columns."""
    match node:
        case Source():
            return replace(node, columns=(*node.columns, *columns))
        case Project():
            return replace(node, input=carrying(node.input, columns), outputs=(*node.outputs, *passed_on(columns)))
        case _:
            return node.with_inputs(tuple(carrying(each, columns) for each in node.inputs))
