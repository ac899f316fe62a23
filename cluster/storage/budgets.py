"""What a stream's table may keep, and what is to go: decisions about its files. Pure.

    stamps      files        oldest                                  newest
                             [====][=====][===] [====][=====][==]
    wanted from              -----------------|    by age, and by size: what is before it is to go
    passed      -----------------------|           before it nothing has to be read any more
    goes                     [====][=====]         the third is over the budget, and reported

Whole files go, oldest first, so that what is left is everything from some instant on, and maybe a little more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

PARTS = 8
"""A merged file holds at most this part of what may be kept, so that little more than has to go goes."""


class Budget(msgspec.Struct, frozen=True):
    """What may be kept of a stream.

    Parameters
    ----------
    age_us
        How far back behind the stream's low watermark; None for ever.
    bytes
        How much on disk, beside what compaction has replaced lately; None for no bound.
    """

    age_us: int | None = None
    bytes: int | None = None


UNBOUNDED = Budget()


class TableFile(NamedTuple):
    """A file of a table: where it is below the table, its rows and bytes, and its first and last stamp."""

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


class Passed(NamedTuple):
    """The instant before which nothing has to be read any more, and what has to read the rest."""

    instant_us: int
    by: str = ""


class Blocked(msgspec.Struct, frozen=True):
    """What is over a budget and still has to be read, and by what."""

    rows: int = 0
    bytes: int = 0
    by: str = ""

    @classmethod
    def of(cls, files: Sequence[TableFile], by: str) -> Blocked:
        """Add files up."""
        return cls(sum(file.rows for file in files), sum(file.bytes for file in files), by)


@dataclass(frozen=True, slots=True)
class Dropping:
    """What goes, and what should and cannot.

    Parameters
    ----------
    from_us
        Everything stamped from this instant on is kept.
    files
        What goes.
    blocked
        What should go, too, and still has to be read.
    """

    from_us: int
    files: tuple[TableFile, ...]
    blocked: tuple[TableFile, ...]


def wanted_from(files: Iterable[TableFile], budget: Budget, watermark_us: int | None) -> int | None:
    """Return from which instant on a budget lets a table keep its rows; None for all of them.

    Parameters
    ----------
    files
        Of the table.
    budget
        What it may keep.
    watermark_us
        The stream's low watermark; None before the first.
    """
    known = sorted(files, key=lambda file: file.last_us)
    found: list[int] = []
    if budget.age_us is not None and watermark_us is not None:
        found.append(watermark_us - budget.age_us)
    if budget.bytes is not None:
        over = sum(file.bytes for file in known) - budget.bytes
        for file in known:
            if over <= 0:
                break
            over -= file.bytes
            found.append(file.last_us + 1)
    return max(found, default=None)


def dropping(files: Sequence[TableFile], wanted_us: int, passed_us: int) -> Dropping:
    """Return which files go.

    Parameters
    ----------
    files
        Of the table.
    wanted_us
        From which instant on rows are to be kept.
    passed_us
        Before this instant nothing has to be read any more.
    """
    from_us = min(wanted_us, passed_us)
    to_go = [file for file in files if file.last_us < wanted_us]
    goes = tuple(file for file in to_go if file.last_us < from_us)
    return Dropping(from_us, goes, tuple(file for file in to_go if file.last_us >= from_us))
