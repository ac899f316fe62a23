"""Sample: the samples that a query demands (the SAMPLE clause), whatever other queries demand.

Motes sample at whole multiples of their period, as fast as all queries together need; this operator selects the samples
of one query: those stamped at multiples of its period, or, without SAMPLE, those that a mote takes at its default rate.
"""

from __future__ import annotations

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Operator
from protocols.wire.batches import DEFAULT_RATE_COLUMN


class Sample(Operator):
    """Stateless.

    Parameters
    ----------
    period_us
        Rows that start at other instants than its multiples are removed. None keeps those that each mote takes at its
        default rate; a column of the stream's table marks these.
    """

    def __init__(self, period_us: int | None) -> None:
        if period_us is not None and period_us < 1:
            raise PlanError(f"a sample period is at least 1 us, not {period_us}")
        self._period_us = period_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows on the grid."""
        del port
        rows = batch.rows
        if self._period_us is not None:
            rows = rows.filter(pl.col(START) % self._period_us == 0)
        elif DEFAULT_RATE_COLUMN in rows.columns:  # a stream that no mote feeds has no rates
            own = rows[DEFAULT_RATE_COLUMN]
            rows = rows if own.all() else rows.filter(own)
        return Batch(rows, batch.watermark_us)
