"""The files of a stream's table that hold tuples which the watermark has not passed: where tuples wait for their turn.

A file says between which stamps its tuples are, and that is mostly enough: it is read for each slice of time it may
have tuples in, a few times. But one mote whose clock runs a day ahead makes every file a day wide. So a file that has
been read again and again is looked into once, for the earliest stamp that is still to come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cluster.storage.stored_files import StoredFile

READS = 8
"""How often a file is read before it is looked into."""
MANY_FILES = 64
"""From so many files on compaction may have left fewer."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file, and for how many slices in a row it has been read."""

    file: StoredFile
    reads: int = 0


class UnreadFiles:
    """Such files, in the order of their earliest tuples.

    Parameters
    ----------
    earliest
        Returns the earliest stamp in a file at or after an instant, given the file's path below the table; None if
        there is none.
    """

    def __init__(self, earliest: Callable[[str, int], int | None]) -> None:
        self._earliest = earliest
        self._waiting: list[_Waiting] = []
        self._many_from = MANY_FILES

    @property
    def many(self) -> bool:
        """Whether there are more than twice as many as there were after :meth:`begin_with`."""
        return len(self._waiting) >= self._many_from

    def begin_with(self, files: Iterable[StoredFile]) -> None:
        """Begin anew with what a table holds at a version; files of several versions by now, and wide."""
        self._waiting = []
        self._add(files, READS - 1)
        self._many_from = max(MANY_FILES, 2 * len(self._waiting))

    def add(self, files: Iterable[StoredFile]) -> None:
        """Take up files that came in later versions."""
        self._add(files, 0)

    def before(self, until_us: int) -> list[StoredFile]:
        """Return the files that may hold tuples stamped before an instant."""
        return [each.file for each in self._waiting[: self._place(until_us)]]

    def forget_before(self, watermark_us: int) -> None:
        """Take note that all tuples stamped before an instant have been read."""
        place = self._place(watermark_us)
        passed, self._waiting = self._waiting[:place], self._waiting[place:]
        for each in passed:
            left = self._left(each, watermark_us)
            if left is not None:
                insort(self._waiting, left, key=_first_us)

    def _left(self, waiting: _Waiting, watermark_us: int) -> _Waiting | None:
        file, reads = waiting.file, waiting.reads + 1
        if file.last_us < watermark_us:
            return None
        if reads < READS:
            return _Waiting(file, reads)
        first_us = self._earliest(file.path, watermark_us)
        return None if first_us is None else _Waiting(replace(file, first_us=first_us))

    def _add(self, files: Iterable[StoredFile], reads: int) -> None:
        for file in files:
            insort(self._waiting, _Waiting(file, reads), key=_first_us)

    def _place(self, instant_us: int) -> int:
        return bisect_left(self._waiting, instant_us, key=_first_us)


def _first_us(waiting: _Waiting) -> int:
    return waiting.file.first_us
