"""Interval joins: pairs of tuples whose stamps are at most so far apart.

    left     a1       a2                       b from 1 before a to 4 after it
    right       b1  b2       b3
    answer      a1b1  a2b2   a2b3              each at the later stamp

A symmetric hash join, as of windows (papers/pipes_algebra.md section 5.5), but each pair is answered once: a tuple is
kept until the other input has passed the last instant at which a partner might come.
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators.join_condition import JoinCondition, matching_pairs
from cluster.fjord.operators.two_sided import TwoSided
from cluster.fjord.scalars import compile_scalar
from cluster.operators import ZipKind
from cluster.operators.columns import Scalar

_OTHER_START, _OTHER_END = "fjord_other_start", "fjord_other_end"
_NUMBER, _OTHER_NUMBER, _MET = "fjord_number", "fjord_other_number", "fjord_met"


class StampJoin(TwoSided):
    """Keeps tuples that may still find a partner.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names. Rows are valid at one instant.
    keys
        Columns of left and right that must be equal.
    predicate
        Another condition on pairs; None for none.
    bounds_us
        Least and greatest value of the right stamp minus the left one.
    kind
        The sides whose tuples without a partner are answered.
    """

    def __init__(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        *,
        keys: tuple[tuple[str, str], ...],
        predicate: Scalar | None,
        bounds_us: tuple[int, int],
        kind: ZipKind,
    ) -> None:
        rest = None if predicate is None else compile_scalar(predicate)
        self._condition = JoinCondition(tuple(one for one, _ in keys), tuple(other for _, other in keys), rest)
        self._low_us, self._high_us = bounds_us
        self._answered = (kind in ("left", "full"), kind == "full")
        columns = left.clear().join(right.clear().drop(START, END), how="cross")
        super().__init__(self._noting(0, left.clear()), self._noting(1, right.clear()), columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Pair new rows with the kept rows of the other side; answer those that cannot find a partner any more."""
        other = 1 - port
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            new = self._noting(port, batch.rows)
            sides = [new, self._kept[1]] if port == 0 else [self._kept[0], new]
            sides = self._pair(*sides)
            self._kept[other] = sides[other]
            self._kept[port] = pl.concat([self._kept[port], sides[port].select(self._kept[port].columns)])
        for side in (0, 1):
            self._forget(side)
        return self._output.release(min(self._watermarks_us))

    def _noting(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows of a side with the note that they have met no partner, if that is to be answered."""
        return rows.with_columns(pl.lit(value=False).alias(_MET)) if self._answered[side] else rows

    def _pair(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """Answer the pairs of some rows; return these rows, with the notes of those that have met a partner."""
        if not left.height or not right.height:
            return [left, right]
        lefts, rights = left.with_row_index(_NUMBER), right.with_row_index(_OTHER_NUMBER)
        pairs = matching_pairs(
            lefts.drop(_MET, strict=False),
            rights.drop(_MET, strict=False).rename({START: _OTHER_START, END: _OTHER_END}),
            self._condition,
        )
        apart = pl.col(_OTHER_START) - pl.col(START)
        later = pl.max_horizontal(START, _OTHER_START)
        found = pairs.filter(apart.is_between(self._low_us, self._high_us)).with_columns(
            later.alias(START), (later + 1).alias(END)
        )
        answers = found.collect()
        self._output.add(answers)
        numbers = (_NUMBER, _OTHER_NUMBER)
        return [
            side.with_columns(pl.col(_MET) | pl.int_range(pl.len()).is_in(answers[number].unique().implode()))
            if answered and answers.height
            else side
            for side, answered, number in zip((left, right), self._answered, numbers, strict=True)
        ]

    def _forget(self, side: int) -> None:
        """Drop the rows of a side for which no partner can come; answer those that have met none."""
        kept = self._kept[side]
        if not kept.height:
            return
        waits_us = -self._low_us if side else self._high_us
        gone = pl.col(START) + waits_us < self._watermarks_us[1 - side]
        if self._answered[side]:
            at = pl.col(START) + max(waits_us, 0)
            alone = kept.filter(gone & ~pl.col(_MET)).with_columns(at.alias(START), (at + 1).alias(END))
            schema = self._output.schema.items()
            missing = [pl.lit(None, kind).alias(name) for name, kind in schema if name not in alone.columns]
            self._output.add(alone.with_columns(missing))
        self._kept[side] = kept.filter(~gone)
