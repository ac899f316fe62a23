"""Commits of the results table, cut and joined into chunks of rows that are published together.

    commits    ...[ 7 ][8][9][           10           ][ 11 ]
    chunks        [    a    ][    b    ][    c    ][    d   ]      each of about so many rows
    segments       7    8  9   10         10        10   11        each part of one commit

So small commits cost little more than large ones, and large ones need little memory. Some rows are left out: those of
other publishers, and those of queries that are behind or not. Positions count these, too, so that they mean the same to
all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from cluster.errors import StorageError
from cluster.service.publishing.published import Position
from cluster.service.publishing.result_messages import Extras, no_frames, result_frames
from cluster.storage.committed_results import PassesOver
from protocols.mqtt.publish_frames import PublishFrames

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_ROWS = 4_096
CHUNK_BYTES = 16 * 1024**2
"""A chunk ends when it has so many rows, or so many bytes."""
MOST_LEFT_OUT = 65_536
"""Or once so many rows behind it are left out: it does not wait while they are read."""

ReadCommit = Callable[[int, int, PassesOver], Iterator[pa.RecordBatch | int]]
"""As :meth:`cluster.storage.committed_results.CommittedResults.read`."""


class Which(Protocol):
    """Which rows are to be published; asked in the thread that reads, commit by commit, and in their order."""

    def begin(self, version: int) -> None:
        """Begin with a commit."""

    def chosen(self, queries: pa.StringArray, first: int) -> NDArray[np.bool_] | None:
        """Return which rows are chosen, None for all.

        Parameters
        ----------
        queries
            Names of their queries.
        first
            How many rows of the commit are before them.
        """

    def passes_over(self, first: int, names: Callable[[], Collection[str]]) -> bool:
        """Return whether rows that begin at a place need not be read, given the names of their queries."""


class Everything:
    """All rows are to be published."""

    def begin(self, version: int) -> None:
        """Begin with a commit."""

    def chosen(self, queries: pa.StringArray, first: int) -> None:
        """Return None."""

    def passes_over(self, first: int, names: Callable[[], Collection[str]]) -> bool:  # noqa: ARG002 - as others have it
        """Return False."""
        return False


class Segment(NamedTuple):
    """Rows of a commit, or its end.

    Parameters
    ----------
    version
        The version that the commit made.
    first, rows
        How many of its rows are before these, and how many these are.
    last
        Whether it has no more.
    places
        Where in the commit each of them is, if rows between them are left out.
    """

    version: int
    first: int
    rows: int
    last: bool = False
    places: NDArray[np.int64] | None = None

    def after(self, rows: int) -> Position:
        """Return the position after so many of the rows."""
        if self.last and rows == self.rows:
            return Position(self.version)
        if self.places is not None and rows:
            return Position(self.version - 1, int(self.places[rows - 1]) + 1)
        return Position(self.version - 1, self.first + rows)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that are published together.

    Parameters
    ----------
    frames
        Their messages.
    begins
        The position before them.
    segments
        What they consist of.
    """

    frames: PublishFrames
    begins: Position
    segments: tuple[Segment, ...]

    def after(self, rows: int) -> Position:
        """Return the position after so many of the rows.

        Examples
        --------
        >>> chunk = Chunk(no_frames(), Position(6), (Segment(7, 0, 10), Segment(7, 10, 0, last=True), Segment(8, 0, 5)))
        >>> [tuple(chunk.after(rows)) for rows in (0, 9, 10, 12, 15)]
        [(6, 0), (6, 9), (7, 0), (7, 2), (7, 5)]
        """
        position = self.begins
        for segment in self.segments:
            if segment.rows > rows:
                return segment.after(rows) if rows else position
            rows -= segment.rows
            position = segment.after(segment.rows)
        return position


@dataclass(slots=True)
class _Waiting:
    """What will be the next chunk."""

    begins: Position
    batches: list[pa.RecordBatch] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    left_out: int = 0

    def add(self, segment: Segment, batch: pa.RecordBatch | None = None) -> None:
        """Add rows, or the end of a commit."""
        self.segments.append(segment)
        if batch is not None:
            self.batches.append(batch)
            self.rows += batch.num_rows
            self.bytes += batch.nbytes

    @property
    def full(self) -> bool:
        """Whether it is large enough."""
        return self.rows >= CHUNK_ROWS or self.bytes >= CHUNK_BYTES

    @property
    def overdue(self) -> bool:
        """Whether it has rows that have waited long enough."""
        return self.rows > 0 and self.left_out > MOST_LEFT_OUT

    def chunk(self, extras: Extras) -> Chunk:
        """Return it as a chunk, and begin the next one."""
        frames = result_frames(pa.concat_batches(self.batches), extras) if self.batches else no_frames()
        chunk = Chunk(frames, self.begins, tuple(self.segments))
        self.begins, self.batches, self.segments = chunk.after(self.rows), [], []
        self.rows = self.bytes = self.left_out = 0
        return chunk


def chunks(
    read: ReadCommit,
    position: Position,
    newest: int,
    extras: Extras,
    which: Which | None = None,
) -> Iterator[Chunk]:
    """Yield what is to be published from a position up to the newest version.

    Parameters
    ----------
    read
        Reads a commit.
    position
        What has been published.
    newest
        The newest version of the table.
    extras
        Returns what else the messages of a query contain.
    which
        Which rows; all unless given.

    Raises
    ------
    StorageError
        If a commit cannot be read; what comes before it has been yielded.
    """
    waiting, skipped, which = _Waiting(position), position.row, which or Everything()
    for version in range(position.version + 1, newest + 1):
        first = 0
        which.begin(version)
        try:
            for batch in read(version, newest, _passes_over(which, skipped)):
                here, taken = batch if isinstance(batch, int) else batch.num_rows, 0
                if not isinstance(batch, int):
                    for segment, rows in _segments(batch, version, first, skipped, which):
                        if waiting.full:
                            yield waiting.chunk(extras)
                        waiting.add(segment, rows)
                        taken += segment.rows
                first += here
                waiting.left_out += here - taken
                if waiting.overdue:
                    yield waiting.chunk(extras)
        except StorageError:
            if waiting.segments:
                yield waiting.chunk(extras)
            raise
        waiting.add(Segment(version, first, 0, last=True))
        skipped = 0
        if waiting.full:
            yield waiting.chunk(extras)
    if waiting.segments:
        yield waiting.chunk(extras)


def _passes_over(which: Which, skipped: int) -> PassesOver:
    return lambda first, rows, names: first + rows <= skipped or which.passes_over(first, names)


def _segments(
    batch: pa.RecordBatch, version: int, first: int, skipped: int, which: Which
) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    """Yield what is to be published of a batch.

    Parameters
    ----------
    batch
        Rows of a commit that lie together.
    version
        The version that the commit made.
    first
        How many rows of the commit are before these.
    skipped
        How many rows of the commit are left out at its beginning.
    which
        Which of the others.
    """
    rows = batch.slice(max(0, skipped - first))
    first += batch.num_rows - rows.num_rows
    chosen = which.chosen(rows.column("query"), first) if rows.num_rows else None
    if chosen is None or chosen.all():
        for part in _parts(rows):
            yield Segment(version, first, part.num_rows), part
            first += part.num_rows
        return
    here = np.flatnonzero(chosen).astype(np.int64)
    for part in _parts(rows.take(pa.array(here))):
        places, here = here[: part.num_rows] + first, here[part.num_rows :]
        yield Segment(version, int(places[0]), part.num_rows, places=places), part


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are no larger than a chunk, on average."""
    rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
