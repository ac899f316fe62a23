"""Templates as plans that keep query groups apart: every operator passes on the marks of rows."""

from __future__ import annotations

from cluster.operators import Node
from cluster.operators.columns import Schema


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
        done[id(template)] = template.kept_apart(inputs, marks)
    return done[id(template)]
