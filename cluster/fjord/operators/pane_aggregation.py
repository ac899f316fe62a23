"""Panes: tuples of a period with one stamp, and windowed aggregates that are merged from the same partial rows.

**Panes as a grid: the partial rows of one query group as matrices, from which windows are cut as slabs.**

             key 1   key 2   key 3
    pane 1     x       x       x     |              a window that slides is one slab after another; a partial row
    pane 2     x       .       x     |  |           is looked at where it lies, not copied for each of them
    pane 3     x       x       x     |  |  |
    pane 4     x       x       .        |  |

That pays where windows hold many rows of many keys: a slab has a fixed cost, and is then a few instructions a row.

**The second half of windowed aggregates that share panes: each window's answers are merged from the same partial
rows.**

    panes                |--1--|--2--|--3--|--4--|--5--|--6--|         one partial row per key, condition and pane
    RANGE 4 SLIDE 2      [     1..4            ]
                                     [     3..6            ]
    RANGE 2 SLIDE 1                  [   3,4   ]                       and so on, for every window

Rows are final when emitted: a window's answer is emitted once the watermark has passed its last pane.
:mod:`cluster.physical.rules.shared_panes` explains which queries share panes, and why each gets its own answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.errors import PlanError
from cluster.fjord.aggregates import SAMPLED, partial_columns, split_aggregate, with_present_sums
from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.partial_columns import Cells, PartialColumn, Slab, Truths
from cluster.fjord.row_flow import RowFlow, groups_of, slid
from cluster.fjord.running_kind import (
    Alone,
    InputFlows,
    KeepsNothing,
    PassesNoOrigins,
    PassesRows,
    StateEstimate,
    Subscribed,
)
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.state_rows import StateRows, listed_bytes, partial_schema
from cluster.operators.columns import (
    MARKS,
    QUERY_GROUP,
    SIZE,
    SLIDE,
    SUPERSEDED_UNTIL,
    VISIBLE_FROM,
    AggregateCall,
    Schema,
)
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow


class Panes(Operator):
    """Stateless. A tuple stamped t gets the last instant of its pane, one microsecond before a multiple of the width.

    Parameters
    ----------
    width_us
        The width of a pane.
    """

    def __init__(self, width_us: int) -> None:
        if width_us < 1:
            raise PlanError(f"a pane of {width_us} us")
        self._width_us = width_us

    def transition(self, port: int, batch: Batch) -> Batch:
        """Move the stamps; the watermark stays, because no stamp moves back."""
        del port
        pane = (pl.col(START).floordiv(self._width_us) + 1) * self._width_us - 1
        return Batch(batch.rows.with_columns(pane.alias(START), (pane + 1).alias(END)), batch.watermark_us)


@final
class RunningPanes(PassesRows, KeepsNothing, PassesNoOrigins, Alone[kinds.Panes]):
    """One stamp for all rows of a pane."""

    def operator(self, operation: kinds.Panes) -> Operator:
        """Return the operator."""
        return Panes(operation.width_us)


FEWEST_KEYS = 64
"""With fewer keys, the fixed cost of a slab is more than copies of its rows cost."""
MANY_ROWS = 512
"""About so many rows a window must hold on average."""
MOST_CELLS = 4
"""Times as many cells as rows a grid may have."""
_PLACE = "fjord_place"

Numbers = NDArray[np.int64]


def has_slabs(columns: Sequence[PartialColumn]) -> bool:
    """Return whether these partial columns can be merged as slabs: numbers, each with a merge of slabs."""
    return all(each.slab is not None and each.type in (pl.Int64, pl.Float64) for each in columns)


class PaneGrid:
    """Partial rows as matrices.

    Parameters
    ----------
    ends
        The end of each pane that has rows, in order.
    keys
        The different combinations of keys, in order.
    there
        Where there is a row: a row for each pane, a column for each combination.
    cells
        By name of a partial column: its values.
    """

    def __init__(self, ends: Numbers, keys: pl.DataFrame, there: Truths, cells: Mapping[str, Cells]) -> None:
        self._ends = ends
        self._keys = keys
        self._there = there
        self._cells = cells

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str], columns: Sequence[PartialColumn]) -> PaneGrid | None:
        """Return the grid of partial rows of one group; None if it would have few keys, or mostly empty cells.

        Parameters
        ----------
        rows
            The rows, at least one, in any order; of one pane and key there may be several.
        keys, columns
            Names of the key columns, and the partial columns.
        """
        ends, panes = _numbered(rows[START])
        different = rows.select(keys).unique().sort(keys) if keys else pl.DataFrame()
        width = different.height if keys else 1
        if width < FEWEST_KEYS or len(ends) * width > MOST_CELLS * rows.height:
            return None
        places = panes * width + _places(rows, different, keys)
        counts = np.bincount(places, minlength=len(ends) * width)
        if counts.max() > 1:
            repeated = pl.Series(counts[places] > 1)
            by, merge = [START, *keys], [column.merge for column in columns]
            once = rows.filter(repeated).group_by(by, maintain_order=True).agg(merge)
            return cls.of(pl.concat([rows.select(once.columns).filter(~repeated), once]), keys, columns)
        shape = len(ends), width
        there = (counts > 0).reshape(shape)
        return cls(ends + 1, different, there, {each.name: _cells(rows[each.name], places, there) for each in columns})

    def merged(
        self, columns: Sequence[PartialColumn], size_us: int, slide_us: int, from_us: int, until_us: int
    ) -> pl.DataFrame | None:
        """Return the merged partial rows of a window's positions, in order of START, then keys; None if they are small.

        Parameters
        ----------
        columns
            The partial columns.
        size_us, slide_us
            The window.
        from_us, until_us
            Between which starts of answers.
        """
        begin = -(-max(int(self._ends[0]), from_us + 1) // slide_us) * slide_us
        stop = min(int(self._ends[-1]) + size_us, until_us + 1)
        width = self._there.shape[1]
        if -((begin - stop) // slide_us) * MANY_ROWS > self._there.size * -(-size_us // slide_us):
            return None
        positions = np.arange(begin, stop, slide_us)
        first = np.searchsorted(self._ends, positions - size_us, side="right")
        until = np.searchsorted(self._ends, positions, side="right")
        filled = until > first
        if not filled.any() or int((until - first).sum()) * width < len(positions) * MANY_ROWS:
            return None
        positions, bounds = positions[filled], list(zip(first[filled].tolist(), until[filled].tolist(), strict=True))
        kept = np.flatnonzero(np.concatenate([self._there[low:high].any(axis=0) for low, high in bounds]))
        slabs = [Slab(self._cells, low, high) for low, high in bounds]
        found = {START: pl.Series(positions[kept // width] - 1, dtype=pl.Int64)}
        if self._keys.width:
            found |= self._keys[kept % width].to_dict()
        with np.errstate(all="ignore"):  # what leaves the reals becomes NULL at the end
            return pl.DataFrame(found | {each.name: _merged(each, slabs, kept) for each in columns})


def _merged(column: PartialColumn, slabs: Sequence[Slab], kept: Numbers) -> pl.Series:
    assert column.slab is not None  # noqa: S101 - has_slabs
    cells = [column.slab(slab) for slab in slabs]
    values = pl.Series(column.name, np.concatenate([each.values for each in cells])[kept], column.type)
    masks = [each.known for each in cells if each.known is not None]
    if not masks:
        return values
    known = pl.Series(np.concatenate(masks)[kept])
    return values if known.all() else values.zip_with(known, pl.Series([None], dtype=column.type))


def _numbered(starts: pl.Series) -> tuple[Numbers, Numbers]:
    """Return the different starts, in order, and the number of each row's."""
    if not starts.is_sorted():
        return np.unique(starts.to_numpy(), return_inverse=True)
    runs = starts.rle().struct.unnest()
    return runs["value"].to_numpy(), np.repeat(np.arange(runs.height), runs["len"].to_numpy())


def _places(rows: pl.DataFrame, different: pl.DataFrame, keys: Sequence[str]) -> Numbers | int:
    """Return the number of each row's combination of keys."""
    if not keys:
        return 0
    numbered = different.with_row_index(_PLACE)
    found = rows.select(keys).join(numbered, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found[_PLACE].cast(pl.Int64).to_numpy()


def _cells(column: pl.Series, places: Numbers, there: Truths) -> Cells:
    values = np.zeros(there.size, np.float64 if column.dtype == pl.Float64 else np.int64)
    nulls = column.null_count()
    values[places] = (column.fill_null(0) if nulls else column).to_numpy()  # to ask for nothing takes Polars long
    known = there
    if nulls:
        known = np.zeros(there.size, np.bool_)
        known[places] = column.is_not_null().to_numpy()
        known = known.reshape(there.shape)
    return Cells(values.reshape(there.shape), known)


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
        if self.slabs and seen_alike and pending.height >= MANY_ROWS:
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
            many = windows.height > 0 and rows.height >= MANY_ROWS
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
