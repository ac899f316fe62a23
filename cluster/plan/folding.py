"""Folding: queries that differ in what they filter, and in nothing else, are one (docs/architecture.md, Folding).

    SELECT sensor FROM traffic WHERE speed < 20          q1: speed < 20
    SELECT sensor FROM traffic WHERE speed < 10    ->    q2: speed < 10       one template:  project sensor
    SELECT sensor FROM traffic WHERE lane = 1            q3: lane = 1                        `- members of traffic

A *template* is a plan without the conditions next to its streams. Its *members* are the queries that have it. A tuple
becomes one row per member whose condition holds, with the member's number in an extra column, and every operator above
keeps members apart: it is one more column of a projection, of a key, of equality, one more equation of a join. A filter
further up (HAVING, a condition on both sides of a join) keeps each member's rows by the member's own condition. All
operators work instant by instant on whole tuples (papers/pipes_algebra.md section 3), so each member's rows are exactly
those of its query run alone; and a member that comes later has no rows from before.

Zip joins pair tuples one to one: with whom depends on all that came before, so members that began at different times
never share tuples there.

Where a plan only filters, projects, joins and unites, members with equal conditions share their tuples and the state of
their joins: rows say since when they are seen. Windowed aggregates fold further (:mod:`cluster.plan.pane_folding`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import TRUE, Binary, Call
from cluster.language.algebra import (
    MEMBER,
    SINCE,
    Aggregate,
    AntiJoin,
    Column,
    CountWindow,
    Filter,
    Join,
    Lookup,
    Node,
    Output,
    PartitionedWindow,
    Project,
    Scalar,
    Schema,
    SemiJoin,
    Source,
    TimeWindow,
    Union,
    Zip,
    inputs_of,
    schema_of,
    with_inputs,
)
from cluster.language.plans import column_scalar
from cluster.language.walks import nodes_of
from cluster.plan.cuts import is_cut
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.expressions import conjunction_of, conjuncts_of
from cluster.plan.pane_folding import PaneFold, fold_panes, group_of
from cluster.plan.pane_query import PaneQuery, pane_query_of, without_wishes
from cluster.plan.stored_plans import encoded
from protocols.streams import FieldType

ANYTHING = Scalar(TRUE, FieldType.BOOLEAN)
"""What a template's filter says in the place of its members' conditions."""

Groups = tuple[tuple[int, Scalar | None], ...]
"""Conditions by number of their group."""

Choices = tuple[Mapping[int, Scalar], ...]
"""By filter of a template: the members' own conditions, by number of their group."""

RIGHT = "fjord_right_"
"""Marks of the right side of a join are called so until it is made."""


@dataclass(frozen=True, slots=True)
class Member:
    """A query of a fold.

    Parameters
    ----------
    group
        Which tuples are its own: those with this number. The epoch with which the query began, which no other query
        of the Fjord ever has; or, where members may share tuples, a digest of the conditions.
    query
        Its plan.
    predicates
        By source of the template: which tuples of it are its own; None for all.
    choices
        By filter of the template: its own condition.
    """

    group: int
    query: PlannedQuery
    predicates: tuple[Scalar | None, ...]
    choices: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """Queries with one template.

    Parameters
    ----------
    template
        What they have in common.
    shared
        The template as a plan that keeps members apart; its name depends on the template only.
    members
        The queries, oldest first.
    """

    template: Node
    shared: PlannedQuery
    members: tuple[Member, ...]

    @property
    def groups(self) -> tuple[Groups, ...]:
        """By source: the conditions, by number of their group."""
        sources = len(self.members[0].predicates)
        return tuple(
            tuple({member.group: member.predicates[source] for member in self.members}.items())
            for source in range(sources)
        )

    @property
    def choices(self) -> Choices:
        """By filter: the conditions, by number of their group."""
        filters = len(self.members[0].choices)
        return tuple({member.group: member.choices[place] for member in self.members} for place in range(filters))

    @property
    def shares_tuples(self) -> bool:
        """True if members with equal conditions have the same tuples."""
        return shares_tuples(self.template)


@dataclass(frozen=True, slots=True)
class FoldedPlan:
    """A plan's queries: folded, and windowed aggregates that share panes."""

    folds: tuple[Fold, ...]
    panes: tuple[PaneFold, ...]


def fold(plan: Plan) -> FoldedPlan:
    """Return a plan's queries, folded."""
    folds: dict[Node, list[Member]] = {}
    panes: dict[PlannedQuery, PaneQuery] = {}
    for query in plan.queries:
        windowed = pane_query_of(query.node)
        if windowed is not None:
            panes[query] = windowed
            continue
        template, predicates, choices = template_of(query.node)
        group = group_of((*predicates, *choices)) if shares_tuples(template) else query.since_epoch
        folds.setdefault(template, []).append(Member(group, query, predicates, choices))
    return FoldedPlan(
        tuple(Fold(template, _shared(template), tuple(members)) for template, members in folds.items()),
        fold_panes(panes),
    )


@lru_cache(maxsize=4096)
def shares_tuples(template: Node) -> bool:
    """Return whether a plan only filters, projects, joins and unites: then what came when decides who sees a row."""
    kinds = Source | Filter | Project | TimeWindow | Join | Union | Lookup
    return all(isinstance(each, kinds) for each in nodes_of(template))


