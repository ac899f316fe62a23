"""How far publication is, in front or of a query that is behind: what is on its way, and what the broker has.

Pure.

    sent           [  a  ][  b  ][  c  ]     chunks in flight: few at a time, each begins where the one before ends
    acknowledged       ^                     moves with the oldest of them only
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cluster.service.publishing.published import Position
from cluster.service.publishing.result_chunks import Chunk

CHUNKS_IN_FLIGHT = 3


class LostCommits(NamedTuple):
    """Commits that are gone before they were published.

    Parameters
    ----------
    through
        The last of them: publication goes on after it.
    commits, rows
        How many, and how many rows of them had not been published; rows as far as is known.
    """

    through: int
    commits: int
    rows: int


class PublishingPosition:
    """How far one publisher is.

    Parameters
    ----------
    position
        What has been published, as it was noted.
    """

    def __init__(self, position: Position) -> None:
        self.acknowledged = position
        """Up to here the broker has everything; what is noted on disk may be behind it."""
        self.rows = 0
        """How many rows it has acknowledged since the publisher began."""
        self._in_flight: deque[Chunk] = deque()

    @property
    def full(self) -> bool:
        """Whether an acknowledgement has to come before another chunk is sent."""
        return len(self._in_flight) >= CHUNKS_IN_FLIGHT

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._in_flight

    def sent(self, chunk: Chunk) -> None:
        """Note that a chunk is on its way; raises ValueError unless it begins where the one before ends."""
        last = self._in_flight[-1] if self._in_flight else None
        end = self.acknowledged if last is None else last.after(len(last.frames))
        if chunk.begins != end:
            raise ValueError(f"a chunk begins at {chunk.begins}, and the one before ends at {end}")
        self._in_flight.append(chunk)

    def received(self, rows: int | None = None) -> None:
        """Note that the broker has so many rows of the oldest chunk, None for all, and acknowledges no more of it."""
        chunk = self._in_flight.popleft()
        count = len(chunk.frames) if rows is None else rows
        self.acknowledged = chunk.after(count)
        self.rows += count

    def broken_off(self) -> None:
        """Note that nothing is on its way any more: what was not acknowledged is sent again."""
        self._in_flight.clear()

    def gone(self, version: int, next_version: int, rows: int | None) -> LostCommits:
        """Return what is lost; publication goes on with :meth:`go_on_after`, once that has been noted.

        Parameters
        ----------
        version, next_version
            The first commit that is gone, and the first after it that is not.
        rows
            How many rows the missing ones had; None if that is unknown.
        """
        return LostCommits(next_version - 1, next_version - version, max(0, (rows or 0) - self.acknowledged.row))

    def go_on_after(self, lost: LostCommits) -> None:
        """Go on with the first commit that is left; nothing that was on its way counts any more."""
        self.broken_off()
        self.acknowledged = Position(lost.through)


class GoneCommits:
    """Which commits have been found gone, so that none counts twice: the front finds them, and queries behind it do."""

    def __init__(self) -> None:
        self._found: list[range] = []

    def new(self, version: int, next_version: int) -> int:
        """Return how many of some commits have not been found gone before.

        Examples
        --------
        >>> gone = GoneCommits()
        >>> gone.note(7, 10)
        >>> gone.new(5, 9), gone.new(7, 8), gone.new(9, 12)
        (2, 0, 2)
        """
        found = range(version, next_version)
        return sum(not any(each in earlier for earlier in self._found) for each in found)

    def note(self, version: int, next_version: int) -> None:
        """Note that some commits have been found gone, and are counted."""
        self._found.append(range(version, next_version))

    def forget(self, version: int) -> None:
        """Forget those up to a version, as everything that is published comes after it."""
        self._found = [each for each in self._found if each.stop - 1 > version]
