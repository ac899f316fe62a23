"""Rewriting plans by equivalences that need no knowledge of the data (papers/pipes_algebra.md section 4).

**From when on rows of relations can be without a partner: once all windows that they are held against are full.**

    keep if none in 10 minutes of b           waits for both, 10 minutes
    `- keep if none in 5 minutes of a
       `- rows of sensors while they hold     so these begin 10 minutes after both streams

Before, a query has not seen what would be in these windows, and would report sensors as silent that are not. A row that
is chosen because it has partners, and goes through no such operator, does not wait.

**ASOF and zipper joins with exactly the columns that the query reads: their values break ties between partners.**

Of right tuples with equal stamps, the partner in an ASOF join is the one with the greatest values; in a zipper join, on
both sides, the first is the one with the least. Rules move and remove what is above a join, so what they leave of the
columns depends on how a query is written. Here it is what the query reads as it was written, and no rule removes any of
it later.

Rules that only pay off for some data (the order of joins, distinct below joins, grouping below a join, which needs a
unique key) are not here: they belong to a cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from msgspec.structs import replace

from cluster.operators import AntiJoin, Difference, Held, Lookup, Node, Project, SemiJoin, StampJoin, Zip
from cluster.operators.columns import Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, null_scalar
from cluster.operators.size_ranges import with_sizes
from cluster.operators.walks import above, nodes_of, parts_shared, written_out
from cluster.plan.expressions import kept
from cluster.plan.extents import with_counted_extents
from cluster.plan.lookups import with_lookups, with_ordered_lookups
from cluster.plan.rules import joins, projection, selection
from cluster.planning_budget import PlanningLimitError, spend
from cluster.shared_nodes import remembered

if TYPE_CHECKING:
    from cluster.plan.names_read import RelationSize


def with_waits(node: Node) -> Node:
    """Return a plan whose rows of relations begin when all windows can be full that they are held against."""
    found = [each for each in nodes_of(node) if isinstance(each, AntiJoin | Difference) and _holds(each.left)]
    if not found:
        return node
    against = tuple(sorted(frozenset[str]().union(*(each.right.streams for each in found))))
    made: dict[tuple[int, int], Node] = {}

    def waiting(current: Node, waits_us: int) -> Node:
        """Return a plan whose rows that come out of it wait so long; those that others are held against do not."""
        key = (id(current), waits_us)
        if key not in made:
            made[key] = anew(current, waits_us)
        return made[key]

    def anew(current: Node, waits_us: int) -> Node:
        if isinstance(current, Held):
            waits_us = max(waits_us, current.waits_us)
            below = waiting(current.input, 0)
            return replace(current, input=below, waits_us=waits_us, against=against if waits_us else ())
        if not isinstance(current, AntiJoin | SemiJoin | Difference):
            return above(current, tuple([waiting(each, waits_us) for each in current.inputs]))
        right = waiting(current.right, 0)
        if not isinstance(current, SemiJoin):
            waits_us = max(waits_us, current.right.full_after_us)
        return above(current, (waiting(current.left, waits_us), right))

    return waiting(node, 0)


@remembered
def _holds(node: Node) -> bool:
    """Return whether rows of relations flow through a plan, and are not only what others are held against."""
    return isinstance(node, Held) or any(_holds(each) for each in _passed(node))


def _passed(node: Node) -> tuple[Node, ...]:
    return (node.left,) if isinstance(node, AntiJoin | SemiJoin | Difference) else node.inputs


def with_partner_columns(node: Node) -> Node:
    """Return a plan, not rewritten yet, in which sides whose columns break ties have only those that are read."""
    if not any(_breaks_ties(each) for each in nodes_of(node)):
        return node
    read = _columns_read(node)
    made: dict[int, Node] = {}

    def visit(current: Node) -> Node:
        found = made.get(id(current))
        if found is None:
            found = above(current, tuple([visit(each) for each in current.inputs]))
            if _breaks_ties(found):
                found = _narrowed(found, read[id(current)])
            made[id(current)] = found
        return found

    return visit(node)


def _breaks_ties(node: Node) -> TypeGuard[Zip | StampJoin]:
    return isinstance(node, Zip) or (isinstance(node, StampJoin) and node.latest)


def _narrowed(join: Zip | StampJoin, read: frozenset[str]) -> Node:
    """Return a join of the same columns, with NULL for those that nothing reads."""
    left, right = (project(side, kept(side, read.union(*join.keys))) for side in (join.left, join.right))
    if isinstance(join, StampJoin):
        left = join.left
    if (left, right) == (join.left, join.right):
        return join
    unread = (join.left.names - left.names) | (join.right.names - right.names)
    outputs = [
        Output(each.name, null_scalar(each) if each.name in unread else column_scalar(each), each.unit)
        for each in join.schema
    ]
    return Project(replace(join, left=left, right=right), tuple(outputs))


def _columns_read(node: Node) -> dict[int, frozenset[str]]:
    """Return which columns of each node of a plan are read, by identity of the node."""
    found: dict[int, frozenset[str]] = {}
    waiting = [(node, node.names)]
    while waiting:
        current, read = waiting.pop()
        known = found.get(id(current))
        if known is not None and read <= known:
            continue
        spend()
        found[id(current)] = read if known is None else known | read
        waiting.extend(_read_below(current, found[id(current)]))
    return found


def _read_below(node: Node, read: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    if _breaks_ties(node):
        own = read.union(*node.keys)
        yield from ((side, own & side.names) for side in (node.left, node.right))
    else:
        yield from ((below, needed) for below, needed, _ in node.needed_below(read, ()))


Rule = Callable[["Node"], "Node | None"]

RULES: tuple[Rule, ...] = (
    # Windows first: removing one spares the other rules work.
    projection.drop_now_window,
    projection.unbounded_count_window,
    projection.istream_of_unbounded_window,
    projection.drop_finest_granularity,
    projection.merge_granularities,
    projection.merge_windows_below_distinct,
    projection.window_below_union,
    # Selections sink.
    selection.merge_filters,
    selection.drop_repeated_conditions,
    selection.filter_below_project,
    selection.filter_below_union,
    selection.filter_below_time_window,
    selection.filter_below_partitioned_window,
    selection.filter_below_sequence,
    selection.filter_below_aggregate,
    selection.filter_below_ranked,
    selection.filter_below_extent,
    selection.filter_below_distinct,
    selection.filter_below_difference,
    selection.filter_below_intersection,
    selection.filter_below_granularity,
    selection.filter_below_changes,
    joins.filter_below_zip,
    joins.filter_below_stamp_join,
    joins.filter_into_join,
    joins.filter_below_existence,
    joins.filter_below_lookup,
    selection.filter_below_held,
    joins.join_condition_to_sides,
    joins.semijoin_condition_to_sides,
    joins.antijoin_condition_to_right,
    joins.split_antijoin,
    joins.avoid_product,
    selection.drop_empty_side,
    # Duplicates.
    selection.drop_needless_distinct,
    selection.distinct_once_over_union,
    selection.distinct_once_over_project,
    selection.distinct_once_over_window,
    selection.drop_distinct_below_extremes,
    selection.subtract_once,
    joins.drop_distinct_in_existence,
    joins.existence_by_extreme,
    # Projections merge, and sink to where they narrow state.
    projection.drop_identity_project,
    projection.merge_projects,
    projection.project_below_union,
    projection.project_above_window,
    projection.project_below_time_window,
    projection.project_below_count_window,
    projection.project_below_partitioned_window,
    projection.project_below_granularity,
    selection.project_below_held,
    projection.drop_unused_calls,
    projection.groups_without_aggregates,
    projection.narrow_aggregate,
    joins.narrow_join,
    joins.narrow_stamp_join,
    joins.narrow_existence,
    joins.narrow_existence_left,
)
"""All rules, in the order in which they are tried at each node."""

COPYING: frozenset[Rule] = frozenset(
    {
        projection.window_below_union,
        selection.filter_below_union,
        selection.filter_below_difference,
        selection.filter_below_intersection,
        projection.project_below_union,
    }
)
"""Rules that push a node below several inputs."""

LARGEST_COPIED = 50
"""Most nodes of a plan that is the input of several others and may be copied for each of them: a node that one of them
pushes below both inputs of a union is not pushed by the others. A condition with OR over subqueries gives a union of
two parts that share everything; ten of them, one above the other, would give a thousand copies."""

MOST_STEPS = 10_000
"""Applications of rules on one plan. More are an error: the plan is too large, or two rules undo each other."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten plan.

    Parameters
    ----------
    node
        The plan; snapshot-equivalent to the original one.
    applied
        Names of the rules that made it, in the order of their application.
    """

    node: Node
    applied: tuple[str, ...]


def rewrite(
    node: Node,
    rules: tuple[Rule, ...] = RULES,
    *,
    large: frozenset[str] = frozenset(),
    sizes: Mapping[str, RelationSize] | None = None,
) -> Rewritten:
    """Return `node` after applying `rules` bottom-up until none matches, and turning joins with relations into lookups.

    Parameters
    ----------
    node
        The plan. It stays as it is; plans are values. Ranges that it has are at their best.
    rules
        The rules to use.
    large
        Identities of relations that are too large for the memory of every worker.
    sizes
        Known statistics of relations, by identity: they decide the order of lookups.

    Raises
    ------
    PlanError
        If a relation stands where only a stream can.
    PlanningLimitError
        If it takes too many steps.
    """
    applied: list[str] = []
    finished: dict[int, tuple[Node, Node]] = {}
    """Results by the identity of the node; kept with the node, so that its identity stays valid."""
    same: dict[Node, Node] = {}
    """The one object that stands for all equal ones: comparing the nodes above is then fast."""

    node = with_partner_columns(with_sizes(node))
    shared = parts_shared(node)
    common: dict[int, Node] = {}
    """Results of large parts that are shared."""

    def improved(current: Node) -> Node | None:
        whole = any(id(below) in common for below in current.inputs)
        for rule in rules:
            if whole and rule in COPYING:
                continue
            spend()
            better = rule(current)
            if better is not None and better != current:
                applied.append(rule.__name__)
                if len(applied) > MOST_STEPS:
                    last = ", ".join(dict.fromkeys(applied[-6:]))
                    raise PlanningLimitError(
                        f"rewriting this query does not come to rest within {MOST_STEPS:,} steps; the last were {last}",
                        hint="make several queries of it",
                    )
                return better
        return None

    def above_rewritten(current: Node) -> Node:
        made = above(current, tuple([visit(each) for each in current.inputs]))
        return same.setdefault(made, made)

    def visit(current: Node) -> Node:
        if id(current) in finished:
            return finished[id(current)][-1]
        made = result = above_rewritten(current)
        if id(made) in finished:
            result = finished[id(made)][-1]
        else:
            while (better := improved(result)) is not None:
                result = above_rewritten(better)
        for each in (current, made, result):
            finished[id(each)] = (each, result)
        if id(current) in shared and written_out(result) > LARGEST_COPIED:
            common[id(result)] = result
        return result

    rewritten = visit(node)
    looked_up = with_waits(with_lookups(rewritten, large))
    if looked_up != rewritten:
        renewing = projection.groups_without_aggregates
        if renewing in rules and renewing.__name__ in applied and _has_lookup(looked_up):
            return rewrite(node, tuple(rule for rule in rules if rule is not renewing), large=large, sizes=sizes)
        applied.append("relations_are_looked_up")
        rewritten = with_ordered_lookups(visit(looked_up), sizes or {})
    return Rewritten(with_counted_extents(rewritten), tuple(applied))


def _has_lookup(node: Node) -> bool:
    """Return whether computed rows are looked up. Then it matters where rows begin, which rules may change.

    A group has new rows with every step of its window, DISTINCT has one row as long as it is valid.
    """
    return any(isinstance(each, Lookup) for each in nodes_of(node))
