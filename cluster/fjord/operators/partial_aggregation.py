"""The first half of an aggregate: the rows of one batch become one partial row per key and interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import final

import numpy as np
import polars as pl

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.row_boundaries import CountedPartialAggregate
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesRows, RuntimeContext
from cluster.operators.columns import AggregateCall
from cluster.physical import operations as kinds
from cluster.scalars.real_values import all_finite

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
