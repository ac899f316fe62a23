"""What a micro-batch reads of streams for queries that are up to date: from where, and how many rows.

**How many rows of a stream a micro-batch reads when there are many: more, if a plan makes little of each.**

A micro-batch has costs of its own, about 0.1 s, and 0.3 s with state, so few large ones are quicker than many. What
bounds them is memory: answers of a micro-batch pass through the driver's, and what it reads through the workers'.

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.physical.nodes import Fragment, Host, PhysicalPlan, beginning_us
from cluster.physical.operations import (
    Columns,
    Exchange,
    GroupedFilter,
    PaneAggregate,
    Panes,
    PartialAggregate,
    PerQueryFilter,
    Project,
    Sample,
    Scan,
    Sink,
)
from cluster.spark.reading.reads import StreamRead, TableVersions
from cluster.storage.archived_log import names_hold
from cluster.storage.stream_retention import StoredFile, stamped

MOST_TIMES = 4
"""Times the rows of a micro-batch that any plan may read."""
AFTER_AN_OVERRUN = 8
"""Part of the rows of a micro-batch that are read once a fragment of the plan has taken too much."""
COLUMNS = 4
"""A stream of which more columns are read counts as several."""
_NO_ROW_BECOMES_MANY = (
    Scan, Sample, Columns, GroupedFilter, PerQueryFilter, Project, Panes, PartialAggregate, Exchange, PaneAggregate,
    Sink,
)  # fmt: skip


def rows_at_once(plan: PhysicalPlan | None, max_rows: int, overran: Collection[str] = ()) -> int:
    """Return how many rows of a stream a micro-batch of a plan reads at most.

    Where a fragment has overrun a limit, only an eighth: that what has waited during an outage is more than it can take
    at once is no reason to lose it, nor to set its query aside.

    Parameters
    ----------
    plan
        Of one of the two Spark queries; None if there is none yet.
    max_rows
        The bound for any plan.
    overran
        Fragments that have overrun a limit lately.
    """
    if plan is not None and any(fragment.identity in overran for fragment in plan.fragments):
        return max(1, max_rows // AFTER_AN_OVERRUN)
    if plan is None or not plan.fragments or not all(map(_is_frugal, plan.fragments)):
        return max_rows
    read = {column for fragment in plan.fragments for column in _columns(fragment)}
    copies = sum(1 if _adds_up(fragment) else len(fragment.subscribers) for fragment in plan.fragments)
    return max_rows * max(1, MOST_TIMES // (copies * -(-len(read) // COLUMNS) or 1))


def _is_frugal(fragment: Fragment) -> bool:
    return all(isinstance(node.operation, _NO_ROW_BECOMES_MANY) for node in fragment.nodes)


def _adds_up(fragment: Fragment) -> bool:
    """Return whether rows are added up next to the scan, for all of its queries at once."""
    return any(isinstance(node.operation, PartialAggregate) for node in fragment.next_to_scan)


def _columns(fragment: Fragment) -> list[tuple[str, str]]:
    scans = [node.operation for node in fragment.nodes if isinstance(node.operation, Scan)]
    return [(scan.stream, column.name) for scan in scans for column in scan.columns]


class Beginnings:
    """Where streams begin.

    Parameters
    ----------
    tables
        Of the streams.
    """

    def __init__(self, tables: TableVersions) -> None:
        self._tables = tables
        self._begun: dict[str, int] = {}  # by stream: a version at which it has begun

    def between(self, streams: Iterable[str], begins: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return where streams begin that do so between two versions; others that have begun may be among them.

        Parameters
        ----------
        streams
            Which ones.
        begins, ends
            By stream: the versions after which and up to which a micro-batch reads.
        """
        found = {}
        for stream in sorted(streams):
            begin = begins[stream]
            if begin >= self._begun.get(stream, begin + 1):
                continue
            first_us = self._tables.stored(stream, begin).first_us
            if beginning_us(first_us, [(None, self._tables.watermark_us(stream, begin))]) is not None:
                self._begun[stream] = begin
                continue
            commits = (
                (self._earliest_us(stream, version), self._tables.watermark_us(stream, version))
                for version in range(begin + 1, ends[stream] + 1)
            )
            begins_us = beginning_us(first_us, commits)
            if begins_us is not None:
                found[stream] = begins_us
        return found

    def _earliest_us(self, stream: str, version: int) -> int | None:
        stamps = (file.first_us for file in self._tables.commit(stream, version).files)
        return min((each for each in stamps if each is not None), default=None)


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
