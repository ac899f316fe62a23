"""The first half of an aggregate: one partial row per key and interval; and where rows made of several begin.

**Where rows made of several begin: where one of these begins or ends, and not only is cut.**

    a          |-------)-------)-------)        cut twice, and goes on
    b              |-----------)                ends where a is cut
    boundaries |   |           |       |        at the first cut all that ends goes on, at the second b does not
    group      |---|---)-------|-------)        a piece begins at the first cut, but goes on

At an instant and for a key, so many pieces end, and so many that start go on. If these are equally many and nothing
begins, what is made of them goes on, too: a group of an aggregate, or the copies of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import final

import numpy as np
import polars as pl

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, INTERVAL, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.operators.origins import AroundOperator, with_origins, without_origins
from cluster.fjord.operators.piece_chains import CHAINS, PieceChains
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesRows, RuntimeContext
from cluster.operators.columns import ORIGIN, AggregateCall
from cluster.physical import operations as kinds
from cluster.scalars.real_values import all_finite

_AT, _BEGIN = "fjord_at", "fjord_begin"
_ROWS, _GO_ON, _OPEN = "fjord_rows", "fjord_go_on", "fjord_open"
_PLACE = "fjord_place"
_KEPT = "boundaries"


class RowBoundaries:
    """Counts, by key and instant, what begins and what ends there.

    Parameters
    ----------
    keys
        Names and types of the columns that tell apart what is made of rows.
    """

    def __init__(self, keys: pl.Schema) -> None:
        self.keys = keys.names()
        """The names of these columns."""
        counts = dict.fromkeys((_AT, _BEGIN, _OPEN), pl.Int64)
        self._counts = pl.DataFrame(schema={**keys, **counts})

    def add(self, counted: pl.DataFrame) -> None:
        """Count pieces, as :func:`counted_pieces` returns them, of any input: each that goes on has one that ends."""
        if not counted.height:
            return
        starts = counted.select(
            *self.keys, pl.col(START).alias(_AT),
            (pl.col(_ROWS) - pl.col(_GO_ON)).alias(_BEGIN), (-pl.col(_GO_ON)).alias(_OPEN),
        )  # fmt: skip
        ends = counted.select(
            *self.keys, pl.col(END).alias(_AT), pl.lit(0, pl.Int64).alias(_BEGIN), pl.col(_ROWS).alias(_OPEN)
        )
        both = pl.concat([self._counts, starts, ends])
        self._counts = both.group_by([*self.keys, _AT], maintain_order=True).agg(pl.col(_BEGIN, _OPEN).sum())

    def go_on(self, rows: pl.DataFrame) -> pl.Series:
        """Return which rows start where something was cut, and nothing of their key begins or ends."""
        real = self._counts.filter((pl.col(_BEGIN) != 0) | (pl.col(_OPEN) != 0))
        placed = rows.select(*self.keys, START).with_row_index(_PLACE)
        on = [*self.keys, _AT]
        cut = placed.rename({START: _AT}).join(self._counts.select(on).unique(), on=on, how="semi", nulls_equal=True)
        going_on = cut.join(real.select(on), on=on, how="anti", nulls_equal=True)
        return placed[_PLACE].is_in(going_on[_PLACE].implode())

    def forget(self, before_us: int) -> None:
        """Forget instants before one at which nothing more starts."""
        self._counts = self._counts.filter(pl.col(_AT) >= before_us)

    def save(self) -> State:
        """Return the counts."""
        return {_KEPT: self._counts}

    def restore(self, state: State) -> None:
        """Restore them; those of an earlier version, which kept none, are boundaries everywhere."""
        self._counts = table_of(state, _KEPT) if _KEPT in state else self._counts.clear()


def counted_pieces(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return how many pieces there are of each key and interval, and how many of them go on."""
    goes_on = (pl.col(ORIGIN.name) < pl.col(START)).sum().cast(pl.Int64)
    counts = [pl.len().cast(pl.Int64).alias(_ROWS), goes_on.alias(_GO_ON)]
    return with_origins(rows).group_by([*INTERVAL, *keys], maintain_order=True).agg(counts)


