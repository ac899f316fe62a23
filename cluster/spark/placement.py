"""What runs where: a plan's folds and lone queries with their edges, and which bucket a row goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from cluster.fjord.edges import Edge, edges_of
from cluster.language.algebra import MEMBER
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import Fold, fold
from cluster.spark.envelopes import bucket_of, split_by_bucket

_BUCKET = "fjord_bucket"


@dataclass(frozen=True, slots=True)
class Part:
    """Something with operators of its own: a fold, or a query that runs alone.

    Parameters
    ----------
    query
        Its plan.
    edges
        Where that is cut.
    fold
        The members; None for a lone query.
    """

    query: PlannedQuery
    edges: tuple[Edge, ...]
    fold: Fold | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of the members' queries, by number."""

    @property
    def spread(self) -> bool:
        """True if its rows go to buckets by their values, so that each bucket has a share."""
        return any(edge.partition_by for edge in self.edges)

    def in_bucket(self, bucket: int, buckets: int) -> bool:
        """Return whether a bucket has anything to do for it."""
        if self.spread:
            return True
        if self.fold is None:
            return bucket_of(self.query.identity, buckets) == bucket
        return any(member.number % buckets == bucket for member in self.fold.members)


def parts_of(plan: Plan) -> tuple[Part, ...]:
    """Return what runs of a plan: its folds, and its lone queries."""
    folded = fold(plan)
    folds = (
        Part(
            each.shared,
            tuple(_by_values_only(edge) for edge in edges_of(each.shared)),
            each,
            {member.number: member.query.name for member in each.members},
        )
        for each in folded.folds
    )
    return (*folds, *(Part(query, edges_of(query)) for query in folded.alone))


def routed(part: Part, edge: Edge, rows: pl.DataFrame, buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket: by key, by member, or all to the lone query's own."""
    if edge.partition_by:
        return split_by_bucket(rows, edge.partition_by, buckets)
    if part.fold is None:
        return {bucket_of(edge.owner, buckets): rows}
    placed = rows.with_columns((pl.col(MEMBER.name) % buckets).alias(_BUCKET))
    pieces = placed.partition_by(_BUCKET, as_dict=True, maintain_order=True, include_key=False)
    return {int(bucket): piece for (bucket,), piece in pieces.items()}


def _by_values_only(edge: Edge) -> Edge:
    """Spread a fold's rows by what its template groups by; members with the same value share a bucket."""
    return replace(edge, partition_by=tuple(key for key in edge.partition_by if key != MEMBER.name))
