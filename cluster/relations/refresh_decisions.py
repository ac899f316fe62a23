"""When a relation's source is read, by how fresh it is to be, and what a read leads to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum, auto

from cluster.language.quantities import written

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
JITTER = 0.1
"""Share by which times between two reads vary, so that many relations are not read at once."""


class State(StrEnum):
    """The state of a relation."""

    FRESH = "fresh"
    STALE = "stale"
    """The source cannot be read, and the last rows stay in use."""
    AWAY = "away"
    """The source cannot be read, and there are no rows that may stay in use."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The state of reading a relation's source. Times are seconds of a monotonic clock.

    Parameters
    ----------
    refresh_seconds
        Time between two reads.
    stale_seconds
        How long its last rows may stay in use; None for ever.
    fresh_at
        When the rows were last known to be current; None if they never were.
    failures
        Failed reads in a row.
    reason
        Why the last read failed; empty if it succeeded.
    """

    refresh_seconds: float
    stale_seconds: float | None = None
    fresh_at: float | None = None
    failures: int = 0
    reason: str = ""

    def succeeded(self, now: float) -> Freshness:
        """Return the state after a successful read at `now`."""
        return replace(self, fresh_at=now, failures=0, reason="")

    def failed(self, reason: str) -> Freshness:
        """Return the state after a failed read."""
        return replace(self, failures=self.failures + 1, reason=reason)

    def pause(self, chance: float) -> float:
        """Return the seconds until the next read.

        Parameters
        ----------
        chance
            A random number from 0 to 1.
        """
        if self.failures:
            seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(self.failures - 1, 16), LONGEST_RETRY_SECONDS)
            seconds = min(seconds, self.refresh_seconds)
        else:
            seconds = self.refresh_seconds
        return seconds * (1 + JITTER * (2 * chance - 1))

    def age(self, now: float) -> float | None:
        """Return how long ago the rows were surely current; None if there are none."""
        return None if self.fresh_at is None else max(now - self.fresh_at, 0.0)

    def overdue(self, now: float) -> bool:
        """Return whether its last rows may no longer be used."""
        age = self.age(now)
        return bool(self.failures) and age is not None and self.stale_seconds is not None and age >= self.stale_seconds

    def state(self, now: float) -> State:
        """Return the state of the relation."""
        if self.fresh_at is None or self.overdue(now):
            return State.AWAY
        return State.STALE if self.failures else State.FRESH


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
