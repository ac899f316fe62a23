"""Time windows, on a grid too, granularities, and bounds of windows as columns (papers/pipes_algebra.md section 5).

**Windows of time, and granularities, over pieces: what becomes of a row's interval becomes of its origin.**

    row         |---------------)              in a window of 5: until 5 after its end
                |--------------------)
    pieces      |-------)-------)              a piece that goes on is in the window where the one before leaves it
                |------------)-------)

Where it does not matter how many copies of a row there are, a row that lasts is in a window from its begin until the
window has left its end behind. Its pieces would overlap there.

**Granularity: snapshots at whole multiples of a granule only (papers/pipes_algebra.md section 5.17).**

The answer stays valid up to the next multiple, so that it can be read at any instant. Only the snapshots at the
multiples are guaranteed.

**Time windows whose boundaries lie on a grid: moved by an offset, by the calendar, or reset at each boundary.**

papers/pipes_algebra.md section 3, with advance: the boundaries of the grid are in place of the multiples of the slide.

**Begin and end of a window as columns of the rows of its aggregate: cut where the window moves.**

windows of 10 that move every 5      a row of the aggregate    |---------------------)     4 to 14: nothing has changed
                                     its bounds                |- -5, 5 --|-- 0, 10 -)
"""

from __future__ import annotations

from typing import final

import numpy as np
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch, instant_text
from cluster.fjord.operator import Operator
from cluster.fjord.operators.origins import with_origins
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.row_flow import RowFlow, longer, windowed
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, PassesRows, RuntimeContext
from cluster.fjord.window_boundaries import Instants, first_without, next_boundaries, windows_at
from cluster.operators.columns import ORIGIN
from cluster.operators.window_shapes import LONGEST_WINDOW_US, Grid
from cluster.physical import operations as kinds

_PLACE, _LEFT = "fjord_place", "fjord_left"


class PieceIntervals(Operator):
    """Stateless. What moves the ends of intervals by rules of its own, over pieces.

    Parameters
    ----------
    inner
        The operator: stateless, and its answer for a row depends on nothing but that row.
    windowed
        Whether pieces overlap behind it: if it is a window.
    """

    def __init__(self, inner: Operator, *, windowed: bool) -> None:
        self._inner = inner
        self._windowed = windowed

    def transition(self, port: int, batch: Batch) -> Batch:
        """Move intervals and origins."""
        del port
        rows = with_origins(batch.rows).with_row_index(_PLACE)
        answer = self._inner.transition(0, Batch(rows, batch.watermark_us))
        origins = self._moved(rows.with_columns(pl.col(ORIGIN.name).alias(START), pl.lit(NEVER, pl.Int64).alias(END)))
        moved = answer.rows.with_columns(origins[START][answer.rows[_PLACE]].alias(ORIGIN.name))
        if self._windowed:
            goes_on = rows.filter(pl.col(ORIGIN.name) < pl.col(START))
            before = self._moved(goes_on.with_columns(pl.col(START) - 1, pl.col(START).alias(END)))
            left = before.select(_PLACE, pl.col(END).alias(_LEFT))
            moved = moved.join(left, on=_PLACE, how="left", maintain_order="left")
            moved = moved.with_columns(pl.max_horizontal(START, _LEFT).alias(START)).drop(_LEFT)
            moved = moved.filter(pl.col(START) < pl.col(END)).sort(START, maintain_order=True)
        return Batch(moved.drop(_PLACE), answer.watermark_us)

    def _moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._inner.transition(0, Batch(rows, NEVER)).rows


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
