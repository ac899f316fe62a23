"""Join: pairs of tuples that are valid together (papers/pipes_algebra.md sections 3 and 5.5).

    left    |------)
    right       |--------)
    answer      |--)           the intersection of the two intervals

A symmetric hash join: each input is kept until the other has passed its rows' ends. Every pair is found once, when the
later of the two rows comes.
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators.join_condition import join_condition, matching_pairs
from cluster.fjord.operators.two_sided import TwoSided
from cluster.operators.columns import Scalar

_OTHER_START, _OTHER_END = "fjord_other_start", "fjord_other_end"


class Join(TwoSided):
    """Keeps rows that may still find a partner.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names.
    predicate
        The condition on pairs; None for all.
    """

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, predicate: Scalar | None) -> None:
        self._condition = join_condition(predicate, right.columns)
        columns = left.clear().join(right.clear().drop(START, END), how="cross")
        self._names = columns.columns
        super().__init__(left, right, columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Pair new rows with the kept rows of the other side."""
        other = 1 - port
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            sides = [batch.rows, self._kept[other]] if port == 0 else [self._kept[other], batch.rows]
            self._pair(*sides)
            alive = batch.rows.filter(pl.col(END) > self._watermarks_us[other])
            self._kept[port] = pl.concat([self._kept[port], alive])
        self._kept[other] = self._kept[other].filter(pl.col(END) > self._watermarks_us[port])
        return self._output.release(min(self._watermarks_us))

    def _pair(self, left: pl.DataFrame, right: pl.DataFrame) -> None:
        if not left.height or not right.height:
            return
        renamed = right.rename({START: _OTHER_START, END: _OTHER_END})
        together = (pl.col(START) < pl.col(_OTHER_END)) & (pl.col(_OTHER_START) < pl.col(END))
        interval = [
            pl.max_horizontal(START, _OTHER_START).alias(START),
            pl.min_horizontal(END, _OTHER_END).alias(END),
        ]
        pairs = matching_pairs(left, renamed, self._condition).filter(together).with_columns(interval)
        self._output.add(pairs.select(self._names).collect())