class CountedPartialAggregate(Operator):
    """Stateless. The first half of an aggregate, with how many pieces are in a partial row, and how many of them go on.

    Parameters
    ----------
    inner
        The first half.
    keys
        Its keys.
    """

    def __init__(self, inner: Operator, keys: tuple[str, ...]) -> None:
        self._inner = inner
        self._keys = keys

    def transition(self, port: int, batch: Batch) -> Batch:
        """Make partial rows of a batch, and count pieces."""
        partial = self._inner.transition(port, Batch(without_origins(batch.rows), batch.watermark_us))
        by = [*INTERVAL, *dict.fromkeys(self._keys)]
        counted = counted_pieces(batch.rows, list(dict.fromkeys(self._keys)))
        rows = partial.rows.join(counted, on=by, how="left", nulls_equal=True, maintain_order="left")
        return Batch(rows, partial.watermark_us)


class _WithinBoundaries(AroundOperator):
    """Base of operators with an answer for each span between boundaries and cuts, one after the other for each key."""

    _own = (CHAINS, _KEPT)

    def __init__(self, inner: Operator, keys: pl.Schema) -> None:
        super().__init__(inner)
        self._boundaries = RowBoundaries(keys)
        self._chains = PieceChains(keys.names())

    def _answered(self, rows: pl.DataFrame, watermark_us: int) -> pl.DataFrame:
        found = self._chains.in_turn(rows, self._boundaries.go_on(rows), watermark_us)
        self._boundaries.forget(watermark_us)
        return found

    def save(self) -> State:
        """Return the state of the operator, the boundaries, and the chains."""
        return {**super().save(), **self._boundaries.save(), **self._chains.save()}

    def restore(self, state: State) -> None:
        """Restore all three."""
        super().restore(state)
        self._boundaries.restore(state)
        self._chains.restore(state)


class BoundedAggregate(_WithinBoundaries):
    """The second half of an aggregate over pieces: a row begins where one of its group begins or ends.

    Parameters
    ----------
    inner
        The second half.
    keys
        Its keys, with their types.
    """

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        del port
        self._boundaries.add(rows.select(*INTERVAL, *self._boundaries.keys, _ROWS, _GO_ON))
        return rows.drop(_ROWS, _GO_ON)


class BoundedMultiplicities(_WithinBoundaries):
    """A difference or intersection of pieces: a row begins where an equal one begins or ends on either side.

    Parameters
    ----------
    inner
        The operator.
    values
        The columns of its left input, with their types.
    """

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        del port
        given = without_origins(rows)
        names = [*INTERVAL, *self._boundaries.keys]
        named = dict(zip(given.columns, names, strict=True))
        self._boundaries.add(counted_pieces(rows.rename(named), self._boundaries.keys))
        return given


ROWS_AT_ONCE = 128 * 1024
"""About so many rows are grouped at a time: what that takes stays in the processor's caches, and is little memory."""
ROWS_OF_A_START = 8 * 1024
"""From so many rows on, those of one start are grouped for themselves: quicker than by starts and keys together."""


class _Beginnings:
    """How partial columns of calls begin: all that does not change."""

    def __init__(self, calls: tuple[AggregateCall, ...]) -> None:
        columns = partial_columns(calls)
        self.exact = [column.begin for column in columns]
        self.quick = [column.begin if column.quick is None else column.quick for column in columns]
        self.checked = [column.name for column in columns if column.quick is not None]


_beginnings = lru_cache(maxsize=64)(_Beginnings)
"""Those of equal operators are made once: what runs next to a scan is made anew in each micro-batch."""


