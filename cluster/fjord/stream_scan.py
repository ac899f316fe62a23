"""Scans of a part of a micro-batch of a stream: its samples, its events, and device partial aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START, Batch, empty_rows
from cluster.fjord.stored_rows import StoredRows, read_together
from cluster.operators.columns import PASSING, Column, Schema
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
