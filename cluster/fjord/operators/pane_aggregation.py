"""The second half of windowed aggregates that share panes: each window's answers are merged from the same partial rows.

    panes                |--1--|--2--|--3--|--4--|--5--|--6--|         one partial row per key, condition and pane
    RANGE 4 SLIDE 2      [     1..4            ]
                                     [     3..6            ]
    RANGE 2 SLIDE 1                  [   3,4   ]                       and so on, for every window

Rows are final when emitted: a window's answer is emitted once the watermark has passed its last pane.
:mod:`cluster.physical.rules.shared_panes` explains which queries share panes, and why each gets its own answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import polars as pl

from cluster.fjord import pane_grid
from cluster.fjord.aggregates import SAMPLED, partial_columns, split_aggregate, with_present_sums
from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.pane_grid import PaneGrid, has_slabs
from cluster.fjord.row_flow import RowFlow, groups_of, slid
from cluster.fjord.running_kind import InputFlows, PassesNoOrigins, StateEstimate, Subscribed
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.state_rows import StateRows, listed_bytes, partial_schema
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, AggregateCall, Schema
from cluster.operators.mark_columns import MARKS, SIZE, SLIDE, SUPERSEDED_UNTIL
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow

_FROM = "fjord_from"
_UNTIL = "fjord_until"
_NUMBER = "fjord_number"
_WINDOW = [QUERY_GROUP.name, SIZE.name, SLIDE.name]


@dataclass(frozen=True, slots=True)
class WindowSubscriber:
    """A query's share in the panes: its query group, its window, and the epoch with which it began."""

    group: int
    size_us: int
    slide_us: int
    visible_from: int


