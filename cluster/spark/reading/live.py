"""What a micro-batch reads of streams for queries that are up to date.

    version     |  begin                 end            stateful: what the versions after `begin` added, as it came;
    ------------+------------------------------          it waits in the state until the watermark has passed it
    stamps      |  watermark at begin    at end          stateless: what lies between the two watermarks, in order,
                |=== this micro-batch ===|               whatever version added it; the table itself is where it waits

No version holds a row stamped before the watermark of an earlier one. So between two watermarks nothing can be missing
at the version that set the second, and slices put one behind the other are the stream, each row once and in order.

A file's first and last stamp are in the table's log, and that is mostly enough: it is read for each slice of time that
it may have tuples in, a few times. But one mote whose clock runs a day ahead makes every file a day wide. So a file
that has been read again and again is opened once, for the earliest stamp that is still to come.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.physical.nodes import Host, PhysicalPlan
from cluster.spark.reading.reads import StreamRead
from cluster.spark.reading.tables import TableVersions
from cluster.storage.retention import names_hold
from cluster.storage.stored_files import StoredFile, stamped

READS = 8
"""How often a file is read before it is opened for its earliest stamp that is still to come."""
MANY_FILES = 64
"""From this many files on, compaction may have left fewer."""


class LiveReads:
    """Decides what micro-batches read live.

    Parameters
    ----------
    host
        Which of the two Spark queries reads.
    tables
        The streams' tables.
    clock
        Seconds since 1970.
    """

    def __init__(self, host: Host, tables: TableVersions, *, clock: Callable[[], float] = time.time) -> None:
        self._host = host
        self._tables = tables
        self._clock = clock
        self._pending: dict[str, PendingFiles] = {}

    def between(self, plan: PhysicalPlan, begins: Mapping[str, int], ends: Mapping[str, int]) -> list[StreamRead]:
        """Return what a micro-batch reads of each stream of its plan.

        Parameters
        ----------
        plan
            The plan.
        begins, ends
            By stream: the versions after which and up to which it reads.
        """
        read = self._slice if self._host is Host.STATELESS else self._added
        return [read(stream, begins[stream], ends[stream]) for stream in sorted(plan.streams)]

    def passed(self, stream: str, begin: int, end: int) -> Sequence[StoredFile]:
        """Return the files that may hold tuples which the watermark passes between two versions, in order of time.

        There may be files of later versions among them: no tuple of theirs is stamped before the watermark.
        """
        known = self._pending.get(stream)
        # Tuples of tomorrow wait in files that compaction replaces, and removes a day later. What the table holds at
        # `begin` is kept for as long as it is read from there.
        if known is None or known.passed_version > begin or not names_hold(self._clock(), known.named_since):
            known = self._pending[stream] = PendingFiles(stream, begin, self._tables)
        known.extend(end)
        return known.before(self._tables.complete_until_us(stream, end))

    def forget(self, done: Mapping[str, int]) -> None:
        """Forget what is not read again once each stream that is read has been read up to its version in `done`."""
        self._pending = {
            stream: self._behind(pending, stream, done[stream])
            for stream, pending in self._pending.items()
            if stream in done
        }

    def _behind(self, pending: PendingFiles, stream: str, version: int) -> PendingFiles:
        pending.extend(version)
        left = PendingFiles(stream, version, self._tables) if pending.many else pending
        left.forget_passed(version)
        return left

    def _added(self, stream: str, begin: int, end: int) -> StreamRead:
        files = (file for version in range(begin + 1, end + 1) for file in self._tables.commit(stream, version).files)
        return StreamRead(
            stream, tuple((file.path, file.rows) for file in files), self._tables.watermark_us(stream, end)
        )

    def _slice(self, stream: str, begin: int, end: int) -> StreamRead:
        from_us = self._tables.complete_until_us(stream, begin)
        until_us = self._tables.complete_until_us(stream, end)
        files = self.passed(stream, begin, end) if from_us < until_us else ()
        return StreamRead(
            stream,
            tuple((file.path, file.rows) for file in files),
            self._tables.watermark_us(stream, end),
            (from_us, until_us),
            stamps=tuple((file.first_us, file.last_us) for file in files),
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    """A file, and for how many slices in a row it has been read."""

    file: StoredFile
    reads: int = 0


class PendingFiles:
    """The files of a stream's table that hold tuples which the watermark has not passed, by their earliest tuple.

    Parameters
    ----------
    stream
        Its name.
    version
        Of its table, to begin with.
    tables
        The streams' tables.

    Attributes
    ----------
    passed_version
        The version whose watermark all these tuples are behind.
    named_since
        When the oldest version was made from whose log files are named, in seconds since 1970.
    """

    def __init__(self, stream: str, version: int, tables: TableVersions) -> None:
        self._stream = stream
        self._tables = tables
        self._version = self.passed_version = version
        self.named_since = tables.committed_at(stream, version)
        self._pending: list[_Pending] = []
        # Files of several versions by now, and wide.
        self._add(tables.stored(stream, version).between(tables.complete_until_us(stream, version), None), READS - 1)
        self._many_from = max(MANY_FILES, 2 * len(self._pending))

    @property
    def many(self) -> bool:
        """Whether there are many, and more than twice as many as at the beginning."""
        return len(self._pending) >= self._many_from

    def extend(self, version: int) -> None:
        """Add the files that came in versions up to this one."""
        for each in range(self._version + 1, version + 1):
            self._add(stamped(self._tables.commit(self._stream, each)), 0)
        self._version = max(self._version, version)

    def before(self, until_us: int) -> list[StoredFile]:
        """Return the files that may hold tuples stamped before an instant."""
        return [each.file for each in self._pending[: self._place(until_us)]]

    def forget_passed(self, version: int) -> None:
        """Forget all tuples that the watermark has passed at a version: they have been read."""
        watermark_us = self._tables.complete_until_us(self._stream, version)
        place = self._place(watermark_us)
        passed, self._pending = self._pending[:place], self._pending[place:]
        for each in passed:
            left = self._left(each, watermark_us)
            if left is not None:
                insort(self._pending, left, key=_first_us)
        self.passed_version = version

    def _left(self, pending: _Pending, watermark_us: int) -> _Pending | None:
        file, reads = pending.file, pending.reads + 1
        if file.last_us < watermark_us:
            return None
        if reads < READS:
            return _Pending(file, reads)
        first_us = self._tables.earliest_us(self._stream, file.path, watermark_us)
        return None if first_us is None else _Pending(replace(file, first_us=first_us))

    def _add(self, files: Iterable[StoredFile], reads: int) -> None:
        for file in files:
            insort(self._pending, _Pending(file, reads), key=_first_us)

    def _place(self, instant_us: int) -> int:
        return bisect_left(self._pending, instant_us, key=_first_us)


def _first_us(pending: _Pending) -> int:
    return pending.file.first_us
