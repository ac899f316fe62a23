"""The rows that an operator keeps, and their bytes, as :mod:`cluster.fjord.upper_estimates` estimates them."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from cluster.fjord.aggregates import keeps_values, partial_columns
from cluster.operators.columns import AggregateCall, Column, Schema
from protocols.wire.streams import FieldType

BYTES_OF_INTERVAL = 16


BYTES_PER_VALUE = {FieldType.TEXT: 32}
"""Bytes of a value; 8 for types that are missing."""


class StateRows(NamedTuple):
    """The rows of an operator's state, at most.

    Parameters
    ----------
    rows
        How many rows.
    columns
        Of each of them, besides its interval.
    listed_bytes
        What lists of values take in all of them together, where a row is of many tuples.
    """

    rows: float
    columns: Schema
    listed_bytes: float = 0.0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without lists."""
        return BYTES_OF_INTERVAL + sum(BYTES_PER_VALUE.get(column.type, 8) for column in self.columns)


NO_ROWS = StateRows(0.0, ())


def with_numbers(columns: Schema, *names: str) -> Schema:
    """Return columns, and whole numbers that are kept with them."""
    return (*columns, *(Column(name, FieldType.INTEGER) for name in names))


def partial_schema(calls: tuple[AggregateCall, ...]) -> Schema:
    """Return the columns that are kept for aggregates: of a mean, a sum and a count."""
    kinds_kept = ((each.name, each.type in (pl.String, pl.List(pl.String))) for each in partial_columns(calls))
    return tuple(Column(name, FieldType.TEXT if text else FieldType.INTEGER) for name, text in kinds_kept)


def listed_bytes(calls: tuple[AggregateCall, ...]) -> int:
    """Return how many bytes of each tuple aggregates keep that need all values; those of the same values share them."""
    listed = {(call.argument, call.distinct) for call in calls if keeps_values(call)}
    return sum(BYTES_PER_VALUE.get(argument.type, 8) for argument, _ in listed if argument is not None)
