"""The second half of an aggregate: partial rows are merged over every span without changes.

**Which rows cover which spans: rows that last are many spans long, so pairs of both are made block by block.**

row    |-----------)            spans of its key    |--|----|----|---|
covers     2   3                number              1  2    3    4   5

papers/pipes_algebra.md sections 3 and 5.8: at every instant, one row per key with tuples, none for a key without.
Rows are final when emitted: a span is emitted once the watermark has passed its end.

    partial rows     a |-----------)            A row of a sliding window covers several slides:
                     b       |-----------)      it is cut at every multiple, and the answer has
    answers            |-a---|-a+b-|--b--)      one row per key and slide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.aggregates import partial_columns, split_aggregate, with_present_sums
from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch, types_of
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.partial_aggregation import BoundedAggregate
from cluster.fjord.row_flow import RowFlow, groups_of, of_a_key, slid
from cluster.fjord.row_order import Places, blocks, laid_out
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.state_rows import StateRows, listed_bytes, partial_schema
from cluster.operators.columns import AggregateCall, Schema
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow


@dataclass(frozen=True, slots=True)
class Coverings:
    """For each row, the range of the spans that it covers.

    Parameters
    ----------
    first, behind
        By row: the place of the first span, and the one behind the last.
    spans
        How many spans there are.
    """

    first: Places
    behind: Places
    spans: int

    @classmethod
    def of(cls, rows: pl.DataFrame, spans: pl.DataFrame, *, key: str) -> Coverings:
        """Return what rows cover.

        Parameters
        ----------
        rows
            With their intervals and keys. No interval begins or ends within a span, or else it ends behind all of them.
        spans
            Keys and starts of spans, sorted by both.
        key
            The column with the key, a number.
        """
        starts = spans[START].to_numpy()
        instants = np.unique(starts)
        width = len(instants) + 1

        def places(keys: pl.Series, stamps: pl.Series) -> Places:
            ranks = np.searchsorted(instants, stamps.to_numpy())
            return keys.cast(pl.Int64).to_numpy() * width + ranks

        order = places(spans[key], spans[START])
        first, behind = (np.searchsorted(order, places(rows[key], rows[edge])) for edge in (START, END))
        return cls(first.astype(np.int64), behind.astype(np.int64), len(starts))

    def blocks(self) -> Iterator[tuple[Places, Places]]:
        """Yield pairs as places of rows and of spans, by rows; all those of a span are in one block.

        There is one block at least, which may be empty.
        """
        changes = np.bincount(self.first, minlength=self.spans + 1) - np.bincount(self.behind, minlength=self.spans + 1)
        pairs = np.cumsum(np.cumsum(changes[: self.spans]))
        for begin, end in (*blocks(pairs),) or ((0, 0),):
            low, high = np.maximum(self.first, begin), np.minimum(self.behind, end)
            covering = np.flatnonzero(low < high)
            number, of_span = laid_out(low[covering], (high - low)[covering])
            yield covering[number], of_span


_KEY = "fjord_key"
_CUT = "fjord_cut"
_NEXT = "fjord_next"


class MergeAggregate(Operator):
    """Merges partial rows.

    Parameters
    ----------
    keys
        The key columns.
    calls
        The aggregates.
    slide_us
        Step of the window below, if all intervals begin and end one microsecond before its multiples: then there is
        a row per key and slide. 1 cuts only where the content of a key changes.
    """

    def __init__(self, keys: Schema, calls: tuple[AggregateCall, ...], *, slide_us: int = 1) -> None:
        if slide_us < 1:
            raise PlanError(f"a window that slides by {slide_us} us")
        columns = partial_columns(calls)
        self._keys = [key.name for key in keys]
        self._merge = [column.merge for column in columns]
        self._finals = [split_aggregate(call).final for call in calls]
        self._slide_us = slide_us
        self._pending = pl.DataFrame(
            schema={
                **INTERVAL,
                **{key.name: POLARS_TYPES[key.type] for key in keys},
                **{column.name: column.type for column in columns},
            }
        )
        self._watermark_us = ALWAYS

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take partial rows and emit every span that ends at or before the watermark."""
        del port
        self._watermark_us = max(self._watermark_us, batch.watermark_us)
        if batch.rows.height:
            both = pl.concat([self._pending, batch.rows.select(self._pending.columns)])
            by = [START, END, *self._keys]
            self._pending = both.group_by(by, maintain_order=True).agg(self._merge)
        due = self._pending.filter(pl.col(START) <= self._watermark_us)
        if due.height == 0:
            return Batch(self._final(self._pending.clear()), self._reached())
        spans = self._slides(due) if self._slide_us > 1 else self._changes(due)
        answer = self._final(spans)
        return Batch(answer.sort([START, *self._keys], maintain_order=True), self._reached())

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: the frontier is one more cut of each key."""
        if self._slide_us > 1:
            return super().ahead(frontier_us, inputs)
        (rows,) = inputs
        due = pl.concat([self._pending, rows.select(self._pending.columns)]).filter(pl.col(START) < frontier_us)
        # Rows stay as long as they are: those that are equally long are not added up in another order.
        keyed = due.with_columns(self._key_number())
        cut = keyed.with_columns(pl.min_horizontal(END, pl.lit(frontier_us)).alias(END))
        answer = self._final(self._between(keyed, self._cuts(cut)))
        return Batch(answer.sort([START, *self._keys], maintain_order=True), frontier_us)

    def save(self) -> State:
        """Return the partial rows that are still needed."""
        return {"pending": self._pending, "watermark_us": self._watermark_us}

    def restore(self, state: State) -> None:
        """Restore saved partial rows."""
        pending, watermark_us = state["pending"], state["watermark_us"]
        assert isinstance(pending, pl.DataFrame)  # noqa: S101 - written by save()
        assert isinstance(watermark_us, int)  # noqa: S101 - written by save()
        columns = self._pending.schema
        saved = with_present_sums(pending, columns.names())
        missing = [pl.lit(None, kind).alias(name) for name, kind in columns.items() if name not in saved.columns]
        self._pending, self._watermark_us = saved.with_columns(missing).select(columns.names()), watermark_us

    def _reached(self) -> int:
        """Return the instant before which no more answers can come."""
        if self._watermark_us >= NEVER or self._pending.height == 0:
            return self._watermark_us
        return min(self._watermark_us, int(self._pending.select(pl.col(START).min()).item()))

    def _slides(self, due: pl.DataFrame) -> pl.DataFrame:
        """Cut at every multiple of the slide; merge the rows of one slide that has ended."""
        slide_us = self._slide_us
        # Up to here, on the grid, all rows are known.
        until = NEVER if self._watermark_us >= NEVER else (self._watermark_us + 1) // slide_us * slide_us - 1
        ready = due.filter(pl.col(START) < until)
        pieces = ready.with_columns(
            pl.int_ranges(pl.col(START), pl.min_horizontal(pl.col(END), pl.lit(until)), slide_us).alias(START)
        ).explode(START)
        merged = pieces.group_by([START, *self._keys], maintain_order=True).agg(self._merge)
        self._truncate(pl.lit(until))
        return merged.with_columns((pl.col(START) + slide_us).alias(END))

    def _changes(self, due: pl.DataFrame) -> pl.DataFrame:
        """Cut each key where one of its rows begins or ends; merge the rows that cover a span that has ended."""
        if due.select((pl.col(END) - pl.col(START) == 1).all()).item():
            # Rows of one instant overlap with equal intervals only. Those that came together have been merged; what is
            # left of a row whose first part has been answered has not.
            ended = pl.col(END) <= self._watermark_us
            self._pending = self._pending.filter(~ended)
            merged = due.filter(ended)
            instants = [START, END, *self._keys]
            if merged.select(pl.struct(instants).is_duplicated().any()).item():
                merged = merged.group_by(instants, maintain_order=True).agg(self._merge)
            return merged
        keyed = due.with_columns(self._key_number())
        cuts = self._cuts(keyed).filter(pl.col(_CUT) <= self._watermark_us)
        merged = self._between(keyed, cuts)
        last = cuts.group_by(_KEY).agg(pl.col(_CUT).max())
        left = keyed.filter(pl.col(END) > self._watermark_us).join(last, on=_KEY, how="left")
        begun = left.with_columns(pl.max_horizontal(START, _CUT).alias(START)).select(self._pending.columns)
        self._pending = pl.concat([begun, self._pending.filter(pl.col(START) > self._watermark_us)])
        return merged

    def _cuts(self, keyed: pl.DataFrame) -> pl.DataFrame:
        edges = pl.concat([keyed.select(_KEY, pl.col(edge).alias(_CUT)) for edge in (START, END)])
        return edges.unique().sort(_KEY, _CUT)

    def _between(self, keyed: pl.DataFrame, cuts: pl.DataFrame) -> pl.DataFrame:
        """Merge the rows of each key that cover a span between two of its cuts."""
        spans = cuts.with_columns(pl.col(_CUT).shift(-1).over(_KEY).alias(_NEXT)).drop_nulls()
        rows = keyed.sort(_KEY, START, END, maintain_order=True)
        covering = Coverings.of(rows, spans.select(_KEY, pl.col(_CUT).alias(START)), key=_KEY)
        intervals = spans.select(_CUT, _NEXT)
        merged = [
            pl.concat([rows[of_row], intervals[of_span]], how="horizontal")
            .group_by([_CUT, _NEXT, *self._keys], maintain_order=True)
            .agg(self._merge)
            for of_row, of_span in covering.blocks()
        ]
        return pl.concat(merged).rename({_CUT: START, _NEXT: END})

    def _truncate(self, until: pl.Expr) -> None:
        """Remove what has been answered: rows that have ended, and the answered part of those that have not."""
        self._pending = self._pending.filter(pl.col(END) > until).with_columns(
            pl.max_horizontal(pl.col(START), until).alias(START)
        )

    def _key_number(self) -> pl.Expr:
        if not self._keys:
            return pl.lit(0, pl.UInt32).alias(_KEY)
        return pl.struct(self._keys).rank("dense").alias(_KEY)

    def _final(self, merged: pl.DataFrame) -> pl.DataFrame:
        return merged.select([START, END, *self._keys, *self._finals])


@final
class RunningMergeAggregate(Alone[kinds.MergeAggregate]):
    """The second half of an aggregate."""

    def operator(self, operation: kinds.MergeAggregate) -> Operator:
        """Return the operator."""
        return MergeAggregate(operation.keys, operation.calls, slide_us=operation.slide_us)

    def with_origins(self, operation: kinds.MergeAggregate, context: RuntimeContext) -> Operator:
        """Return one whose rows begin where one of their group does."""
        return BoundedAggregate(self.instantiate(operation, context), types_of(operation.keys))

    def window(self, operation: kinds.MergeAggregate, node: OperatorNode, fragment: Fragment) -> PaneWindow | None:
        """Return the next window by time below, if that slides in steps."""
        if operation.slide_us == 1:
            return None
        while node.inputs:
            node = fragment.by_id[node.inputs[0]]
            if isinstance(node.operation, kinds.TimeWindow):
                size_us = node.operation.size_us
                return None if size_us is None else PaneWindow(size_us, node.operation.slide_us)
        return None

    def flow(self, operation: kinds.MergeAggregate, inputs: InputFlows) -> RowFlow:
        """Return rows that change with those of the input, or in the steps of the window below."""
        window, keys = self.window(operation, inputs.node, inputs.fragment), groups_of(operation.keys)
        if window is None:
            return _changing(keys, inputs.first)
        return slid(keys, inputs.first, window, window.slide_us)

    def kept(self, operation: kinds.MergeAggregate, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return a partial row for each tuple, or for each group and span; and values, where aggregates need all."""
        columns = (*operation.keys, *partial_schema(operation.calls))
        size = listed_bytes(operation.calls)
        listed = estimate.alive(_aggregated(node, estimate.fragment)) * size if size else 0.0
        return StateRows(_partial_rows(operation, node, estimate), columns, listed)

    def alive(self, operation: kinds.MergeAggregate, node: OperatorNode, estimate: StateEstimate) -> float:
        """Return no more rows than there are groups, and none without a tuple."""
        tuples = estimate.alive(_aggregated(node, estimate.fragment))
        return min(estimate.flow(node.id).valid, tuples, groups_of(operation.keys))


