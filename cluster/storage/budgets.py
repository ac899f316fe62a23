"""The budget of a stream's table, and the files to remove: decisions without I/O.

    stamps      files        oldest                                  newest
                             [====][=====][===] [====][=====][==]
    wanted from              -----------------|    by age, and by size: what is before it is to go
    passed      -----------------------|           before it nothing has to be read any more
    goes                     [====][=====]         the third is over the budget, and reported

Whole files are removed, oldest first, so that all rows from some instant on stay, and maybe a few more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

PARTS = 8
"""A merged file holds at most this fraction of a budget, so that little more is removed than necessary."""


class Budget(msgspec.Struct, frozen=True):
    """The limits on a stream's table.

    Parameters
    ----------
    age_us
        How far back rows are kept, from the stream's low watermark; None for ever.
    bytes
        Most bytes on disk, apart from files that compaction has replaced lately; None for no bound.
    """

    age_us: int | None = None
    bytes: int | None = None


UNBOUNDED = Budget()


class TableFile(NamedTuple):
    """A file of a table: its path below the table, its rows and bytes, and its first and last stamp."""

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


class Passed(NamedTuple):
    """The instant before which all readers have read, and the readers of the rest."""

    instant_us: int
    by: str = ""


class Blocked(msgspec.Struct, frozen=True):
    """The files that are over a budget and still have to be read, and their readers."""

    rows: int = 0
    bytes: int = 0
    by: str = ""

    @classmethod
    def of(cls, files: Sequence[TableFile], by: str) -> Blocked:
        """Add up the figures of files."""
        return cls(sum(file.rows for file in files), sum(file.bytes for file in files), by)


@dataclass(frozen=True, slots=True)
class Dropping:
    """The files to remove, and those over the budget that have to stay.

    Parameters
    ----------
    from_us
        All rows stamped from this instant on are kept.
    files
        The files to remove.
    blocked
        Files over the budget that still have to be read.
    """

    from_us: int
    files: tuple[TableFile, ...]
    blocked: tuple[TableFile, ...]


def wanted_from(files: Iterable[TableFile], budget: Budget, watermark_us: int | None) -> int | None:
    """Return the instant from which a budget lets a table keep its rows; None for all of them.

    Parameters
    ----------
    files
        The files of the table.
    budget
        The limits.
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
    """Return the files to remove.

    Parameters
    ----------
    files
        The files of the table.
    wanted_us
        The instant from which rows are to be kept.
    passed_us
        All readers have read the rows before this instant.
    """
    from_us = min(wanted_us, passed_us)
    to_go = [file for file in files if file.last_us < wanted_us]
    goes = tuple(file for file in to_go if file.last_us < from_us)
    return Dropping(from_us, goes, tuple(file for file in to_go if file.last_us >= from_us))
