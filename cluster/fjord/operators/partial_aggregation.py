"""The first half of an aggregate: the rows of one batch become one partial row per key and interval."""

from __future__ import annotations

import polars as pl

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.language.columns import AggregateCall


class PartialAggregate(Operator):
    """Stateless. Rows with equal key and interval form a pane: they always count together.

    Parameters
    ----------
    keys
        Columns to group by; NULL is a key like any other.
    calls
        The aggregates.
    """

    def __init__(self, keys: tuple[str, ...], calls: tuple[AggregateCall, ...]) -> None:
        self._by = [START, END, *keys]
        self._begin = [column.begin for column in partial_columns(calls)]

    def empty(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return no partial rows, with their columns, given rows to aggregate."""
        return rows.clear().group_by(self._by).agg(self._begin)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the partial rows of a batch, in start order."""
        del port
        partial = batch.rows.group_by(self._by, maintain_order=True).agg(self._begin)
        return Batch(partial.sort(START, maintain_order=True), batch.watermark_us)
