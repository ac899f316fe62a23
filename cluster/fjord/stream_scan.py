"""Scans of a part of a micro-batch of a stream: which rows are read, from files of its table or from memory.

**Conditions on which a scan may leave rows out: the intervals in those of all query groups that it feeds, if few.**

    scan -> sample -> columns -> grouped filter: k = 0                 the scan reads other columns of a file only
                              -> grouped filter: k = 7, f(x) = 2       for rows with k = 0 or k = 7

The filters stay: what is left out is only what none of them lets pass. Stored reals may be infinite or NaN, which are
NULL above the scan; such a value may lie in an interval here, but NULL lies in none there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import groupby
from operator import and_, or_
from typing import Protocol

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START, Batch, empty_rows
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import PASSING, Column, Scalar, Schema
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Columns, GroupedFilter, Sample, Scan
from cluster.plan.predicate_intervals import Interval, Intervals, extract_ranges
from cluster.scalars.real_values import settled_rows
from protocols.wire.batches import (
    COVERED_BY_COLUMN,
    DEFAULT_RATE_COLUMN,
    FINGERPRINT_COLUMN,
    NEXT_COLUMN,
    PANE_COLUMN,
    PREVIOUS_COLUMN,
    SAMPLES_COLUMN,
)
from protocols.wire.streams import FieldType


class StoredRows(Protocol):
    """Rows of a stream, with their stamps (START), fields, and columns of Fjord's own."""

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        ...

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns, of all rows or of those stamped between two instants for which a condition holds."""
        ...

    def rest(self, from_us: int) -> StoredRows | None:
        """Return a source of the rows stamped at or after an instant, and maybe others; None if there are none."""
        ...


class RowsInFile:
    """A Parquet file.

    Parameters
    ----------
    path
        The path.
    last_us
        Its last stamp, if it is known; otherwise the file is read for it.
    """

    def __init__(self, path: str, *, last_us: int | None = None) -> None:
        self._path = path
        self._last_us = last_us

    @property
    def path(self) -> str:
        """The path."""
        return self._path

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        # `read_parquet_schema` takes a path as a pattern.
        return frozenset(pl.scan_parquet(self._path, glob=False).collect_schema())

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns."""
        return _scanned([self._path], columns, _row_conditions(between_us, wanted))

    def rest(self, from_us: int) -> StoredRows | None:
        """Return itself, unless the last stamp lies before an instant."""
        if self._last_us is None:
            self._last_us = pl.scan_parquet(self._path, glob=False).select(pl.col(START).max()).collect().item()
        return self if self._last_us is not None and self._last_us >= from_us else None


class RowsInMemory:
    """A table in memory.

    Parameters
    ----------
    rows
        In any order. Without the column that marks samples at their motes' default rates, all rows count as such.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        if DEFAULT_RATE_COLUMN not in rows.columns:
            rows = rows.with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))
        self._rows = rows

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        return frozenset(self._rows.columns)

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns."""
        conditions = _row_conditions(between_us, wanted)
        rows = self._rows.filter(*conditions) if conditions else self._rows
        return rows.select(columns)

    def rest(self, from_us: int) -> StoredRows | None:
        """Return the rows from an instant on."""
        left = self._rows.filter(pl.col(START) >= from_us)
        return RowsInMemory(left) if left.height else None


