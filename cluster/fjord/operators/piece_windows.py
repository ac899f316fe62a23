"""Windows of time, and granularities, over pieces: what becomes of a row's interval becomes of its origin.

    row         |---------------)              in a window of 5: until 5 after its end
                |--------------------)
    pieces      |-------)-------)              a piece that goes on is in the window where the one before leaves it
                |------------)-------)

Where it does not matter how many copies of a row there are, a row that lasts is in a window from its begin until the
window has left its end behind. Its pieces would overlap there.
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.origins import with_origins
from cluster.operators.mark_columns import ORIGIN

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
