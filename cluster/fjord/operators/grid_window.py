"""Time windows whose boundaries lie on a grid: moved by an offset, by the calendar, or reset at each boundary.

papers/pipes_algebra.md section 3, with advance: the boundaries of the grid are in place of the multiples of the slide.
"""

from __future__ import annotations

from typing import final

import numpy as np
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.piece_windows import PieceIntervals
from cluster.fjord.row_flow import RowFlow, longer, windowed
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, RuntimeContext
from cluster.fjord.window_boundaries import Instants, first_without, next_boundaries
from cluster.operators.window_shapes import Grid
from cluster.physical import operations as kinds


class GridWindow(Operator):
    """Stateless. Its input is valid at instants only, or has rows whose multiplicity does not matter.

    A window that slides: a tuple stamped t is valid on [k0 - 1, k1 - 1), k0 being the first boundary after t, and k1
    the first whose window begins after t.

    A window that is reset: what it contains changes at instants k - 1, k being the multiples of the slide and the
    boundaries; it contains, from then on, the tuples before k that no boundary before k separates from it. So a tuple
    stamped t is valid on [k0 - 1, k1 - 1), k0 being the first k after t, and k1 the first k after the first boundary
    after t. With a slide of 1 that is from t until just before this boundary.

    Parameters
    ----------
    grid
        The boundaries.
    slide_us
        The slide of a window that is reset.
    """

    def __init__(self, grid: Grid, slide_us: int) -> None:
        if slide_us < 1:
            raise PlanError(f"a window that slides by {slide_us} us")
        self._grid = grid
        self._slide_us = slide_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Set the interval of every row; remove rows whose interval is empty (the slide skips them)."""
        del port
        watermark_us = batch.watermark_us
        if ALWAYS < watermark_us < NEVER:
            watermark_us = int(self._entered(np.array([watermark_us], dtype=np.int64))[0])
        if batch.empty:
            return Batch(batch.rows, watermark_us)
        starts, ends = (batch.rows[name].to_numpy() for name in (START, END))
        for_ever = ends >= NEVER
        left = np.where(for_ever, NEVER, np.minimum(self._left(np.where(for_ever, starts, ends - 1)), NEVER))
        rows = batch.rows.with_columns(pl.Series(START, self._entered(starts)), pl.Series(END, left))
        return Batch(rows.filter(pl.col(START) < pl.col(END)), watermark_us)

    def _entered(self, stamps: Instants) -> Instants:
        """Return from when on tuples are valid."""
        if self._grid.size is not None:
            return next_boundaries(self._grid, stamps) - 1
        return self._shown(stamps) - 1

    def _left(self, stamps: Instants) -> Instants:
        """Return until just before when they are."""
        if self._grid.size is not None:
            return first_without(self._grid, stamps) - 1
        return self._shown(next_boundaries(self._grid, stamps)) - 1

    def _shown(self, stamps: Instants) -> Instants:
        """Return the first change of what a window that is reset contains, after each stamp."""
        multiples = stamps // self._slide_us * self._slide_us + self._slide_us
        return multiples if self._slide_us == 1 else np.minimum(multiples, next_boundaries(self._grid, stamps))


@final
class RunningGridWindow(KeepsNothing, Alone[kinds.GridWindow]):
    """A window by time whose boundaries lie on a grid."""

    def operator(self, operation: kinds.GridWindow) -> Operator:
        """Return the operator."""
        return GridWindow(operation.grid, operation.slide_us)

    def with_origins(self, operation: kinds.GridWindow, context: RuntimeContext) -> Operator:
        """Return one that moves origins with the rows."""
        return PieceIntervals(self.instantiate(operation, context), windowed=True)

    def flow(self, operation: kinds.GridWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid longer by its size, and until a boundary."""
        step_us = max(operation.slide_us, operation.grid.step.usual_us)
        return longer(windowed(inputs.first), operation.grid.size_us + step_us)