def read_together(
    pieces: Sequence[StoredRows],
    columns: Sequence[str],
    between_us: tuple[int, int] | None = None,
    wanted: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield these columns of pieces that all have them, in their order, as :meth:`StoredRows.read`.

    Files are read together: a micro-batch reads one for each commit of a stream, with a few rows.
    """
    for are_files, some in groupby(pieces, lambda piece: isinstance(piece, RowsInFile)):
        if are_files:
            paths = [piece.path for piece in some if isinstance(piece, RowsInFile)]
            yield _scanned(paths, columns, _row_conditions(between_us, wanted))
        else:
            yield from (piece.read(columns, between_us, wanted) for piece in some)


def _scanned(paths: list[str], columns: Sequence[str], conditions: Sequence[pl.Expr]) -> pl.DataFrame:
    """Read files; parts that lie before or after are not decoded, nor other columns of rows that are not wanted."""
    if len(paths) == 1 and not conditions:
        return pl.read_parquet(paths[0], columns=list(columns), glob=False)
    # Later files may have columns that a stream did not have before.
    rows = pl.scan_parquet(paths, glob=False, extra_columns="ignore")
    return (rows.filter(*conditions) if conditions else rows).select(columns).collect()


def _row_conditions(between_us: tuple[int, int] | None, wanted: pl.Expr | None) -> list[pl.Expr]:
    within = None if between_us is None else pl.col(START).is_between(*between_us, closed="left")
    return [condition for condition in (within, wanted) if condition is not None]


MOST = 8
"""With more intervals, comparing each row with all of them takes longer than an index of conditions."""


def wanted_rows(scans: Iterable[tuple[Fragment, OperatorNode]]) -> pl.Expr | None:
    """Return a condition that holds for all rows that are used of some scans; None if any row may be.

    Parameters
    ----------
    scans
        Scans that are made as one, each with its fragment.
    """
    found: dict[Scalar, pl.Expr] = {}
    left = MOST
    for fragment, node in scans:
        assert isinstance(node.operation, Scan)  # noqa: S101 - it is one
        columns = {column.name: column for column in node.operation.columns if column.type is not FieldType.BOOLEAN}
        for condition in _conditions(fragment, node):
            if condition in found:
                continue
            ranges = extract_ranges(condition, tuple(columns.values())).intervals
            unions = [(columns[name], union) for name, each in ranges.items() for union in each]
            left -= sum(max(1, len(union)) for _, union in unions)
            if condition is None or not unions or left < 0:
                return None
            found[condition] = reduce(and_, (_within(column, union) for column, union in unions))
    return reduce(or_, found.values()) if found else None


def _conditions(fragment: Fragment, below: OperatorNode) -> Iterator[Scalar | None]:
    """Yield the conditions of the query groups that rows of a node reach; None where there is none."""
    for node in fragment.nodes:
        if below.id not in node.inputs:
            continue
        match node.operation:
            case GroupedFilter(place=place):
                yield from (condition for _, condition in fragment.conditions[place])
            case Sample() | Columns():
                yield from _conditions(fragment, node)
            case _:
                yield None


def _within(column: Column, union: Intervals) -> pl.Expr:
    """Return whether a column's value is in a union of intervals."""
    nowhere = pl.lit(value=False)
    return reduce(or_, (_in(column, interval) for interval in union)) if union else nowhere


def _in(column: Column, interval: Interval) -> pl.Expr:
    value, kind = pl.col(column.name), POLARS_TYPES[column.type]
    tests = []
    if interval.low is not None:
        low = pl.lit(interval.low, kind)
        tests.append(value > low if interval.low_open else value >= low)
    if interval.high is not None:
        high = pl.lit(interval.high, kind)
        tests.append(value < high if interval.high_open else value <= high)
    return reduce(and_, tests) if tests else value.is_not_null()


_NEIGHBOURS = (PREVIOUS_COLUMN, NEXT_COLUMN)
_OWN = {FINGERPRINT_COLUMN: FieldType.TEXT, COVERED_BY_COLUMN: FieldType.TEXT, PANE_COLUMN: FieldType.INTEGER}


class StreamScan:
    """Scans of what one part of a micro-batch holds of a stream.

    From its first aggregate on, a stream has the columns that distinguish aggregates from samples; pieces without them
    hold samples only. Likewise it has the columns of published tuples from the first of these on.

    Parameters
    ----------
    pieces
        Its rows.
    watermark_us
        Its low watermark behind these rows; None if there is none.
    between_us
        Between which stamps; None for all rows.
    begins_us
        Aggregates of samples from before this instant are left out.
    suffix
        Distinguishes the names of its operators from those of the stream's live scan; empty for that.
    """

    def __init__(
        self,
        pieces: Sequence[StoredRows],
        watermark_us: int | None = None,
        *,
        between_us: tuple[int, int] | None = None,
        begins_us: int | None = None,
        suffix: str = "",
    ) -> None:
        self.suffix = suffix
        self._pieces = pieces
        self._watermark_us = ALWAYS if watermark_us is None else watermark_us
        self._between_us = between_us
        self._begins_us = begins_us

    def samples(self, columns: Schema, wanted: pl.Expr | None = None, *, neighbours: bool = False) -> Batch:
        """Return the samples, valid at their instants, with whether they belong to their mote's default rate.

        Parameters
        ----------
        columns
            Columns to read.
        wanted
            A condition of these columns; rows for which it does not hold are left out. None for all rows.
        neighbours
            Whether to read the neighbours of published tuples too, if there are any such tuples.
        """
        read = [*(column.name for column in columns if column.name != COVERED_BY_COLUMN), DEFAULT_RATE_COLUMN]
        excepted = any(column.name == COVERED_BY_COLUMN for column in columns)
        found = []
        for (has_fingerprints, published), pieces in groupby(
            self._pieces,
            lambda piece: (FINGERPRINT_COLUMN in piece.columns, neighbours and PREVIOUS_COLUMN in piece.columns),
        ):
            own = [FINGERPRINT_COLUMN, *([COVERED_BY_COLUMN] if excepted else [])] if has_fingerprints else []
            rows = settled_rows(self._read(pieces, [START, *read, *own, *(_NEIGHBOURS if published else ())], wanted))
            if has_fingerprints:
                rows = rows.filter(pl.col(FINGERPRINT_COLUMN).is_null()).drop(FINGERPRINT_COLUMN)
            elif excepted:
                rows = rows.with_columns(pl.lit(None, pl.String).alias(COVERED_BY_COLUMN))
            found.append(rows)
        if (order := next((rows.columns for rows in found if PREVIOUS_COLUMN in rows.columns), None)) is not None:
            found = [_with_neighbours(rows).select(order) for rows in found]
        nothing = empty_rows(columns).with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))
        return self._batch(found, nothing)

    def events(self, fingerprint: str, columns: Schema) -> Batch:
        """Return the events with one fingerprint, valid at the instants at which they began."""
        stored = [column.name for column in columns if column != PASSING]
        lasting = pl.col(PANE_COLUMN).alias(PASSING.name)
        pieces = [piece for piece in self._pieces if FINGERPRINT_COLUMN in piece.columns]
        if not pieces:
            return self._batch([], empty_rows(columns))
        rows = settled_rows(self._read(pieces, [START, *stored, FINGERPRINT_COLUMN, PANE_COLUMN]))
        events = rows.filter(pl.col(FINGERPRINT_COLUMN) == fingerprint).select(START, *stored, lasting)
        return self._batch([events], empty_rows(columns))

    def aggregates(self, columns: Schema, own: Sequence[str]) -> Batch:
        """Return the aggregates that sensors made, valid at their stamps.

        Parameters
        ----------
        columns
            Fixed columns to read.
        own
            Fjord's columns to read.
        """
        read = [*(column.name for column in columns), *own]
        found = []
        for known, pieces in groupby(self._pieces, lambda piece: piece.columns):
            if FINGERPRINT_COLUMN in known:
                aggregates = pl.col(FINGERPRINT_COLUMN).is_not_null() & pl.col(SAMPLES_COLUMN).is_not_null()
                if self._begins_us is not None:
                    aggregates &= pl.col(START) + 1 - pl.col(PANE_COLUMN) >= self._begins_us
                rows = self._read(pieces, [START, *(name for name in read if name in known)]).filter(aggregates)
                # A table gets columns when there is something to write into them.
                nulls = [pl.lit(None, pl.Int64).alias(name) for name in own if name not in known]
                # An infinite sum stays infinite here: NULL would mean that there is nothing to add.
                found.append(settled_rows(rows, but=own).with_columns(nulls).select(START, *read))
        types = {name: _OWN.get(name, FieldType.INTEGER) for name in own}
        nothing = empty_rows((*columns, *(Column(name, kind) for name, kind in types.items())))
        return self._batch(found, nothing)

    def _batch(self, pieces: Sequence[pl.DataFrame], nothing: pl.DataFrame) -> Batch:
        if not pieces:
            return Batch(nothing, self._watermark_us)
        rows = pl.concat(pieces)
        rows = rows.select(START, (pl.col(START) + 1).alias(END), *(name for name in rows.columns if name != START))
        rows = rows if rows[START].is_sorted() else rows.sort(START, maintain_order=True)
        return Batch(rows, self._watermark_us)

    def _read(
        self, pieces: Iterable[StoredRows], columns: Iterable[str], wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        return pl.concat(read_together(list(pieces), tuple(dict.fromkeys(columns)), self._between_us, wanted))


def _with_neighbours(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the columns of published tuples: if a piece has no such columns, it holds samples only."""
    if PREVIOUS_COLUMN in rows.columns:
        return rows
    return rows.with_columns([pl.lit(None, pl.Int64).alias(name) for name in _NEIGHBOURS])
