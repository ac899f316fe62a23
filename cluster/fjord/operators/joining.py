"""Join: pairs of tuples that are valid together (papers/pipes_algebra.md sections 3 and 5.5).

    left    |------)
    right       |--------)
    answer      |--)           the intersection of the two intervals

A symmetric hash join: each input is kept until the other has passed its rows' ends. Every pair is found once, when the
later of the two rows comes.
"""

from __future__ import annotations

from typing import final

import polars as pl
from msgspec import structs

from cluster.fjord.batch import END, START, Batch, empty_rows
from cluster.fjord.operator import Operator
from cluster.fjord.operators.join_condition import finds_by_key, join_condition, matching_pairs
from cluster.fjord.operators.origins import RIGHT_ORIGIN_COLUMN, OriginJoin
from cluster.fjord.operators.two_sided import TwoSided
from cluster.fjord.row_flow import MOST, RowFlow, of_both, paired, shortest
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.state_rows import StateRows
from cluster.operators.columns import Scalar
from cluster.operators.mark_columns import ORIGIN
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

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


@final
class RunningJoin(Alone[kinds.Join]):
    """A join of rows that are valid together."""

    def operator(self, operation: kinds.Join) -> Operator:
        """Return the operator."""
        return Join(empty_rows(operation.left), empty_rows(operation.right), operation.predicate)

    def with_origins(self, operation: kinds.Join, context: RuntimeContext) -> Operator:
        """Return one of rows that have origins as a column."""
        sides = {"left": (*operation.left, ORIGIN), "right": (*operation.right, RIGHT_ORIGIN_COLUMN)}
        return OriginJoin(self.instantiate(structs.replace(operation, **sides), context))

    def flow(self, operation: kinds.Join, inputs: InputFlows) -> RowFlow:
        """Return the pairs of a join: of two joined rows, one begins while the other is valid."""
        left, right = inputs.both
        both = of_both(left, right)
        by_key = finds_by_key(operation.predicate, (column.name for column in operation.right))
        of_left, of_right = (
            max(each.at_once, each.per_key if by_key else each.valid) for each in (left, right)
        )  # how many partners each has to offer
        per_tuple = left.per_tuple * right.at_once + right.per_tuple * left.at_once
        per_second = paired(left, of_left, right, of_right)
        lasting_us = shortest(left, right)
        ended = MOST if lasting_us is None else per_second * lasting_us / 1e6
        of_a_key = (left.per_key * of_right, right.per_key * of_left)
        valid = (left.valid * of_right, right.valid * of_left)
        return RowFlow(
            per_tuple,
            left.at_once * right.at_once,
            per_second,
            lasting_us,
            min(sum(valid) if by_key else min(valid), ended),
            min(of_a_key) if by_key else max(of_a_key),
            max(per_second - both.per_second, 0.0),
            both.because,
            per_tuple,
        )

    def kept(self, operation: kinds.Join, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.left)
