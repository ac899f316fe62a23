"""What runs where: a plan's folds and lone queries with their edges, and which bucket a row goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from cluster.fjord.edges import Edge, edges_of, pane_edge
from cluster.language.algebra import MEMBER, Node, Scalar
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import Fold, fold
from cluster.plan.pane_folding import PaneFold
from cluster.spark.envelopes import bucket_of, split_by_bucket

_BUCKET = "fjord_bucket"


@dataclass(frozen=True, slots=True)
class Listener:
    """A query that a part answers.

    Parameters
    ----------
    query
        The query.
    group
        Number of the rows that are its own; None for a lone query.
    window_us
        Size and slide of the window whose answers are its own; None where answers are not told apart by windows.
    top
        What is left to do to its answers; None for nothing.
    """

    query: PlannedQuery
    group: int | None = None
    window_us: tuple[int, int] | None = None
    top: Node | None = None

    def home(self, buckets: int) -> int:
        """Return the bucket that speaks for it when there is nothing but an error to say."""
        return bucket_of(self.query.identity, buckets) if self.group is None else self.group % buckets


@dataclass(frozen=True, slots=True)
class Part:
    """Something with operators of its own: a fold, windowed aggregates that share panes, or a query that runs alone.

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
        The conditions of its grouped filter, by number of the group; None for a lone query.
    shares_rows
        True if several listeners may have the same group; then rows say which of these they are for.
    """

    identity: str
    plan: PlannedQuery | PaneFold
    edges: tuple[Edge, ...]
    listeners: tuple[Listener, ...]
    groups: tuple[tuple[int, Scalar | None], ...] | None = None
    shares_rows: bool = False

    @property
    def spread(self) -> bool:
        """True if its rows go to buckets by their values, so that each bucket has a share."""
        return any(edge.partition_by for edge in self.edges)

    @property
    def newest(self) -> Mapping[int, int]:
        """By group: the epoch with which its newest query began."""
        found: dict[int, int] = {}
        for listener in self.listeners:
            if listener.group is not None:
                found[listener.group] = max(found.get(listener.group, 0), listener.query.since_epoch)
        return found

    def in_bucket(self, bucket: int, buckets: int) -> bool:
        """Return whether a bucket has anything to do for it."""
        return self.spread or any(listener.home(buckets) == bucket for listener in self.listeners)


def parts_of(plan: Plan) -> tuple[Part, ...]:
    """Return what runs of a plan: its folds, and its lone queries."""
    folded = fold(plan)
    return (
        *(_part_of_fold(each) for each in folded.folds),
        *(_part_of_panes(each) for each in folded.panes),
        *(Part(query.identity, query, edges_of(query), (Listener(query),)) for query in folded.alone),
    )


def _part_of_fold(each: Fold) -> Part:
    edges = tuple(_by_values_only(edge) for edge in edges_of(each.shared))
    listeners = tuple(Listener(member.query, member.group) for member in each.members)
    return Part(each.shared.identity, each.shared, edges, listeners, each.groups, each.shares_tuples)


def _part_of_panes(each: PaneFold) -> Part:
    listeners = tuple(
        Listener(member.query, member.group, (member.pane_query.size_us, member.pane_query.slide_us), member.top)
        for member in each.members
    )
    return Part(each.name, each, (pane_edge(each),), listeners, each.groups, shares_rows=True)


def routed(part: Part, edge: Edge, rows: pl.DataFrame, buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket: by key, by group, or all to the lone query's own."""
    if edge.partition_by:
        return split_by_bucket(rows, edge.partition_by, buckets)
    if part.groups is None:
        return {bucket_of(edge.owner, buckets): rows}
    placed = rows.with_columns((pl.col(MEMBER.name) % buckets).alias(_BUCKET))
    pieces = placed.partition_by(_BUCKET, as_dict=True, maintain_order=True, include_key=False)
    return {int(bucket): piece for (bucket,), piece in pieces.items()}


def _by_values_only(edge: Edge) -> Edge:
    """Spread a fold's rows by what its template groups by; members with the same value share a bucket."""
    return replace(edge, partition_by=tuple(key for key in edge.partition_by if key != MEMBER.name))