def _changing(keys: int, below: RowFlow) -> RowFlow:
    """Return an aggregate that changes where a row begins and where one ends; a group has one row at an instant.

    That it does both is not counted as made: it is no more than rows that are read.
    """
    valid = min(below.valid, 1.0) if keys == 1 else below.valid
    at_ends = 0.0 if below.lasting_us == 1 else min(below.per_second, max(keys * 1e6 - below.per_second, 0.0))
    return dataclasses.replace(
        below,
        at_once=below.at_once if keys > 1 else 1,
        per_second=below.per_second + at_ends,
        valid=valid,
        per_key=of_a_key(min(valid, keys)),
        made_per_second=0.0,
        at_ends_per_second=at_ends,
    )


def _partial_rows(operation: kinds.MergeAggregate, node: OperatorNode, estimate: StateEstimate) -> float:
    """Return how many partial aggregates are kept at most: one for each tuple, or for each group and span."""
    fragment = estimate.fragment
    below = _aggregated(node, fragment)
    alive, lasting_us = estimate.alive(below), estimate.flow(below.id).lasting_us
    if granule_us := _granule_us(below, fragment):
        # Rows of a granularity begin and end at its multiples only: no more intervals than there are.
        spans = math.inf if lasting_us is None else lasting_us / granule_us + 1
    elif isinstance(fragment.by_id[node.inputs[0]].operation, kinds.Exchange):
        spans = (lasting_us or 0) / _step_us(operation, node, fragment)
    else:
        return alive
    return min(alive, groups_of(operation.keys) * spans)


def _aggregated(node: OperatorNode, fragment: Fragment) -> OperatorNode:
    """Return the node whose rows are aggregated: below the first half, and the exchange between the halves."""
    node = fragment.by_id[node.inputs[0]]
    while isinstance(node.operation, kinds.PartialAggregate | kinds.Exchange):
        node = fragment.by_id[node.inputs[0]]
    return node


def _granule_us(node: OperatorNode, fragment: Fragment) -> int | None:
    """Return the granularity of a node's rows, if they have one: below filters and projections."""
    while isinstance(node.operation, kinds.Project | kinds.GroupedFilter | kinds.Filter) and node.inputs:
        node = fragment.by_id[node.inputs[0]]
    return node.operation.granule_us if isinstance(node.operation, kinds.Granularity) else None


def _step_us(operation: kinds.MergeAggregate, node: OperatorNode, fragment: Fragment) -> int:
    """Return how far apart the ends of the intervals of partial rows are, at least."""
    while node.inputs:
        node = fragment.by_id[node.inputs[0]]
        if isinstance(node.operation, kinds.GridWindow):
            return node.operation.grid.step.usual_us
    return operation.slide_us
