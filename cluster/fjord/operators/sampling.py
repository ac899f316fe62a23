"""Sample: the samples that a query demands (the SAMPLE clause), whatever other queries demand.

Motes sample at whole multiples of their period, as fast as all queries together need; this operator selects the samples
of one query: those stamped at multiples of its period, or, without SAMPLE, those that a mote takes at its default rate.

Devices that publish by their own rules have no grid. Of their tuples a query with a period takes each mote's first one
of a period. That needs no state: a tuple is stored with the stamps of its neighbours among those that came before it.

    period        |          k          |         k+1         |
    came           1   3        2             4     5               neighbours of 2: previous 1, next none
    taken          1                          4                     neighbours of 3: previous 1, next 2
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesNoOrigins, PassesRows
from cluster.physical import operations as kinds
from protocols.wire.batches import DEFAULT_RATE_COLUMN, NEXT_COLUMN, NO_NEIGHBOUR_US, PREVIOUS_COLUMN


class Sample(Operator):
    """Stateless.

    Parameters
    ----------
    period_us
        Samples that start at other instants than its multiples are removed, and published tuples that are not the
        first of their mote in a period that begins at a multiple. None keeps those that each mote takes at its default
        rate; a column of the stream's table marks these.
    """

    def __init__(self, period_us: int | None) -> None:
        if period_us is not None and period_us < 1:
            raise PlanError(f"a sample period is at least 1 us, not {period_us}")
        self._period_us = period_us
        if period_us is not None:
            self._on_grid = pl.col(START) % period_us == 0
            self._taken = pl.when(pl.col(PREVIOUS_COLUMN).is_null()).then(self._on_grid).otherwise(is_first(period_us))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the samples on the grid, and the first published tuple of each period."""
        del port
        rows = batch.rows
        if self._period_us is not None:
            published = PREVIOUS_COLUMN in rows.columns and rows[PREVIOUS_COLUMN].null_count() < rows.height
            rows = rows.filter(self._taken if published else self._on_grid)
        elif DEFAULT_RATE_COLUMN in rows.columns:  # a stream that no mote feeds has no rates
            own = rows[DEFAULT_RATE_COLUMN]
            rows = rows if own.all() else rows.filter(own)
        return Batch(rows, batch.watermark_us)


def is_first(period_us: int) -> pl.Expr:
    """Return whether a published tuple is the first of its mote in a period: the first that came, of all in it."""
    previous, following = pl.col(PREVIOUS_COLUMN), pl.col(NEXT_COLUMN)
    period = pl.col(START) // period_us
    begins = (previous == NO_NEIGHBOUR_US) | (previous // period_us < period)
    return begins & (following.is_null() | (following // period_us > period))


@final
class RunningSample(PassesRows, KeepsNothing, PassesNoOrigins, Alone[kinds.Sample]):
    """The samples of a period."""

    def operator(self, operation: kinds.Sample) -> Operator:
        """Return the operator."""
        return Sample(operation.period_us)
