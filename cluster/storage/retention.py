"""How long replaced data stay: commits that left the log, and files that compaction has merged into others.

Decisions without I/O. Replaced data stay for at least a day, for replays and restarts, and as long as any reader needs
them, however long a broker or Spark has been away::

    commits   ---|-------------------------|------------ now
                 needed                    a day ago
    kept         |==============================>
"""

from __future__ import annotations

import math

HOUR_SECONDS = 3_600
KEEP_HOURS = 24
"""How long replaced data stay at least."""


def hours_kept(now: float, needed_since: float | None) -> int:
    """Return for how many hours replaced files are kept.

    Parameters
    ----------
    now
        Seconds since 1970.
    needed_since
        When the oldest version that a reader needs was made; None if none is needed. A file that was in the table
        then, or came later, was not replaced before.
    """
    if needed_since is None:
        return KEEP_HOURS
    return max(KEEP_HOURS, math.ceil((now - needed_since) / HOUR_SECONDS) + 1)


def names_hold(now: float, named_since: float) -> bool:
    """Return whether files that were in a table at an instant surely still exist, whatever its readers need.

    Parameters
    ----------
    now
        Seconds since 1970.
    named_since
        When the version with these files was made, or the oldest of several. A file may be replaced right after it,
        and is removed a day later, unless a reader needs that version.
    """
    return now - named_since < KEEP_HOURS * HOUR_SECONDS / 2


def may_go(last_version: int, changed: float, *, now: float, first_needed: int | None) -> bool:
    """Return whether commits that left the log may be removed.

    Parameters
    ----------
    last_version
        The newest of them, at most.
    changed
        When the last of them was moved, in seconds since 1970.
    now
        Seconds since 1970.
    first_needed
        The oldest version that is still needed; None for none.
    """
    if first_needed is not None and last_version >= first_needed:
        return False
    return changed < now - KEEP_HOURS * HOUR_SECONDS
