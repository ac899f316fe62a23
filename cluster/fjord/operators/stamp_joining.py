"""Interval joins: pairs of tuples whose stamps are at most so far apart.

    left     a1       a2                       b from 1 before a to 4 after it
    right       b1  b2       b3
    answer      a1b1  a2b2   a2b3              each at the later stamp

A symmetric hash join, as of windows (papers/pipes_algebra.md section 5.5), but each pair is answered once: a tuple is
kept until the other input has passed the last instant at which a partner might come.
"""

from __future__ import annotations

import dataclasses
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, START, Batch, empty_rows
from cluster.fjord.operator import Operator
from cluster.fjord.operators.asof_joining import AsofJoin
from cluster.fjord.operators.join_condition import JoinCondition, matching_pairs
from cluster.fjord.operators.two_sided import TwoSided, rows_within
from cluster.fjord.row_flow import RowFlow, larger, lasting, of_both
from cluster.fjord.running_kind import Alone, InputFlows, PassesNoOrigins, StateEstimate
from cluster.fjord.scalars import compile_scalar
from cluster.fjord.state_rows import StateRows
from cluster.operators import ZipKind
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, Scalar
from cluster.operators.mark_columns import RIGHT
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

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


@final
class RunningStampJoin(PassesNoOrigins, Alone[kinds.StampJoin]):
    """A join of stamps: of all within bounds, or of the latest (:mod:`cluster.fjord.operators.asof_joining`)."""

    def operator(self, operation: kinds.StampJoin) -> Operator:
        """Return the operator.

        Raises
        ------
        PlanError
            If a join of all within bounds lacks one.
        """
        sides = empty_rows(operation.left), empty_rows(operation.right)
        keys, low_us, high_us, kind = operation.keys, operation.low_us, operation.high_us, operation.kind
        if operation.latest:
            return AsofJoin(*sides, keys=keys, low_us=low_us, high_us=high_us, kind=kind)
        if low_us is None:
            raise PlanError("an interval join needs both bounds")
        return StampJoin(*sides, keys=keys, predicate=operation.predicate, bounds_us=(low_us, high_us), kind=kind)

    def flow(self, operation: kinds.StampJoin, inputs: InputFlows) -> RowFlow:
        """Return a row for each of the left, or the pairs within the bounds; all valid at one instant."""
        left, right = inputs.both
        if operation.latest:
            return dataclasses.replace(lasting(left, 1), because=larger(left, right).because)
        return _near(operation, left, right)

    def kept(self, operation: kinds.StampJoin, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that may still find a partner; of the latest, those of the right alone."""
        columns, low_us = (*operation.left, *operation.right), operation.low_us
        if not operation.latest:
            return StateRows(rows_within(node, estimate, low_us or 0, operation.high_us), columns)
        # Of the right the latest of each key, as long as it may be a partner.
        right = estimate.flow(node.inputs[1]).per_second / 1e6
        keyed = set(operation.keys) - {(QUERY_GROUP.name, RIGHT + QUERY_GROUP.name)}
        latest = float(KEYS_ASSUMED if keyed else 1)
        return StateRows(latest if low_us is None else min(latest, right * (1 - low_us)), columns)


def _near(join: kinds.StampJoin, left: RowFlow, right: RowFlow) -> RowFlow:
    """Return the pairs of an interval join: those within the bounds, of equal keys, and one for each tuple at least."""
    both, pairs = of_both(left, right), 2 * left.per_tuple * right.per_tuple
    alone = both.per_second if join.kind != "inner" else 0.0
    near = (join.high_us - (join.low_us or 0) + 1) / 1e6
    tried = left.per_second * right.per_second * near
    if any(one != QUERY_GROUP.name for one, _ in join.keys):
        tried = min(tried / KEYS_ASSUMED, both.per_second)
    made = max(tried - both.per_second, 0.0)
    found = RowFlow(
        pairs,
        1,
        max(both.per_second, tried) + alone,
        1,
        both.valid,
        both.per_key,
        because=both.because,
        read_once=max(pairs, both.read_once),
    )
    return dataclasses.replace(lasting(found, 1), made_per_second=made)
