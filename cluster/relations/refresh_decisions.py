"""When a relation's source is read, and what a read leads to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, auto

from cluster.language.quantities import written
from cluster.relations.freshness import Freshness


class Commit(StrEnum):
    """The version that follows a read."""

    NOTHING = auto()
    """None: the last version stays."""
    ROWS = auto()
    """One with the rows that were read."""
    RECOVERY = auto()
    """One with the rows of before: the last version says that the source is away, and it is not any more."""


class Trouble(StrEnum):
    """What keeps a relation from being read."""

    NONE = auto()
    STARTING = auto()
    """The source is not there yet, and is expected."""
    AWAY = auto()


@dataclass(frozen=True, slots=True)
class Refreshing:
    """The state of a relation's refreshing. Times are seconds of a monotonic clock.

    Parameters
    ----------
    freshness
        How fresh it is.
    next_look
        When its source is read again.
    reading
        True while its source is read.
    preparing
        True from the writing of a version's rows to its commit: no other version may be committed in between.
    failure
        Why the last version has no rows; empty if it has, None if there is no version.
    """

    freshness: Freshness
    next_look: float
    reading: bool
    preparing: bool
    failure: str | None

    def is_due(self, now: float) -> bool:
        """Return whether the source is to be read now."""
        return not self.reading and now >= self.next_look

    def is_overdue(self, now: float) -> bool:
        """Return whether a version is due that says that the last rows may not be used any more."""
        return self.failure == "" and not self.preparing and self.freshness.overdue(now)


def overdue_failure(name: str, freshness: Freshness) -> str:
    """Return what the queries of a relation are to report that has been stale for too long."""
    limit = written(int((freshness.stale_seconds or 0) * 1e6)).lower()
    return f"relation {name} has been stale for {limit}: {freshness.reason}"


def commit_after_read(*, changed: bool, needed: bool, failure: str | None) -> Commit:
    """Return which version follows a read.

    Parameters
    ----------
    changed
        Whether the rows differ from those of the last version; true if there is none.
    needed
        See :func:`rows_needed`.
    failure
        As in :class:`Refreshing`.
    """
    if changed and needed:
        return Commit.ROWS
    return Commit.RECOVERY if failure else Commit.NOTHING


def rows_needed(
    *, built_in: bool, wanted: bool, has_version: bool, same_columns: bool, is_read: Callable[[], bool]
) -> bool:
    """Return whether changed rows are worth a version: those of a built-in relation are only while queries read it.

    Parameters
    ----------
    built_in
        Whether the relation was not created by a statement.
    wanted
        Whether a query is about to read it.
    has_version
        Whether it has a version.
    same_columns
        Whether that has the columns that were read.
    is_read
        Returns whether a query reads it; asked last, as that looks into the registry.
    """
    return not built_in or wanted or not has_version or not same_columns or is_read()
