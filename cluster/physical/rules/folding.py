"""What queries may share: templates, groups of equal conditions, marks, and the last steps that remain to each.

**Templates: queries that differ in what they filter, and in nothing else, have one (docs/explanation/folding.md).**

    SELECT sensor FROM traffic WHERE speed < 20          q1: speed < 20
    SELECT sensor FROM traffic WHERE speed < 10    ->    q2: speed < 10       one template:  project sensor
    SELECT sensor FROM traffic WHERE lane = 1            q3: lane = 1                        `- groups of traffic

A *template* is a plan without the conditions next to its streams. Queries with one template are one fragment. A tuple
becomes one row per query group whose condition holds, with the group's number in an extra column, and every operator
above keeps groups apart: it is one more column of a projection, of a key, of
equality, one more equation of a join. A filter further up (HAVING, a condition on both sides of a join) applies to
each group the group's own condition. All operators work instant by instant on whole tuples
(papers/pipes_algebra.md section 3), so each query's rows are exactly those it would have alone; and a query that begins
later has no rows from before.

Zipper joins pair tuples one to one: the partner depends on all tuples before, so queries that began at different times
never share tuples there.

Where a plan only filters, projects, joins and unites, queries with equal conditions share their tuples and the state of
their joins: marks in the rows say from which epoch on they are visible. Windowed aggregates fold further
(:mod:`cluster.physical.rules.shared_panes`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from cluster.expressions.nodes import TRUE
from cluster.operators import Filter, Join, Lookup, Node, Project, Source, TimeWindow, Union, WindowBounds
from cluster.operators.columns import MARKS, Scalar, Schema, identity_of
from cluster.operators.scalar_expressions import conjunction_of, conjuncts_of, passed_on
from cluster.operators.walks import nodes_of
from cluster.physical import operations
from cluster.plan.pane_query import without_acquisition_hints
from cluster.plan.pipelines import runs_upstream
from protocols.wire.streams import FieldType


class Fingerprint(msgspec.Struct, frozen=True):
    """A push-down fingerprint among conditions; its encoding must not change, since groups are digests of it."""

    sql: str
    type: FieldType = FieldType.TEXT


@lru_cache(maxsize=65_536)
def group_of(predicates: tuple[Scalar | Fingerprint | None, ...]) -> int:
    """Return a query group: a digest of the conditions on sources, which never changes; 0 for no condition."""
    if not any(predicates):
        return 0
    digest = hashlib.blake2b(identity_of(predicates), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1


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


ANYTHING = Scalar(TRUE, FieldType.BOOLEAN)
"""The predicate of a template's filter instead of its queries' conditions."""


@lru_cache(maxsize=4096)
def shares_tuples(template: Node) -> bool:
    """Return whether a plan only filters, projects, joins and unites: then tuples can be shared, with VISIBLE_FROM."""
    kinds = Source | Filter | Project | TimeWindow | Join | Union | Lookup
    return all(isinstance(each, kinds) for each in nodes_of(template))


@lru_cache(maxsize=65_536)
def template_of(node: Node) -> tuple[Node, tuple[Scalar | None, ...], tuple[Scalar, ...]]:
    """Return a plan's template, the conditions removed from its sources, and the conditions of filters further up.

    Equal pipelines with equal conditions are one source of the template: equal subplans stay equal.
    """
    places: dict[Node, int] = {}
    choices: dict[tuple[Node, Scalar], int] = {}
    done: dict[tuple[int, int | None], Node] = {}

    def freed(part: Node, place: int | None) -> Node:
        key = (id(part), place)
        if key not in done:
            done[key] = without_conditions(part, place)
        return done[key]

    def without_conditions(part: Node, place: int | None) -> Node:
        if place is None and runs_upstream(part):
            place = places.setdefault(part, len(places))
        if place is not None and isinstance(source := _without_filters(part), Source):
            return replace(without_acquisition_hints(source), occurrence=place)
        inputs = tuple([freed(each, place) for each in part.inputs])
        if place is None and isinstance(part, Filter):
            return Filter(inputs[0], ANYTHING, choices.setdefault((inputs[0], part.predicate), len(choices)))
        return part.with_inputs(inputs)

    template = freed(node, None)
    return template, tuple(map(_condition_of, places)), tuple(predicate for _, predicate in choices)


def _without_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def _condition_of(stateless: Node) -> Scalar | None:
    """Return the condition directly above the source of a pipeline."""
    conditions: list[Scalar] = []
    while not isinstance(stateless, Source):
        conditions = [*conjuncts_of(stateless.predicate), *conditions] if isinstance(stateless, Filter) else []
        (stateless,) = stateless.inputs
    return conjunction_of(conditions)


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
