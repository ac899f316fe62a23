"""Sample: the tuples stamped at whole multiples of a period (the SAMPLE clause).

Motes sample at whole multiples of their period, and a stream carries the fastest rate any query asked for; this gives a
query exactly the samples it asked for.
"""

from __future__ import annotations

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Operator


class Sample(Operator):
    """Stateless.

    Parameters
    ----------
    period_us
        Rows that start at another instant than a multiple of it go.
    """

    def __init__(self, period_us: int) -> None:
        if period_us < 1:
            raise PlanError(f"a sample period is at least 1 us, not {period_us}")
        self._period_us = period_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows on the grid."""
        del port
        return Batch(batch.rows.filter(pl.col(START) % self._period_us == 0), batch.watermark_us)
