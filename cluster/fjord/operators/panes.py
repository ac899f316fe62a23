"""Panes: all tuples of a period get one stamp, so that an aggregate makes one partial row of them."""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesNoOrigins, PassesRows
from cluster.physical import operations as kinds


class Panes(Operator):
    """Stateless. A tuple stamped t gets the last instant of its pane, one microsecond before a multiple of the width.

    Parameters
    ----------
    width_us
        The width of a pane.
    """

    def __init__(self, width_us: int) -> None:
        if width_us < 1:
            raise PlanError(f"a pane of {width_us} us")
        self._width_us = width_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Move the stamps; the watermark stays, because no stamp moves back."""
        del port
        pane = (pl.col(START).floordiv(self._width_us) + 1) * self._width_us - 1
        return Batch(batch.rows.with_columns(pane.alias(START), (pane + 1).alias(END)), batch.watermark_us)


@final
class RunningPanes(PassesRows, KeepsNothing, PassesNoOrigins, Alone[kinds.Panes]):
    """One stamp for all rows of a pane."""

    def operator(self, operation: kinds.Panes) -> Operator:
        """Return the operator."""
        return Panes(operation.width_us)