class PartialAggregate(Operator):
    """Stateless. Rows with equal key and interval form a pane: they always count together.

    Parameters
    ----------
    keys
        Columns to group by; NULL is a key like any other.
    calls
        The aggregates.
    """

    def __init__(self, keys: tuple[str, ...], calls: tuple[AggregateCall, ...]) -> None:
        self._by = [START, END, *keys]
        self._beginnings = _beginnings(calls)

    def empty(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return no partial rows, with their columns, given rows to aggregate."""
        return rows.clear().group_by(self._by).agg(self._beginnings.exact)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the partial rows of a batch, in start order."""
        del port
        rows = batch.rows
        if not rows.height:
            return Batch(self.empty(rows), batch.watermark_us)
        by, alike = _keys_that_vary(rows, self._by)
        partial = _grouped(rows, by, self._beginnings.quick)
        if not all(all_finite(partial[name]) for name in self._beginnings.checked):
            partial = _grouped(rows, by, self._beginnings.exact)
        partial = partial.with_columns(alike).select(*self._by, pl.exclude(self._by))
        return Batch(partial.sort(START, maintain_order=True), batch.watermark_us)


def _grouped(rows: pl.DataFrame, by: Sequence[str], begin: Sequence[pl.Expr]) -> pl.DataFrame:
    starts = rows[START].rle().struct.unnest()
    if len(by) > 1 and rows.height > ROWS_OF_A_START * (starts.height - 1):
        return _of_each_start(rows, starts, by[1:], begin)
    return _of(_pieces(rows), by, begin)


def _of(pieces: Iterable[pl.DataFrame], by: Sequence[str], begin: Sequence[pl.Expr]) -> pl.DataFrame:
    return pl.concat([piece.group_by(by, maintain_order=True).agg(begin) for piece in pieces])


def _of_each_start(
    rows: pl.DataFrame, starts: pl.DataFrame, by: Sequence[str], begin: Sequence[pl.Expr]
) -> pl.DataFrame:
    """Return the partial rows, given the starts and how many rows each has: grouped by one key fewer."""
    counts = starts["len"].to_numpy()
    ends = np.cumsum(counts)
    pieces = [rows.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]
    partial = [_of([piece], by, begin) for piece in pieces]
    values = np.repeat(starts["value"].to_numpy(), [piece.height for piece in partial])
    return pl.concat(partial).with_columns(pl.Series(START, values, pl.Int64).set_sorted())


def _keys_that_vary(rows: pl.DataFrame, keys: list[str]) -> tuple[list[str], list[pl.Expr]]:
    """Return the keys that rows must be grouped by, and the columns of the others: grouping by few is much quicker.

    Mostly, all rows are of one query group, and all intervals of equal length.
    """
    lengths = (rows[END] - rows[START]).rename("length")
    alike: list[pl.Expr] = []
    if (length := _only_value(lengths)) is not None:
        alike.append((pl.col(START) + length).alias(END))
    values = {name: _only_value(rows[name]) for name in keys if name not in (START, END)}
    alike += [pl.lit(value, pl.Int64).alias(name) for name, value in values.items() if value is not None]
    others = {each.meta.output_name() for each in alike}
    return [name for name in keys if name not in others], alike


def _only_value(values: pl.Series) -> int | None:
    """Return the value that all values of a column of integers have, if so."""
    if values.dtype != pl.Int64 or values.null_count() or values[0] != values[-1] or values.min() != values.max():
        return None
    return int(values[0])


def _pieces(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Cut rows in start order into pieces, between two starts."""
    first = 0
    while first < rows.height:
        until = rows.height
        if first + ROWS_AT_ONCE < until:
            starts = rows[START]
            until = int(starts.search_sorted(starts[first + ROWS_AT_ONCE], side="left"))
            if until <= first:  # a single start has more rows
                until = int(starts.search_sorted(starts[first], side="right"))
        yield rows.slice(first, until - first)
        first = until


@final
class RunningPartialAggregate(PassesRows, KeepsNothing, Alone[kinds.PartialAggregate]):
    """The first half of an aggregate."""

    def operator(self, operation: kinds.PartialAggregate) -> Operator:
        """Return the operator."""
        return PartialAggregate(operation.keys, operation.calls)

    def with_origins(self, operation: kinds.PartialAggregate, context: RuntimeContext) -> Operator:
        """Return one that counts the pieces in a partial row."""
        return CountedPartialAggregate(self.instantiate(operation, context), operation.keys)