@lru_cache(maxsize=65_536)
def template_of(node: Node) -> tuple[Node, tuple[Scalar | None, ...], tuple[Scalar, ...]]:
    """Return a plan's template, by source the conditions it was freed of, and the conditions of filters further up.

    What runs upstream more than once, conditions and all, is one source of the template: equal parts of a plan stay
    equal.
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
        if place is None and is_cut(part):
            place = places.setdefault(part, len(places))
        if place is not None and isinstance(source := _without_filters(part), Source):
            return replace(without_wishes(source), occurrence=place)
        inputs = tuple([freed(each, place) for each in inputs_of(part)])
        if place is None and isinstance(part, Filter):
            return Filter(inputs[0], ANYTHING, choices.setdefault((inputs[0], part.predicate), len(choices)))
        return with_inputs(part, inputs)

    template = freed(node, None)
    return template, tuple(map(_condition_of, places)), tuple(predicate for _, predicate in choices)


def _without_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def _condition_of(cut: Node) -> Scalar | None:
    """Return the condition right above the source of what one cut leaves upstream."""
    conditions: list[Scalar] = []
    while not isinstance(cut, Source):
        conditions = [*conjuncts_of(cut.predicate), *conditions] if isinstance(cut, Filter) else []
        (cut,) = inputs_of(cut)
    return conjunction_of(conditions)


@lru_cache(maxsize=4096)
def _shared(template: Node) -> PlannedQuery:
    digest = hashlib.blake2b(encoded(template), digest_size=8).hexdigest()
    marks = (MEMBER, SINCE) if shares_tuples(template) else (MEMBER,)
    return PlannedQuery(f"fold-{digest}", 0, marked(template, marks))


def marked(template: Node, marks: Schema) -> Node:
    """Return a template as a plan that keeps members apart.

    Parameters
    ----------
    template
        The template.
    marks
        What rows carry: MEMBER; and SINCE, if the template shares tuples.
    """
    return _marked(template, marks, {})


def _marked(template: Node, marks: Schema, done: dict[int, Node]) -> Node:
    if id(template) not in done:
        inputs = tuple([_marked(each, marks, done) for each in inputs_of(template)])
        done[id(template)] = _marked_above(template, inputs, marks)
    return done[id(template)]


def _marked_above(template: Node, inputs: tuple[Node, ...], marks: Schema) -> Node:
    match template:
        case Source():
            return replace(template, columns=(*template.columns, *marks))
        case Project():
            return replace(template, input=inputs[0], outputs=(*template.outputs, *_kept(marks)))
        case Aggregate() | PartitionedWindow():
            return replace(template, input=inputs[0], keys=(*template.keys, MEMBER.name))
        case CountWindow(rows=int(rows)):
            return PartitionedWindow(inputs[0], (MEMBER.name,), rows, template.slide_rows)
        case Join() | SemiJoin() | AntiJoin():
            renamed = tuple(Output(RIGHT + mark.name, column_scalar(mark)) for mark in marks)
            right = Project(inputs[1], (*_kept(schema_of(template.right)), *renamed))
            same = Scalar(Binary("=", *_sides(MEMBER)), FieldType.BOOLEAN)
            predicate = conjunction_of((same, *conjuncts_of(template.predicate)))
            pairs = replace(template, left=inputs[0], right=right, predicate=predicate)
            return _seen_by_both(pairs, schema_of(template), marks) if isinstance(template, Join) else pairs
        case Zip():
            return _zipped_apart(template, inputs, marks)
        case _:
            return with_inputs(template, inputs)


def _zipped_apart(template: Zip, inputs: tuple[Node, ...], marks: Schema) -> Node:
    """Return pairs of one member; a lone tuple has the mark of its own side."""
    renamed = tuple(Output(RIGHT + mark.name, column_scalar(mark)) for mark in marks)
    right = Project(inputs[1], (*_kept(schema_of(template.right)), *renamed))
    keys = (*template.keys, (MEMBER.name, RIGHT + MEMBER.name))
    pairs = replace(template, left=inputs[0], right=right, keys=keys)
    outputs = (Output(mark.name, Scalar(Call("COALESCE", _sides(mark)), mark.type)) for mark in marks)
    return Project(pairs, (*_kept(schema_of(template)), *outputs))


def _seen_by_both(pairs: Node, columns: Schema, marks: Schema) -> Node:
    """Return pairs with the marks of one tuple: a query sees a pair if it sees both."""
    since = Scalar(Call("LEAST", _sides(SINCE)), SINCE.type)
    outputs = (Output(mark.name, since if mark == SINCE else column_scalar(mark)) for mark in marks)
    return Project(pairs, (*_kept(columns), *outputs))


def _sides(mark: Column) -> tuple[expressions.Column, expressions.Column]:
    """Return a mark of the left and of the right."""
    return expressions.Column(mark.name), expressions.Column(RIGHT + mark.name)


def carrying(node: Node, columns: Schema) -> Node:
    """Return a plan of filters, projections and a source that hands these columns on."""
    match node:
        case Source():
            return replace(node, columns=(*node.columns, *columns))
        case Project():
            return replace(node, input=carrying(node.input, columns), outputs=(*node.outputs, *_kept(columns)))
        case _:
            return with_inputs(node, tuple(carrying(each, columns) for each in inputs_of(node)))


def _kept(columns: Schema) -> tuple[Output, ...]:
    return tuple(Output(column.name, column_scalar(column), column.unit) for column in columns)
