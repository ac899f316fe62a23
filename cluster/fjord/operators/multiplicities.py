"""Difference and intersection: the multiplicities of a tuple on both sides determine that of the answer.

papers/pipes_algebra.md sections 3 and 5.7. Per tuple, both multiplicities are step functions of time; the answer is cut
wherever one of them steps. A span is emitted once both inputs have passed its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar, final

import polars as pl

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch, empty_rows, types_of
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, table_of
from cluster.fjord.operators.row_boundaries import BoundedMultiplicities
from cluster.fjord.row_flow import RowFlow, of_both, shortest
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.state_rows import StateRows
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_AT, _LEFT, _RIGHT = "fjord_at", "fjord_left", "fjord_right"


class Multiplicities(Operator):
    """Computes a function of two multiplicities.

    Parameters
    ----------
    columns
        No rows, with the columns of the left input; those of the right one get their names, by position. NULL equals
        NULL.
    count
        The answer's multiplicity, given those of both sides.
    """

    input_count = 2

    def __init__(self, columns: pl.DataFrame, count: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> None:
        self._names = columns.columns
        self._values = [name for name in columns.columns if name not in (START, END)]
        self._count = count
        # A row is two steps: up at its start, down at its end. Steps that have been answered become one base step.
        self._steps = columns.clear().select(
            *self._values,
            pl.col(START).alias(_AT),
            pl.lit(0, pl.Int64).alias(_LEFT),
            pl.lit(0, pl.Int64).alias(_RIGHT),
        )
        self._watermarks_us = [ALWAYS, ALWAYS]
        self._output = OrderedOutput(columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take rows of one input and emit the spans that have ended for both."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        self._add(port, batch.rows)
        return self._emit(min(self._watermarks_us))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all multiplicities step down to zero at the frontier."""
        for port, rows in enumerate(inputs):
            self._add(port, rows)
        known = self._steps.filter(pl.col(_AT) < frontier_us)
        down = known.with_columns(pl.lit(frontier_us, pl.Int64).alias(_AT), -pl.col(_LEFT, _RIGHT))
        by = [*self._values, _AT]
        self._steps = pl.concat([known, down.group_by(by, maintain_order=True).agg(pl.col(_LEFT, _RIGHT).sum())])
        return self._emit(frontier_us)

    def _add(self, port: int, rows: pl.DataFrame) -> None:
        if not rows.height:
            return
        rows = rows.rename(dict(zip(rows.columns, self._names, strict=True)))

        def step(at: str, change: int) -> pl.DataFrame:
            left, right = (change, 0) if port == 0 else (0, change)
            return rows.select(
                *self._values,
                pl.col(at).alias(_AT),
                pl.lit(left, pl.Int64).alias(_LEFT),
                pl.lit(right, pl.Int64).alias(_RIGHT),
            )

        both = pl.concat([self._steps, step(START, 1), step(END, -1)])
        self._steps = both.group_by([*self._values, _AT], maintain_order=True).agg(pl.col(_LEFT, _RIGHT).sum())

    def _emit(self, watermark_us: int) -> Batch:
        ordered = self._steps.sort(_AT, maintain_order=True)
        left, right, until = pl.col(_LEFT).cum_sum(), pl.col(_RIGHT).cum_sum(), pl.col(_AT).shift(-1)
        if self._values:
            left, right, until = (each.over(self._values) for each in (left, right, until))
        spans = ordered.with_columns(left.alias(_LEFT), right.alias(_RIGHT), until.alias(END))
        ended = spans.filter(pl.col(END) <= watermark_us)
        answered = (
            ended.with_columns(self._count(pl.col(_LEFT), pl.col(_RIGHT)).alias("fjord_count"))
            .filter(pl.col("fjord_count") > 0)
            .with_columns(pl.col(_AT).repeat_by("fjord_count").alias(START))
            .explode(START)
            .select(self._names)
        )
        # Of each tuple the last step up to the watermark stays, as the base of later ones.
        rest = spans.filter(pl.col(END).is_null() | (pl.col(END) > watermark_us))
        begins = rest.filter((pl.col(_AT) <= watermark_us) & ((pl.col(_LEFT) != 0) | (pl.col(_RIGHT) != 0)))
        later = ordered.filter(pl.col(_AT) > watermark_us)
        self._steps = pl.concat([begins.select(self._steps.columns), later])
        # Only where a tuple has been answered may its next span begin before the watermark.
        answering = begins.filter(self._count(pl.col(_LEFT), pl.col(_RIGHT)) > 0)
        reached = watermark_us
        if answering.height and watermark_us < NEVER:
            reached = min(watermark_us, int(answering.select(pl.col(_AT).min()).item()))
        # A span that began earlier may still last: spans that have ended wait for it, so that rows leave in start
        # order.
        self._output.add(answered)
        return self._output.release(reached)

    def save(self) -> State:
        """Return all steps, the held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        return {**self._output.save(), "steps": self._steps, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._steps = table_of(state, "steps")
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


def difference(columns: pl.DataFrame) -> Multiplicities:
    """Return the operator of the bag difference: max(left - right, 0)."""
    return Multiplicities(columns, lambda left, right: (left - right).clip(lower_bound=0))


def intersection(columns: pl.DataFrame) -> Multiplicities:
    """Return the operator of the bag intersection: min(left, right)."""
    return Multiplicities(columns, pl.min_horizontal)


_K = TypeVar("_K", bound=kinds.Difference | kinds.Intersection)


class _RunningMultiplicities(Alone[_K]):
    """What both have in common."""

    def with_origins(self, operation: _K, context: RuntimeContext) -> Operator:
        """Return one whose rows begin where an equal one does, on either side."""
        return BoundedMultiplicities(self.instantiate(operation, context), types_of(operation.columns))

    def kept(self, operation: _K, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.columns)


@final
class RunningDifference(_RunningMultiplicities[kinds.Difference]):
    """The difference of two inputs."""

    def operator(self, operation: kinds.Difference) -> Operator:
        """Return the operator."""
        return difference(empty_rows(operation.columns))

    def flow(self, operation: kinds.Difference, inputs: InputFlows) -> RowFlow:
        """Return the rows of the left, cut where those of the right begin and end."""
        del operation
        left, right = inputs.both
        return dataclasses.replace(of_both(left, right), at_once=left.at_once, lasting_us=left.lasting_us)


@final
class RunningIntersection(_RunningMultiplicities[kinds.Intersection]):
    """The intersection of two inputs."""

    def operator(self, operation: kinds.Intersection) -> Operator:
        """Return the operator."""
        return intersection(empty_rows(operation.columns))

    def flow(self, operation: kinds.Intersection, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid as long as both sides have them."""
        del operation
        left, right = inputs.both
        return dataclasses.replace(of_both(left, right), lasting_us=shortest(left, right))
