"""Rewriting plans by equivalences that need no knowledge of the data (papers/pipes_algebra.md section 4).

Rules that only pay off for some data (the order of joins, distinct below joins, grouping below a join, which needs a
unique key) are not here: they belong to a cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.operators import Lookup
from cluster.operators.size_ranges import with_sizes
from cluster.operators.walks import above, nodes_of, parts_shared, written_out
from cluster.plan.counted_extents import with_counted_extents
from cluster.plan.full_windows import with_waits
from cluster.plan.lookup_order import with_ordered_lookups
from cluster.plan.lookups import with_lookups
from cluster.plan.partner_columns import with_partner_columns
from cluster.plan.rules import (
    duplicates,
    emptiness,
    extremes,
    held_rows,
    joins,
    projection,
    selection,
    stamp_joins,
    windows,
    zips,
)
from cluster.planning_budget import PlanningLimitError, spend

if TYPE_CHECKING:
    from cluster.operators import Node
    from cluster.plan.relations_read import RelationSize

Rule = Callable[["Node"], "Node | None"]

RULES: tuple[Rule, ...] = (
    # Windows first: removing one spares the other rules work.
    windows.drop_now_window,
    windows.unbounded_count_window,
    windows.istream_of_unbounded_window,
    windows.drop_finest_granularity,
    windows.merge_granularities,
    windows.merge_windows_below_distinct,
    windows.window_below_union,
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
    zips.filter_below_zip,
    stamp_joins.filter_below_stamp_join,
    joins.filter_into_join,
    joins.filter_below_existence,
    joins.filter_below_lookup,
    held_rows.filter_below_held,
    joins.join_condition_to_sides,
    joins.semijoin_condition_to_sides,
    joins.antijoin_condition_to_right,
    joins.split_antijoin,
    joins.avoid_product,
    emptiness.drop_empty_side,
    # Duplicates.
    duplicates.drop_needless_distinct,
    duplicates.distinct_once_over_union,
    duplicates.distinct_once_over_project,
    duplicates.distinct_once_over_window,
    duplicates.drop_distinct_below_extremes,
    duplicates.subtract_once,
    joins.drop_distinct_in_existence,
    extremes.existence_by_extreme,
    # Projections merge, and sink to where they narrow state.
    projection.drop_identity_project,
    projection.merge_projects,
    projection.project_below_union,
    projection.project_above_window,
    projection.project_below_time_window,
    projection.project_below_count_window,
    projection.project_below_partitioned_window,
    projection.project_below_granularity,
    held_rows.project_below_held,
    projection.drop_unused_calls,
    projection.groups_without_aggregates,
    projection.narrow_aggregate,
    joins.narrow_join,
    stamp_joins.narrow_stamp_join,
    joins.narrow_existence,
    joins.narrow_existence_left,
)
"""All rules, in the order in which they are tried at each node."""

COPYING: frozenset[Rule] = frozenset(
    {
        windows.window_below_union,
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
