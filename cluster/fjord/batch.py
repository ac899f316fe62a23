"""The unit of data between operators: rows with validity intervals, and a watermark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from cluster.operators.columns import Schema
from cluster.scalars.operators import POLARS_TYPES

START = "fjord_start_us"
"""First instant at which the row is valid, in microseconds of application time."""
END = "fjord_end_us"
"""First instant at which it is no longer valid; the interval [start, end) is never empty."""

NEVER = 2**62
"""The watermark of a stream that has ended, and the end of a row that stays valid for ever."""
ALWAYS = -(2**62)
"""The watermark of a stream before its first."""

INTERVAL = {START: pl.Int64, END: pl.Int64}


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows in start order, and the position of the stream.

    Parameters
    ----------
    rows
        Columns START and END, then the payload; sorted by START. Shared by all that receive it: never changed.
    watermark_us
        No row of a later batch on the same queue starts before this instant. :data:`NEVER` ends the stream.
    """

    rows: pl.DataFrame
    watermark_us: int

    @property
    def empty(self) -> bool:
        """True if it has no rows, only a watermark."""
        return self.rows.height == 0


def types_of(schema: Schema) -> pl.Schema:
    """Return columns with their types in tables."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in schema})


def empty_rows(schema: Schema) -> pl.DataFrame:
    """Return an empty table with these columns and the interval."""
    # No pl.Schema, which would check the types once more: that takes half as long again, for each operator of a plan.
    return pl.DataFrame(schema={**INTERVAL, **{column.name: POLARS_TYPES[column.type] for column in schema}})


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_text(instant_us: int) -> str | None:
    """Return an instant in ISO 8601 with microseconds and ``Z``; None for :data:`NEVER`.

    Examples
    --------
    >>> instant_text(1_330_560_000_000_000)
    '2012-03-01T00:00:00.000000Z'
    """
    if instant_us >= NEVER:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return f"{instant_us}us"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
