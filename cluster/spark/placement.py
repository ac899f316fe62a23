"""What runs where: a plan's folds with their edges, and which bucket a row goes to."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from cluster.fjord.edges import Edge, edges_of, pane_edge, stored_columns
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.language.algebra import MEMBER, Node
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import RIGHT, Fold, Groups, fold
from cluster.plan.pane_folding import PaneFold
from cluster.spark.envelopes import split_by_bucket

_BUCKET = "fjord_bucket"


@dataclass(frozen=True, slots=True)
class Listener:
    """A query that a part answers.

    Parameters
    ----------
    query
        The query.
    group
        Number of the rows that are its own.
    window_us
        Size and slide of the window whose answers are its own; None where answers are not told apart by windows.
    top
        What is left to do to its answers; None for nothing.
    """

    query: PlannedQuery
    group: int
    window_us: tuple[int, int] | None = None
    top: Node | None = None

    def home(self, buckets: int) -> int:
        """Return the bucket that speaks for it when there is nothing but an error to say."""
        return self.group % buckets


@dataclass(frozen=True, slots=True)
class Part:
    """Something with operators of its own: a fold, or windowed aggregates that share panes.

    Parameters
    ----------
    identity
        A name no other part of this Fjord ever has.
    plan
        What it runs.
    edges
        Where that is cut.
    listeners
        Whom it answers.
    groups
        By source: the conditions of its grouped filter, by number of the group.
    shares_rows
        True if several listeners may have the same group; then rows say which of these they are for.
    """

    identity: str
    plan: PlannedQuery | PaneFold
    edges: tuple[Edge, ...]
    listeners: tuple[Listener, ...]
    groups: tuple[Groups, ...]
    shares_rows: bool

    @property
    def spread(self) -> bool:
        """True if its rows go to buckets by their values, so that each bucket has a share."""
        return any(edge.partition_by for edge in self.edges)

    def grouped_filter(self, edge: Edge) -> GroupedFilter:
        """Return what gives the groups their tuples of an edge's stream."""
        newest: dict[int, int] = {}
        for listener in self.listeners:
            newest[listener.group] = max(newest.get(listener.group, 0), listener.query.since_epoch)
        source = edge.source
        return GroupedFilter(
            self.groups[source.occurrence], stored_columns(source), newest if self.shares_rows else None
        )

    def in_bucket(self, bucket: int, buckets: int) -> bool:
        """Return whether a bucket has anything to do for it."""
        return self.spread or any(listener.home(buckets) == bucket for listener in self.listeners)


def parts_of(plan: Plan) -> tuple[Part, ...]:
    """Return what runs of a plan."""
    folded = fold(plan)
    return (*map(_part_of_fold, folded.folds), *map(_part_of_panes, folded.panes))


def _part_of_fold(each: Fold) -> Part:
    listeners = tuple(Listener(member.query, member.group) for member in each.members)
    identity = each.shared.identity
    return Part(identity, each.shared, edges_of(each.shared), listeners, each.groups, each.shares_tuples)


def _part_of_panes(each: PaneFold) -> Part:
    listeners = tuple(
        Listener(member.query, member.group, (member.pane_query.size_us, member.pane_query.slide_us), member.top)
        for member in each.members
    )
    return Part(each.name, each, (pane_edge(each),), listeners, (each.groups,), shares_rows=True)


def routed(edge: Edge, rows: pl.DataFrame, buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket: by key, or by group."""
    if edge.partition_by:
        return split_by_bucket(rows, edge.partition_by, buckets)
    marked = MEMBER.name if MEMBER.name in rows.columns else RIGHT + MEMBER.name
    placed = rows.with_columns((pl.col(marked) % buckets).alias(_BUCKET))
    pieces = placed.partition_by(_BUCKET, as_dict=True, maintain_order=True, include_key=False)
    return {int(bucket): piece for (bucket,), piece in pieces.items()}