class _Windows:
    """The windows that share panes, and how they are merged: all that does not change. Equal in all buckets."""

    def __init__(
        self, keys: Schema, calls: tuple[AggregateCall, ...], subscribers: tuple[WindowSubscriber, ...]
    ) -> None:
        self.columns = columns = partial_columns(calls)
        self.keys = [key.name for key in keys]
        self.slabs = has_slabs(columns)
        self.finals = [split_aggregate(call).final for call in calls]
        names = [*_WINDOW, VISIBLE_FROM.name]
        rows = [(each.group, each.size_us, each.slide_us, each.visible_from) for each in subscribers]
        self.subscribers = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row").unique()
        self.positions = self.subscribers.select(_WINDOW).unique()
        self.slides_us = frozenset(each.slide_us for each in subscribers)
        longest: dict[int, int] = {}
        for each in subscribers:
            longest[each.group] = max(longest.get(each.group, 0), each.size_us + each.slide_us)
        kinds = dict.fromkeys([QUERY_GROUP.name, _UNTIL], pl.Int64)
        self.longest = pl.DataFrame(list(longest.items()), schema=kinds, orient="row")
        """For how long each group needs a pane."""
        self.shortest_us = min(longest.values(), default=0)
        self.no_panes = pl.DataFrame(
            schema={
                **INTERVAL,
                **{key.name: POLARS_TYPES[key.type] for key in keys},
                QUERY_GROUP.name: pl.Int64,
                VISIBLE_FROM.name: pl.Int64,
                **{column.name: column.type for column in columns},
            }
        )
        self.no_answers = self.merged(self.no_panes, self.due(ALWAYS, ALWAYS))

    def ends_one(self, before_us: int, now_us: int) -> bool:
        """Return whether a position of any window may end between two watermarks."""
        if before_us <= ALWAYS or now_us >= NEVER:
            return True
        return any(before_us // slide_us != now_us // slide_us for slide_us in self.slides_us)

    def due(self, before_us: int, now_us: int) -> pl.DataFrame:
        """Return the windows with positions that ended between two watermarks, and the instants of these ends."""
        from_us, until_us = _reached(before_us), _reached(now_us)
        due = self.positions.with_columns(from_us.alias(_FROM), until_us.alias(_UNTIL))
        return due.filter(pl.col(_FROM) < pl.col(_UNTIL)).with_row_index(_NUMBER)

    def merged(self, pending: pl.DataFrame, due: pl.DataFrame) -> pl.DataFrame:
        """Merge, for every window that is due, the panes of each of its positions."""
        visibility = _visibility(pending)
        seen_alike = visibility.height == visibility[QUERY_GROUP.name].n_unique()
        found: list[pl.DataFrame] = []
        if self.slabs and seen_alike and pending.height >= pane_grid.MANY_ROWS:
            found, due = self._in_grids(pending, due, visibility)
        if due.height or not found:
            found.append(self._by_rows(pending, due, visibility, seen_alike=seen_alike))
        merged = pl.concat(found)
        if SAMPLED in merged.columns:
            merged = merged.filter(SAMPLED)  # missing samples alone make no group
        answers = merged.select(
            START,
            (pl.col(START) + pl.col(SLIDE.name)).alias(END),
            *self.keys,
            *self.finals,
            *(mark.name for mark in MARKS),
        )
        return answers.sort([START, *self.keys], maintain_order=True)

    def _in_grids(
        self, pending: pl.DataFrame, due: pl.DataFrame, visibility: pl.DataFrame
    ) -> tuple[list[pl.DataFrame], pl.DataFrame]:
        """Merge the windows that hold many rows from grids; return what is merged, and the windows that are left."""
        found, left = [], []
        for marks in visibility.iter_rows(named=True):
            own = pl.col(QUERY_GROUP.name) == marks[QUERY_GROUP.name]
            windows = due.filter(own)
            rows = pending if visibility.height == 1 or not windows.height else pending.filter(own)
            many = windows.height > 0 and rows.height >= pane_grid.MANY_ROWS
            grid = PaneGrid.of(rows, self.keys, self.columns) if many else None
            for window in windows.iter_rows(named=True):
                bounds_us = window[SIZE.name], window[SLIDE.name], window[_FROM], window[_UNTIL]
                merged = None if grid is None else grid.merged(self.columns, *bounds_us)
                if merged is None:
                    left.append(window[_NUMBER])
                else:
                    values = {name: window[name] for name in _WINDOW} | marks
                    columns = [pl.lit(values[mark.name], pl.Int64).alias(mark.name) for mark in MARKS]
                    found.append(merged.with_columns(columns))
        return found, due.filter(pl.col(_NUMBER).is_in(left)) if left else due.clear()

    def _by_rows(
        self, pending: pl.DataFrame, due: pl.DataFrame, visibility: pl.DataFrame, *, seen_alike: bool
    ) -> pl.DataFrame:
        """Merge windows from copies of the panes' rows, one for each position."""
        first = _next(pl.col(START) + 1)
        last = _next(pl.col(START) + 1 + pl.col(SIZE.name))
        pieces = (
            pending.join(due, on=QUERY_GROUP.name)
            .with_columns(pl.max_horizontal(first, _FROM).alias(START), pl.min_horizontal(last, _UNTIL).alias(END))
            .filter(pl.col(START) < pl.col(END))
        )
        # The fewer keys, the quicker: the number of a window determines its group, and mostly that the visibility.
        by = [START, *self.keys, *([_NUMBER] if due.height > 1 else [])]
        if not seen_alike:
            pieces = self._by_visibility(pieces, visibility)
            by = [*by, VISIBLE_FROM.name]
        positions = pl.int_ranges(pl.col(START), pl.col(END), step=pl.col(SLIDE.name))
        values = [name for name in self.no_panes.columns if name not in (END, *_WINDOW, VISIBLE_FROM.name, *by)]
        pieces = pieces.select(positions.alias(START), *by[1:], *values).explode(START)
        merged = pieces.group_by(by, maintain_order=True).agg(column.merge for column in self.columns)
        windows = due.select(_NUMBER, *_WINDOW)
        merged = merged.join(windows, on=_NUMBER) if due.height > 1 else merged.join(windows, how="cross")
        merged = merged.join(visibility, on=[QUERY_GROUP.name, *([] if seen_alike else [VISIBLE_FROM.name])])
        return merged.select(START, *self.keys, *(each.name for each in self.columns), *(mark.name for mark in MARKS))

    def _by_visibility(self, pieces: pl.DataFrame, visibility: pl.DataFrame) -> pl.DataFrame:
        """Copy each row for the queries that see it: once for all that see the same rows."""
        began = self.subscribers.rename({VISIBLE_FROM.name: "fjord_began"}).join(visibility, on=QUERY_GROUP.name)
        bounds = pl.col(SUPERSEDED_UNTIL.name), pl.col(VISIBLE_FROM.name)
        began = began.filter(pl.col("fjord_began").is_between(*bounds, closed="right"))
        classes = began.select(*_WINDOW, pl.col(VISIBLE_FROM.name).alias("fjord_class")).unique()
        seen = pieces.join(classes, on=_WINDOW).filter(pl.col(VISIBLE_FROM.name) >= pl.col("fjord_class"))
        return seen.with_columns(pl.col("fjord_class").alias(VISIBLE_FROM.name)).drop("fjord_class")


_windows = lru_cache(maxsize=64)(_Windows)
"""Those of equal operators are made once: a plan has one in each bucket."""


class PaneAggregate(Operator):
    """Keeps partial rows of panes while a window may need them.

    Parameters
    ----------
    keys
        The key columns.
    calls
        The aggregates.
    subscribers
        The queries that it answers.
    """

    def __init__(self, keys: Schema, calls: tuple[AggregateCall, ...], subscribers: Sequence[WindowSubscriber]) -> None:
        self._windows = _windows(tuple(keys), calls, tuple(subscribers))
        self._pending = self._windows.no_panes
        self._watermark_us = ALWAYS

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take partial rows and emit the answers of every window that the watermark has passed."""
        del port
        if batch.rows.height:
            self._add(batch.rows)
        before_us, self._watermark_us = self._watermark_us, max(self._watermark_us, batch.watermark_us)
        answers = self._ended(before_us)
        if self._watermark_us > before_us:
            self._forget()
        return Batch(answers, self._watermark_us)

    def _ended(self, before_us: int) -> pl.DataFrame:
        """Return the answers of all windows that have ended since an earlier watermark: in most micro-batches, none."""
        if self._windows.ends_one(before_us, self._watermark_us):
            due = self._windows.due(before_us, self._watermark_us)
            if due.height:
                return self._windows.merged(self._pending, due)
        return self._windows.no_answers

    def save(self) -> State:
        """Return the partial rows that are still needed."""
        return {"pending": self._pending, "watermark_us": self._watermark_us}

    def restore(self, state: State) -> None:
        """Restore saved partial rows, perhaps for other subscribers; drop those that no present subscriber may see."""
        columns = self._pending.schema
        saved = with_present_sums(table_of(state, "pending"), columns.names())
        oldest = self._windows.subscribers.group_by(QUERY_GROUP.name).agg(
            pl.col(VISIBLE_FROM.name).min().alias("fjord_oldest")
        )
        # An aggregate that the saved rows lack is needed only by later queries, and those do not see these rows.
        missing = [pl.lit(None, kind).alias(name) for name, kind in columns.items() if name not in saved.columns]
        seen = saved.join(oldest, on=QUERY_GROUP.name).filter(pl.col(VISIBLE_FROM.name) >= pl.col("fjord_oldest"))
        self._pending = pl.concat([self._pending, seen.with_columns(missing).select(columns.names())])
        self._watermark_us = number_of(state, "watermark_us")

    def _add(self, rows: pl.DataFrame) -> None:
        """Add partial rows; those of several micro-batches for one pane become one row."""
        new = rows.select(self._pending.columns)
        touched = pl.col(START) >= new[START].min()
        rest, again = self._pending.filter(~touched), self._pending.filter(touched)
        if again.height:
            by = [START, END, *self._windows.keys, QUERY_GROUP.name, VISIBLE_FROM.name]
            new = (
                pl.concat([again, new])
                .group_by(by, maintain_order=True)
                .agg(column.merge for column in self._windows.columns)
            )
        self._pending = pl.concat([rest, new.select(self._pending.columns)])

    def _forget(self) -> None:
        """Remove panes that have left every window of their group."""
        if not self._pending.height or self._watermark_us <= ALWAYS:
            return
        now_us = min(self._watermark_us, NEVER)
        first_us = self._pending[START].min()
        assert isinstance(first_us, int)  # noqa: S101 - there are rows, and all have a start
        if first_us + 1 + self._windows.shortest_us > now_us:
            return  # most micro-batches end no pane
        ends = (pl.col(START) + 1 + pl.col(_UNTIL)) > now_us
        self._pending = self._pending.join(self._windows.longest, on=QUERY_GROUP.name).filter(ends).drop(_UNTIL)


def _visibility(pending: pl.DataFrame) -> pl.DataFrame:
    """Return, by group, the newest query's epoch at each arrival of rows, and the epoch before that."""
    marks = [QUERY_GROUP.name, VISIBLE_FROM.name]
    before = pl.col(VISIBLE_FROM.name).shift(1, fill_value=-1).over(QUERY_GROUP.name)
    return pending.select(marks).unique().sort(marks).with_columns(before.alias(SUPERSEDED_UNTIL.name))


def _next(instant: pl.Expr) -> pl.Expr:
    """Return the instant before the least multiple of the slide that is at least `instant`."""
    slide = pl.col(SLIDE.name)
    return -((-instant).floordiv(slide)) * slide - 1


def _reached(watermark_us: int) -> pl.Expr:
    """Return the instant before which a window's answers are known: no later tuple counts before it."""
    if not ALWAYS < watermark_us < NEVER:
        return pl.lit(watermark_us, pl.Int64)
    return _next(pl.lit(watermark_us + 1, pl.Int64))


@final
class RunningPaneAggregate(PassesNoOrigins, Subscribed[kinds.PaneAggregate]):
    """The windows of all subscribers, merged from shared panes."""

    def operator(self, operation: kinds.PaneAggregate, fragment: Fragment) -> Operator:
        """Return the operator for the windows of the queries."""
        subscribers = [
            WindowSubscriber(each.group, each.window.size_us, each.window.slide_us, each.visible_from)
            for each in fragment.subscribers
            if each.window is not None
        ]
        return PaneAggregate(operation.keys, operation.calls, subscribers)

    def window(self, operation: kinds.PaneAggregate, node: OperatorNode, fragment: Fragment) -> PaneWindow:
        """Return the window that makes most rows."""
        del operation, node
        windows = sorted(fragment.tally.windows)
        return PaneWindow(*min(windows, key=lambda length: length[1] / length[0]))

    def flow(self, operation: kinds.PaneAggregate, inputs: InputFlows) -> RowFlow:
        """Return the rows of the window of which one tuple makes most; those that are made, of all windows."""
        flows = list(_flows(operation, inputs))
        most, _ = max(flows, key=lambda each: each[0].per_tuple)
        return dataclasses.replace(most, made_per_second=sum(each.made_per_second * times for each, times in flows))

    def kept(self, operation: kinds.PaneAggregate, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the partial rows of panes, of each query group as long as its longest window lasts."""
        del node
        (stream,) = estimate.fragment.streams
        keys, tuples = groups_of(operation.keys), estimate.rates.get(stream, 0.0)
        span_us, pane_us = estimate.fragment.tally.span_us, _pane_us(estimate.fragment)
        rows = min(tuples * span_us / 1e6, keys * span_us / pane_us)
        columns = (*operation.keys, QUERY_GROUP, VISIBLE_FROM, *partial_schema(operation.calls))
        return StateRows(rows, columns, tuples * span_us / 1e6 * listed_bytes(operation.calls))


def _flows(operation: kinds.PaneAggregate, inputs: InputFlows) -> Iterator[tuple[RowFlow, int]]:
    """Yield the answers of each window that shares panes, and over how many different conditions it is."""
    pane_us = _pane_us(inputs.fragment)
    for (size_us, slide_us), times in sorted(inputs.fragment.tally.windows.items()):
        yield slid(groups_of(operation.keys), inputs.first, PaneWindow(size_us, slide_us), pane_us), times


def _pane_us(fragment: Fragment) -> int:
    """Return the width of the panes of a fragment."""
    return next(each.operation.width_us for each in fragment.nodes if isinstance(each.operation, kinds.Panes))
