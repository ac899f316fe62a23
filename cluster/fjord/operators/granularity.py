"""Granularity: snapshots at whole multiples of a granule only (papers/pipes_algebra.md section 5.17).

The answer stays valid up to the next multiple, so that it can be read at any instant. Only the snapshots at the
multiples are guaranteed.
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.piece_windows import PieceIntervals
from cluster.fjord.operators.time_window import ceiling_multiple
from cluster.fjord.row_flow import RowFlow, longer
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, RuntimeContext
from cluster.physical import operations as kinds


class Granularity(Operator):
    """Stateless.

    Parameters
    ----------
    granule_us
        Interval ends are moved up to its multiples; rows that are valid at none of them are removed.
    """

    def __init__(self, granule_us: int) -> None:
        if granule_us < 1:
            raise PlanError(f"a granule of {granule_us} us")
        self._granule_us = granule_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Move both ends of every interval up to a multiple."""
        del port
        granule_us, watermark_us = self._granule_us, batch.watermark_us
        if ALWAYS < watermark_us < NEVER:
            watermark_us = ceiling_multiple(watermark_us, granule_us)
        end = (
            pl.when(pl.col(END) >= NEVER)
            .then(pl.col(END))
            .otherwise(self._ceiling(pl.col(END)).clip(upper_bound=NEVER))
        )
        rows = batch.rows.with_columns(self._ceiling(pl.col(START)).alias(START), end.alias(END))
        return Batch(rows.filter(pl.col(START) < pl.col(END)), watermark_us)

    def _ceiling(self, instant: pl.Expr) -> pl.Expr:
        return -((-instant).floordiv(self._granule_us)) * self._granule_us


@final
class RunningGranularity(KeepsNothing, Alone[kinds.Granularity]):
    """Snapshots at whole multiples of a granule only."""

    def operator(self, operation: kinds.Granularity) -> Operator:
        """Return the operator."""
        return Granularity(operation.granule_us)

    def with_origins(self, operation: kinds.Granularity, context: RuntimeContext) -> Operator:
        """Return one that moves origins with the rows."""
        return PieceIntervals(self.instantiate(operation, context), windowed=False)

    def flow(self, operation: kinds.Granularity, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid longer by a granule."""
        return longer(inputs.first, operation.granule_us)
