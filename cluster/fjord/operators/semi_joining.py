"""Semi-join and anti-join: left tuples at the instants at which some, or no, right tuple matches.

papers/pipes_algebra.md section 3, with native existence: a left tuple keeps its multiplicity however many match.

    left    |--------------)
    right     |--)   |---)  |...
    semi      |--)   |---)
    anti    |-)  |---)   |-)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import polars as pl
from msgspec import structs

from cluster.fjord.batch import ALWAYS, END, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.join_condition import finds_by_key, join_condition, matching_pairs
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, table_of
from cluster.fjord.operators.origins import MADE_OF_COLUMN
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.row_flow import RowFlow, of_both, paired
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.state_rows import StateRows
from cluster.operators.columns import Scalar
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_ROW, _BEGIN, _UNTIL, _REACHED, _FROM, _STRETCH = (
    "fjord_row", "fjord_begin", "fjord_until", "fjord_reached", "fjord_from", "fjord_stretch",
)  # fmt: skip


class SemiJoin(Operator):
    """Keeps a left row until both inputs have passed its end; by then all possible matches have come.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names.
    predicate
        The condition on matches; None for any.
    anti
        True to answer at the instants without a match.
    """

    input_count = 2

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, predicate: Scalar | None, *, anti: bool) -> None:
        self._condition = join_condition(predicate, right.columns)
        self._anti = anti
        self._left = left.clear()
        self._right = right.clear()
        self._watermarks_us = [ALWAYS, ALWAYS]
        self._output = OrderedOutput(left)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input; answer the left rows that have ended."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            if port == 0:
                self._left = pl.concat([self._left, batch.rows])
            else:
                self._right = pl.concat([self._right, batch.rows])
        reached = min(self._watermarks_us)
        ended = self._left.filter(pl.col(END) <= reached)
        if ended.height:
            self._left = self._left.filter(pl.col(END) > reached)
            self._output.add(self._answer(ended))
        earliest = reached
        if self._left.height:
            earliest = min(reached, int(self._left.select(pl.col(START).min()).item()))
        self._right = self._right.filter(pl.col(END) > min(earliest, self._watermarks_us[0]))
        return self._output.release(earliest)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: left rows are cut at the frontier, so that all have ended."""
        left, right = inputs
        begun = pl.concat([self._left, left]).filter(pl.col(START) < frontier_us)
        self._right = pl.concat([self._right, right])
        if begun.height:
            self._output.add(self._answer(begun.with_columns(pl.min_horizontal(END, pl.lit(frontier_us)).alias(END))))
        return self._output.release(frontier_us)

    def _answer(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbered = rows.with_row_index(_ROW)
        right = self._right.rename({START: _BEGIN, END: _UNTIL})
        matches = (
            matching_pairs(numbered, right, self._condition)
            .select(_ROW, pl.max_horizontal(START, _BEGIN).alias(_BEGIN), pl.min_horizontal(END, _UNTIL).alias(_UNTIL))
            .filter(pl.col(_BEGIN) < pl.col(_UNTIL))
            .sort(_ROW, _BEGIN)
            .collect()
        )
        # Up to where earlier matches cover the row.
        before = pl.col(_UNTIL).cum_max().shift(1).over(_ROW)
        covered = matches.with_columns(before.alias(_REACHED))
        if not self._anti:
            # Stretches without a gap, whichever matches they consist of: these come in no order.
            gap = (pl.col(_BEGIN) > pl.col(_REACHED)).fill_null(value=True)
            stretches = covered.group_by(gap.cum_sum().alias(_STRETCH), maintain_order=True)
            pieces = stretches.agg(pl.col(_ROW, _BEGIN).first(), pl.col(_UNTIL).max())
        else:
            bounds = numbered.select(_ROW, START, END)
            inner = covered.join(bounds, on=_ROW, how="left").select(
                _ROW, pl.col(_REACHED).fill_null(pl.col(START)).alias(_FROM), pl.col(_BEGIN).alias(_UNTIL)
            )
            last = covered.group_by(_ROW).agg(pl.col(_UNTIL).max().alias(_FROM))
            tail = bounds.join(last, on=_ROW, how="left").select(
                _ROW, pl.col(_FROM).fill_null(pl.col(START)), pl.col(END).alias(_UNTIL)
            )
            pieces = pl.concat([inner, tail]).rename({_FROM: _BEGIN})
        pieces = pieces.filter(pl.col(_BEGIN) < pl.col(_UNTIL)).select(_ROW, _BEGIN, _UNTIL)
        return (
            pieces.join(numbered, on=_ROW, how="left", maintain_order="left")
            .with_columns(pl.col(_BEGIN).alias(START), pl.col(_UNTIL).alias(END))
            .select(rows.columns)
        )

    def save(self) -> State:
        """Return the kept and held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        kept = {"left": self._left, "right": self._right}
        return {**self._output.save(), **kept, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._left, self._right = table_of(state, "left"), table_of(state, "right")
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


@final
class RunningSemiJoin(Alone[kinds.SemiJoin]):
    """A semi-join or anti-join."""

    def operator(self, operation: kinds.SemiJoin) -> Operator:
        """Return the operator."""
        sides = empty_rows(operation.left), empty_rows(operation.right)
        return SemiJoin(*sides, operation.predicate, anti=operation.anti)

    def with_origins(self, operation: kinds.SemiJoin, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on of a row of the left."""
        of_rows = structs.replace(operation, left=(*operation.left, MADE_OF_COLUMN))
        return ChainedPieces(self.instantiate(of_rows, context), made_of=True)

    def flow(self, operation: kinds.SemiJoin, inputs: InputFlows) -> RowFlow:
        """Return the rows of the left, cut where those of the right begin and end; made are all pairs tried."""
        left, right = inputs.both
        both = of_both(left, right)
        by_key = finds_by_key(operation.predicate, (column.name for column in operation.right))
        tried = 0.0 if by_key else paired(left, left.valid, right, right.valid)
        made = max(tried - both.per_second, 0.0)
        return dataclasses.replace(both, at_once=left.at_once, lasting_us=left.lasting_us, made_per_second=made)

    def kept(self, operation: kinds.SemiJoin, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.left)
