"""Folding: queries that differ in what they filter, and in nothing else, are one (design.md section 6).

    SELECT sensor FROM traffic WHERE speed < 20          q1: speed < 20
    SELECT sensor FROM traffic WHERE speed < 10    ->    q2: speed < 10       one template:  project sensor
    SELECT sensor FROM traffic WHERE lane = 1            q3: lane = 1                        `- members of traffic

A *template* is a plan without the condition next to its stream. Its *members* are the queries that have it. A tuple
becomes one row per member whose condition holds, with the member's number in an extra column, and every operator above
keeps members apart: it is one more column of a projection, of a key, of equality. All operators work instant by instant
on whole tuples (papers/pipes_algebra.md section 3), so each member's rows are exactly those of its query run alone; and
a member that comes later has no rows from before. Where nothing above keeps anything, members with equal conditions
share their tuples too. Windowed aggregates fold further (:mod:`cluster.plan.pane_folding`). Plans with several streams
are not folded yet; they share the scan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from cluster.language.algebra import (
    MEMBER,
    Aggregate,
    CountWindow,
    Distinct,
    Dstream,
    Filter,
    Granularity,
    Istream,
    Node,
    Output,
    PartitionedWindow,
    Project,
    Scalar,
    Schema,
    Source,
    TimeWindow,
)
from cluster.language.plans import column_scalar
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.expressions import conjunction_of, conjuncts_of
from cluster.plan.pane_folding import PaneFold, PaneQuery, fold_panes, group_of, pane_query_of


@dataclass(frozen=True, slots=True)
class Member:
    """A query of a fold.

    Parameters
    ----------
    group
        Which tuples are its own: those with this number. The epoch with which the query began, which no other query
        of the Fjord ever has; or, where members may share tuples, a digest of the condition.
    query
        Its plan.
    predicate
        Which tuples of the stream are its own; None for all.
    """

    group: int
    query: PlannedQuery
    predicate: Scalar | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Queries with one template.

    Parameters
    ----------
    shared
        The template as a plan that keeps members apart; its name depends on the template only.
    members
        The queries, oldest first.
    """

    shared: PlannedQuery
    members: tuple[Member, ...]

    @property
    def groups(self) -> tuple[tuple[int, Scalar | None], ...]:
        """The conditions, by number of their group."""
        return tuple({member.group: member.predicate for member in self.members}.items())

    @property
    def shares_tuples(self) -> bool:
        """True if members with equal conditions have the same tuples."""
        return is_stateless(self.shared.node)


@dataclass(frozen=True, slots=True)
class FoldedPlan:
    """A plan's queries: folded, sharing panes, and those that run alone."""

    folds: tuple[Fold, ...]
    panes: tuple[PaneFold, ...]
    alone: tuple[PlannedQuery, ...]


def fold(plan: Plan) -> FoldedPlan:
    """Return a plan's queries, folded."""
    folds: dict[Node, list[Member]] = {}
    panes: dict[PlannedQuery, PaneQuery] = {}
    alone: list[PlannedQuery] = []
    for query in plan.queries:
        windowed = pane_query_of(query.node)
        found = template_of(query.node)
        if windowed is not None:
            panes[query] = windowed
        elif found is not None:
            template, predicate = found
            group = group_of(predicate) if is_stateless(template) else query.since_epoch
            folds.setdefault(template, []).append(Member(group, query, predicate))
        else:
            alone.append(query)
    return FoldedPlan(
        tuple(Fold(_shared(template), tuple(members)) for template, members in folds.items()),
        fold_panes(panes),
        tuple(alone),
    )


def is_stateless(node: Node) -> bool:
    """Return whether nothing in a plan keeps anything of a tuple for another one."""
    while isinstance(node, Filter | Project | TimeWindow):
        node = node.input
    return isinstance(node, Source)


@lru_cache(maxsize=65_536)
def template_of(node: Node) -> tuple[Node, Scalar | None] | None:
    """Return a plan's template and the condition it was freed of; None if it cannot be folded."""
    match node:
        case Source():
            return node, None
        case Filter():
            found = template_of(node.input)
            if found is None:
                return None
            if isinstance(found[0], Source):
                return found[0], conjunction_of((*conjuncts_of(found[1]), *conjuncts_of(node.predicate)))
            return replace(node, input=found[0]), found[1]
        case (
            Project() | TimeWindow() | CountWindow() | PartitionedWindow() | Aggregate() | Distinct() | Granularity()
            | Istream() | Dstream()
        ):  # fmt: skip
            found = template_of(node.input)
            return None if found is None else (replace(node, input=found[0]), found[1])
        case _:
            return None


@lru_cache(maxsize=4096)
def _shared(template: Node) -> PlannedQuery:
    digest = hashlib.blake2b(msgspec.json.encode(template), digest_size=8).hexdigest()
    return PlannedQuery(f"fold-{digest}", 0, with_members(template))


def with_members(template: Node) -> Node:
    """Return a template as a plan that keeps members apart."""
    match template:
        case Aggregate() | PartitionedWindow():
            return replace(template, input=with_members(template.input), keys=(*template.keys, MEMBER.name))
        case CountWindow(rows=int(rows)):
            return PartitionedWindow(with_members(template.input), (MEMBER.name,), rows, template.slide_rows)
        case Source() | Project():
            return carrying(template, (MEMBER,), with_members)
        case _:
            return replace(template, input=with_members(template.input))  # type: ignore[union-attr] # no joins here


def carrying(node: Node, columns: Schema, below: Callable[[Node], Node] | None = None) -> Node:
    """Return a plan of filters, projections and a source that hands these columns on; `below` does what is below."""
    match node:
        case Source():
            return replace(node, columns=(*node.columns, *columns))
        case Project():
            outputs = (*node.outputs, *(Output(column.name, column_scalar(column)) for column in columns))
            return replace(node, input=below(node.input) if below else carrying(node.input, columns), outputs=outputs)
        case _:
            return replace(node, input=carrying(node.input, columns))  # type: ignore[union-attr] # a filter
