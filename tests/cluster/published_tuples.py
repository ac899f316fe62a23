"""Tuples that devices publish at instants of their own: what queries take of them, from the order of arrival alone.

The rows of a stream are in the order in which they were stored. One that a device published is :class:`Published`; all
others are samples. :func:`taken` defines which of them a query reads: it knows nothing of the columns by which the
product finds that out. :func:`as_stored` finds what is in these columns, as proxies do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import polars as pl

from protocols.wire.batches import DEFAULT_RATE_COLUMN, NEXT_COLUMN, NO_NEIGHBOUR_US, PREVIOUS_COLUMN

Row = tuple[Any, ...]
Stamped = tuple[int, Row]

STORED: dict[str, type[pl.DataType]] = {
    DEFAULT_RATE_COLUMN: pl.Boolean, PREVIOUS_COLUMN: pl.Int64, NEXT_COLUMN: pl.Int64,
}  # fmt: skip
"""The columns of :class:`Stored`."""


class Stored(NamedTuple):
    """What is stored with a row; a sample has no neighbours."""

    at_default_rate: bool = True
    previous_us: int | None = None
    next_us: int | None = None


_SAMPLE = Stored()


class Published(tuple[Any, ...]):  # noqa: SLOT001 - a tuple of any length has no room for slots
    """A row that a device published: its values, its mote, and the mote's default period; 0 for a free publisher."""

    mote: str
    default_us: int
    stored: Stored

    def __new__(cls, values: Iterable[Any], mote: str, default_us: int = 0, stored: Stored = _SAMPLE) -> Self:
        """Make a row; what is stored with it is not known before it has come."""
        found = super().__new__(cls, tuple(values))
        found.mote, found.default_us, found.stored = mote, default_us, stored
        return found


def with_values(row: Row, values: Iterable[Any]) -> Row:
    """Return a row with other values, published by the same device if it is published."""
    return Published(values, row.mote, row.default_us) if isinstance(row, Published) else tuple(values)


def taken(rows: Sequence[Stamped], period_us: int | None) -> list[bool]:
    """Return for each row of a stream, in the order of arrival, whether a query with this sample period reads it.

    Examples
    --------
    >>> tuples = [(4, Published("a", "m", 5)), (3, Published("b", "m", 5)), (5, Published("c", "m", 5)), (6, ("d",))]
    >>> taken(tuples, 3), taken(tuples, None)
    ([True, False, False, True], [True, False, True, True])
    """
    seen: set[tuple[str, int]] = set()
    found = []
    for stamp, row in rows:
        if not isinstance(row, Published):
            found.append(period_us is None or stamp % period_us == 0)
            continue
        width = row.default_us if period_us is None else period_us
        cell = row.mote, stamp // width if width else 0
        found.append(not width or cell not in seen)
        seen.add(cell)
    return found


def as_stored(rows: Sequence[Stamped]) -> list[Stored]:
    """Return what is stored with each row of a stream, in the order of arrival."""
    before: dict[str, list[int]] = {}
    found = []
    for (stamp, row), at_default_rate in zip(rows, taken(rows, None), strict=True):
        if not isinstance(row, Published):
            found.append(Stored())
            continue
        came = before.setdefault(row.mote, [])
        previous = max((each for each in came if each <= stamp), default=NO_NEIGHBOUR_US)
        found.append(Stored(at_default_rate, previous, min((each for each in came if each > stamp), default=None)))
        came.append(stamp)
    return found


def stored_rows(rows: Sequence[Stamped]) -> list[Stamped]:
    """Return the rows of a stream, in the order of arrival, with what is stored beside those that are published."""
    return [
        (stamp, Published(row, row.mote, row.default_us, stored) if isinstance(row, Published) else row)
        for (stamp, row), stored in zip(rows, as_stored(rows), strict=True)
    ]


def columns_beside(rows: Sequence[Stamped]) -> list[pl.Series]:
    """Return what is stored beside the values of rows; nothing if all are samples."""
    if not any(isinstance(row, Published) for _, row in rows):
        return []
    stored = [tuple(row.stored if isinstance(row, Published) else Stored()) for _, row in rows]
    return pl.DataFrame(stored, schema=STORED, orient="row").get_columns()


def with_publishers(dice: random.Random, streams: Mapping[str, Sequence[Stamped]]) -> dict[str, list[Stamped]]:
    """Return streams with some rows as devices publish them: none, all, or mixed with samples."""
    return {name: _published(dice, rows) for name, rows in streams.items()}


def _published(dice: random.Random, rows: Sequence[Stamped]) -> list[Stamped]:
    share = dice.choice((0.0, 0.0, 0.7, 1.0))
    defaults = {mote: dice.choice((0, 0, 3, 5)) for mote in "mno"[: dice.choice((1, 2, 3))]}
    found: list[Stamped] = []
    for stamp, row in rows:
        mote = dice.choice(list(defaults))
        found.append((stamp, Published(row, mote, defaults[mote]) if dice.random() < share else row))
    return found
