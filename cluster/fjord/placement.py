"""What runs where: a plan's folds with their edges, and which bucket a row goes to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl

from cluster.fjord.buckets import split_by_bucket
from cluster.fjord.edges import MADE, Edge, edges_of, pane_edge
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.told_aggregates import ToldAggregates, ToldTo
from cluster.fjord.operators.without_told import WithoutTold
from cluster.language.algebra import MEMBER, Node, Schema
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.plan.expressions import columns_of
from cluster.plan.folding import RIGHT, Choices, Fold, Groups, fold
from cluster.plan.hosts import Host, hosted_by
from cluster.plan.pane_folding import PaneFold
from cluster.plan.push_down import chosen_by, fixed_columns
from protocols.programs import Measure

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
    choices
        By filter further up: the listeners' own conditions, by number of the group.
    """

    identity: str
    plan: PlannedQuery | PaneFold
    edges: tuple[Edge, ...]
    listeners: tuple[Listener, ...]
    groups: tuple[Groups, ...]
    shares_rows: bool
    choices: Choices = ()

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
        columns = tuple(column for column in source.columns if column not in MADE)
        return GroupedFilter(self.groups[source.occurrence], columns, newest if self.shares_rows else None)

    def without_told(self) -> WithoutTold | None:
        """Return what takes away the samples that sensors have aggregated; None if they aggregate nothing for it."""
        if not isinstance(self.plan, PaneFold) or not self.plan.told:
            return None
        told = self.plan.told
        only = frozenset(group for group, pushed in told.items() if pushed.counts_events)
        return WithoutTold({group: pushed.form for group, pushed in told.items()}, only)

    def told_aggregates(self) -> ToldAggregates | None:
        """Return what takes up the aggregates that sensors made; None if they make none for it."""
        if not isinstance(self.plan, PaneFold) or not self.plan.told:
            return None
        return self._told(
            self.plan,
            [
                ToldTo(
                    member.group,
                    member.pushed.form,
                    member.pushed.chosen.fixed,
                    member.number,
                    member.pane_query.own_pane_us,
                    member.pushed.measures,
                )
                for member in self.plan.members
                if member.pushed is not None
            ],
        )

    def told_counts(self) -> ToldAggregates | None:
        """Return what takes up how many samples are missing; None if nobody asks for it."""
        if not isinstance(self.plan, PaneFold):
            return None
        told_to = [
            ToldTo(
                member.group,
                member.counted,
                chosen_by(member.pane_query.source, member.pane_query.predicate).fixed,
                member.number,
                member.pane_query.own_pane_us,
                (),
            )
            for member in self.plan.members
            if member.counted is not None
        ]
        return self._told(self.plan, told_to) if told_to else None

    def _told(self, panes: PaneFold, told_to: list[ToldTo]) -> ToldAggregates | None:
        fixed = self.fixed_columns
        keys = tuple(key for key in panes.keys if columns_of(key.scalar) <= {column.name for column in fixed})
        if len(keys) < len(panes.keys):
            return None
        return ToldAggregates(told_to, fixed, keys=keys, calls=panes.calls, pane_us=panes.pane_us)

    @property
    def fixed_columns(self) -> Schema:
        """Columns of the stream that are properties of sensors."""
        source = self.edges[0].source
        return tuple(column for column in source.columns if column.name in fixed_columns(source))

    @property
    def told_measures(self) -> dict[str, tuple[Measure, ...]]:
        """What is read of the aggregates that sensors made, by field."""
        found: dict[str, tuple[Measure, ...]] = {}
        if isinstance(self.plan, PaneFold):
            for pushed in self.plan.told.values():
                for field, measures in pushed.measures:
                    found[field] = tuple(dict.fromkeys((*found.get(field, ()), *measures)))
        return found

    def in_bucket(self, bucket: int, buckets: int) -> bool:
        """Return whether a bucket has anything to do for it."""
        return self.spread or any(listener.home(buckets) == bucket for listener in self.listeners)


def parts_of(plan: Plan) -> tuple[Part, ...]:
    """Return what runs of a plan."""
    folded = fold(plan)
    return (*map(_part_of_fold, folded.folds), *map(_part_of_panes, folded.panes))


@lru_cache(maxsize=8)
def parts_at(plans_folder: str, epoch: int, host: Host) -> tuple[Part, ...]:
    """Return what one of a Fjord's two Spark queries runs of an epoch's plan."""
    return parts_of(hosted_by(PlanFiles(Path(plans_folder)).read(epoch), host))


def _part_of_fold(each: Fold) -> Part:
    listeners = tuple(Listener(member.query, member.group) for member in each.members)
    identity = each.shared.identity
    return Part(identity, each.shared, edges_of(each.shared), listeners, each.groups, each.shares_tuples, each.choices)


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
