"""Time window: how long a tuple stays valid (papers/pipes_algebra.md sections 3 and 5, with advance)."""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.piece_windows import PieceIntervals
from cluster.fjord.row_flow import RowFlow, longer, windowed
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, RuntimeContext
from cluster.operators.window_shapes import LONGEST_WINDOW_US
from cluster.physical import operations as kinds


def ceiling_multiple(instant_us: int, step_us: int) -> int:
    """Return the least multiple of `step_us` that is at least `instant_us`."""
    return -(-instant_us // step_us) * step_us


class TimeWindow(Operator):
    """Stateless. Its input is valid at instants only, or has rows whose multiplicity does not matter.

    A tuple stamped t is valid on [k0 - 1, k1 - 1), k0 and k1 being the first multiples of the slide that are at least
    t + 1 and t + size + 1. With a slide of 1 that is [t, t + size). A row that lasts until t' is, by definition, in the
    window once for each instant of its validity: on [k0 - 1, k2 - 1) at least once, k2 being the first multiple that is
    at least t' + size. Where the number of copies matters, the compiler puts a Split below.

    Parameters
    ----------
    size_us
        The size; None for ever.
    slide_us
        The window slides at its multiples.
    """

    def __init__(self, size_us: int | None, slide_us: int = 1) -> None:
        if slide_us < 1 or (size_us is not None and size_us < 1):
            raise PlanError(f"a window of {size_us} us that slides by {slide_us} us")
        self._size_us = None if size_us is None else min(size_us, LONGEST_WINDOW_US)
        self._slide_us = slide_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Set the interval of every row; remove rows whose interval is empty (the slide skips them)."""
        del port
        watermark_us = batch.watermark_us
        if ALWAYS < watermark_us < NEVER:
            watermark_us = ceiling_multiple(watermark_us + 1, self._slide_us) - 1
        stamp = pl.col(START)
        start = self._ceiling(stamp + 1) - 1
        end = pl.lit(NEVER)
        if self._size_us is not None:
            lasting = (self._ceiling(pl.col(END) + self._size_us) - 1).clip(upper_bound=NEVER)
            end = pl.when(pl.col(END) >= NEVER - self._size_us).then(end).otherwise(lasting)
        rows = batch.rows.with_columns(start.alias(START), end.alias(END)).filter(pl.col(START) < pl.col(END))
        return Batch(rows, watermark_us)

    def _ceiling(self, instant: pl.Expr) -> pl.Expr:
        return instant if self._slide_us == 1 else -((-instant).floordiv(self._slide_us)) * self._slide_us


@final
class RunningTimeWindow(KeepsNothing, Alone[kinds.TimeWindow]):
    """A window by time."""

    def operator(self, operation: kinds.TimeWindow) -> Operator:
        """Return the operator."""
        return TimeWindow(operation.size_us, operation.slide_us)

    def with_origins(self, operation: kinds.TimeWindow, context: RuntimeContext) -> Operator:
        """Return one that moves origins with the rows."""
        return PieceIntervals(self.instantiate(operation, context), windowed=True)

    def flow(self, operation: kinds.TimeWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid longer by its size."""
        longer_us = None if operation.size_us is None else operation.size_us + operation.slide_us
        return longer(windowed(inputs.first), longer_us)
