"""When a publisher's process is started again, what it is informed of, and which failures in its reports are new.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.service.publishing.publisher_channel import News, Note

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a new start: doubled each time, until a publisher has connected."""
NEWS_SECONDS = 1.0
"""Between two looks at whether notes have changed."""


@dataclass(slots=True)
class RestartPauses:
    """The pauses before new starts.

    Examples
    --------
    >>> pauses = RestartPauses(1.0, 4.0)
    >>> [pauses.after(succeeded=succeeded) for succeeded in (False, False, False, False, True, False)]
    [1.0, 2.0, 4.0, 4.0, 1.0, 2.0]
    """

    first_seconds: float = FIRST_PAUSE_SECONDS
    longest_seconds: float = LONGEST_PAUSE_SECONDS
    _next: float | None = None

    def after(self, *, succeeded: bool) -> float:
        """Return the seconds to wait after an attempt has ended, given whether it had succeeded before."""
        pause = self.first_seconds if succeeded or self._next is None else self._next
        self._next = min(2 * pause, self.longest_seconds)
        return pause


@dataclass(slots=True)
class NewsToWrite:
    """What is written to a process: the newest version whenever it is another, and notes that have changed."""

    _written: News | None = None
    _notes: Mapping[str, Note] = field(default_factory=dict)
    _look_at: float = 0.0

    def looks_at_notes(self, now: float) -> bool:
        """Return whether to look at the notes now, which is costly; `now` is seconds of a clock that never goes back.

        If so, they are next looked at later.
        """
        due = now >= self._look_at
        if due:
            self._look_at = now + NEWS_SECONDS
        return due

    def due(self, newest: int, notes: Mapping[str, Note] | None) -> News | None:
        """Return what to write; None for nothing.

        Parameters
        ----------
        newest
            The newest version of the results table.
        notes
            The notes; None if they were not looked at.
        """
        changed = notes is not None and notes != self._notes
        if notes is not None:
            self._notes = notes
        news = News(newest, dict(self._notes) if changed else None)
        if news == self._written:
            return None
        self._written = News(newest)
        return news


def new_failures(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the kinds of failures of which a report counts more than the one before.

    Examples
    --------
    >>> new_failures({"results": 1, "commit": 2}, {"results": 2, "commit": 2, "link": 1})
    ['results', 'link']
    """
    return [what for what, times in now.items() if times > before.get(what, 0)]
