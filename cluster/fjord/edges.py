"""Where a plan is cut: into edges between what runs next to the scan and what runs behind Spark's shuffle.

Stateless chains above a stream run upstream; if an aggregate follows, its first half runs there too. Everything else
runs downstream. An *edge* is a queue that happens to cross the shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import INTERVAL
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import (
    MEMBER,
    SINCE,
    STAMP,
    Aggregate,
    Filter,
    Node,
    Project,
    Schema,
    Source,
    TimeWindow,
    schema_of,
)
from cluster.language.bounds import named_operator
from cluster.plan.cuts import cuts_of, partition_keys
from cluster.plan.epoch import PlannedQuery
from cluster.plan.pane_folding import PaneFold
from cluster.plan.push_down import event_form

SAMPLES = "samples"
MADE = (STAMP, MEMBER, SINCE)
"""Columns of a source that are made when it is read, not stored."""


class UnsupportedPlanError(PlanError):
    """A plan with an operator that cannot be run yet."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a query's plan is cut.

    Parameters
    ----------
    name
        Unique among all edges of a Fjord, for ever.
    owner
        Identity of the query.
    chain
        The stateless part above the stream, which runs upstream.
    aggregate
        The aggregate directly above it, whose first half runs upstream too; or None.
    partition_by
        Columns by whose values rows go to buckets; empty sends all to the query's own bucket.
    pane_us
        Width of the panes in which the aggregate begins; None if it has none.
    """

    name: str
    owner: str
    chain: Node
    aggregate: Aggregate | None
    partition_by: tuple[str, ...]
    pane_us: int | None = None

    @property
    def source(self) -> Source:
        """The stream below the chain, with the columns it reads."""
        node = self.chain
        while not isinstance(node, Source):
            if not isinstance(node, Filter | Project | TimeWindow):
                raise UnsupportedPlanError(f"{named_operator(node)} cannot be run where the stream is read")
            node = node.input
        return node

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self.source.stream

    @property
    def scanned(self) -> str:
        """What it reads of the stream: its samples, or events in them in one form."""
        source = self.source
        return SAMPLES if source.detector is None else event_form(source)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads of the stream."""
        return tuple(column.name for column in stored_columns(self.source))

    def empty_rows(self) -> pl.DataFrame:
        """Return no rows, with the columns that cross the edge."""
        rows = empty_rows(schema_of(self.chain))
        if self.aggregate is None:
            return rows
        return PartialAggregate(self.aggregate.keys, self.aggregate.calls).empty(rows)


def stored_columns(source: Source) -> Schema:
    """Return the columns that the stream's table holds."""
    return tuple(column for column in source.sampled if column not in MADE)


def empty_rows(schema: Schema) -> pl.DataFrame:
    """Return no rows, with these columns and the interval."""
    return pl.DataFrame(schema={**INTERVAL, **{column.name: POLARS_TYPES[column.type] for column in schema}})


@lru_cache(maxsize=16_384)
def edges_of(query: PlannedQuery) -> tuple[Edge, ...]:
    """Return where a query's plan is cut, left to right."""
    keyed = partition_keys(query.node)
    return tuple(
        Edge(f"{query.identity}/{number}", query.identity, chain, aggregate, keyed)
        for number, (chain, aggregate) in enumerate(cuts_of(query.node))
    )


def pane_edge(fold: PaneFold) -> Edge:
    """Return the one edge of windowed aggregates that share panes."""
    keys = tuple(key.name for key in fold.keys)
    return Edge(f"{fold.name}/0", fold.name, fold.chain, fold.aggregate, keys, fold.pane_us)
