"""Tuples that devices publish at instants of their own: what queries take of them, from the order of arrival alone.

The rows of a stream are in the order in which they were stored. One that a device published is :class:`Published`; all
others are samples. :func:`taken` defines which of them a query reads: it knows nothing of the columns by which the
product finds that out. :func:`as_stored` makes these columns, as proxies do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from protocols.wire.batches import DEFAULT_RATE_COLUMN, NEXT_COLUMN, NO_NEIGHBOUR_US, PREVIOUS_COLUMN

Row = tuple[Any, ...]
Stamped = tuple[int, Row]

STORED: dict[str, type[pl.DataType]] = {
    DEFAULT_RATE_COLUMN: pl.Boolean, PREVIOUS_COLUMN: pl.Int64, NEXT_COLUMN: pl.Int64,
}  # fmt: skip
"""The columns of :class:`Stored`."""


class Published(tuple[Any, ...]):
    """A row that a device published: its values, its mote, and the mote's default period; 0 for a free publisher."""

    mote: str
    default_us: int


class Stored(NamedTuple):
    """What is stored with a row; a sample has no neighbours."""

    at_default_rate: bool
    previous_us: int | None
    next_us: int | None


SAMPLE = Stored(at_default_rate=True, previous_us=None, next_us=None)


def published(values: Iterable[Any], mote: str, default_us: int = 0) -> Published:
    """Return a row that a device published."""
    found = Published(values)
    found.mote, found.default_us = mote, default_us
    return found


def with_values(row: Row, values: Iterable[Any]) -> Row:
    """Return a row with other values, published by the same device if it is published."""
    return published(values, row.mote, row.default_us) if isinstance(row, Published) else tuple(values)


def taken(rows: Sequence[Stamped], period_us: int | None) -> list[bool]:
    """Return for each row of a stream, in the order of arrival, whether a query with this sample period reads it.

    Examples
    --------
    >>> tuples = [(4, published("a", "m", 5)), (3, published("b", "m", 5)), (5, published("c", "m", 5)), (6, ("d",))]
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
            found.append(SAMPLE)
            continue
        came = before.setdefault(row.mote, [])
        previous = max((each for each in came if each <= stamp), default=NO_NEIGHBOUR_US)
        found.append(Stored(at_default_rate, previous, min((each for each in came if each > stamp), default=None)))
        came.append(stamp)
    return found


def columns_of(stored: Iterable[Stored]) -> pl.DataFrame:
    """Return what is stored with rows, as columns."""
    return pl.DataFrame([tuple(each) for each in stored], schema=STORED, orient="row")


def with_publishers(dice: random.Random, streams: Mapping[str, Sequence[Stamped]]) -> dict[str, list[Stamped]]:
    """Return streams with some rows as devices publish them: none, all, or mixed with samples."""
    return {name: _published(dice, rows) for name, rows in streams.items()}


def _published(dice: random.Random, rows: Sequence[Stamped]) -> list[Stamped]:
    share = dice.choice((0.0, 0.0, 0.7, 1.0))
    defaults = {mote: dice.choice((0, 0, 3, 5)) for mote in "mno"[: dice.choice((1, 2, 3))]}
    found: list[Stamped] = []
    for stamp, row in rows:
        mote = dice.choice(list(defaults))
        found.append((stamp, published(row, mote, defaults[mote]) if dice.random() < share else row))
    return found
