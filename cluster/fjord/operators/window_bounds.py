"""Begin and end of a window as columns of the rows of its aggregate: cut where the window moves.

windows of 10 that move every 5      a row of the aggregate    |---------------------)     4 to 14: nothing has changed
                                     its bounds                |- -5, 5 --|-- 0, 10 -)
"""

from __future__ import annotations

from typing import final

import numpy as np
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, START, Batch, instant_text
from cluster.fjord.operator import Operator
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesRows, RuntimeContext
from cluster.fjord.window_boundaries import next_boundaries, windows_at
from cluster.operators.window_shapes import Grid
from cluster.physical import operations as kinds

MOST_PIECES = 1_000_000
"""A row that outlasts so many windows, as one that holds for ever, is not cut into them."""


class WindowBounds(Operator):
    """Stateless.

    Parameters
    ----------
    grid
        The boundaries of the window, and its size.
    start, end
        The names of the columns.
    """

    def __init__(self, grid: Grid, start: str, end: str) -> None:
        if grid.size is None:
            raise PlanError("a window that is reset has no bounds")
        self._grid = grid
        self._names = start, end

    def transition(self, port: int, batch: Batch) -> Batch:
        """Cut rows at the instants at which the window moves, and add its bounds.

        Raises
        ------
        PlanError
            If a row outlasts too many windows.
        """
        del port
        lasts_us = (batch.rows[END] - batch.rows[START]).max()
        if isinstance(lasts_us, int) and lasts_us // self._grid.step.usual_us > MOST_PIECES:
            longest = batch.rows.filter(pl.col(END) - pl.col(START) == lasts_us)
            since, until = (instant_text(int(longest[each][0])) for each in (START, END))
            raise PlanError(
                f"a row that holds from {since} {'for ever' if until is None else f'until {until}'} would have the "
                f"bounds of more than {MOST_PIECES:,} windows",
                hint="let rows end: VALID UNTIL NEXT ... MAX 1 HOUR, or a window of some size; or give a longer SLIDE",
            )
        pieces = [self._with_bounds(batch.rows)]
        left = batch.rows
        while left.height:
            moves = next_boundaries(self._grid, left[START].to_numpy() + 1) - 1
            left = left.with_columns(pl.Series(START, moves)).filter(pl.col(START) < pl.col(END))
            pieces.append(self._with_bounds(left))
        return Batch(pl.concat(pieces).sort(START, maintain_order=True), batch.watermark_us)

    def _with_bounds(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows up to where the window moves next."""
        if rows.height == 0:
            return rows.with_columns(pl.lit(0, pl.Int64).alias(name) for name in self._names)
        starts = rows[START].to_numpy() + 1
        ends = np.minimum(rows[END].to_numpy(), next_boundaries(self._grid, starts) - 1)
        bounds = zip(self._names, windows_at(self._grid, starts), strict=True)
        return rows.with_columns(pl.Series(END, ends), *(pl.Series(name, each) for name, each in bounds))


@final
class RunningWindowBounds(PassesRows, KeepsNothing, Alone[kinds.WindowBounds]):
    """Begin and end of a window as columns."""

    def operator(self, operation: kinds.WindowBounds) -> Operator:
        """Return the operator."""
        return WindowBounds(operation.grid, operation.start, operation.end)

    def with_origins(self, operation: kinds.WindowBounds, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on."""
        return ChainedPieces(self.instantiate(operation, context), made_of=True)
