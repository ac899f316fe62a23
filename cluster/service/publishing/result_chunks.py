"""Commits of the results table, cut and joined into chunks of rows that are published together.

    commits    ...[ 7 ][8][9][           10           ][ 11 ]
    chunks        [    a    ][    b    ][    c    ][    d   ]      each of about so many rows
    segments       7    8  9   10         10        10   11        each part of one commit

So small commits cost little more than large ones, and large ones need little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from cluster.errors import StorageError
from cluster.service.publishing.result_messages import Extras, no_frames, result_frames
from protocols.mqtt.publish_frames import PublishFrames

CHUNK_ROWS = 4_096
CHUNK_BYTES = 16 * 1024**2
"""A chunk ends when it has so many rows, or so many bytes."""

ReadCommit = Callable[[int, int], Iterator[pa.RecordBatch]]
"""As :meth:`cluster.storage.committed_results.CommittedResults.read`."""


class Position(NamedTuple):
    """Everything up to a version of the results table, and so many rows of the next one."""

    version: int
    row: int = 0


class Segment(NamedTuple):
    """Rows of a commit that lie together, or its end.

    Parameters
    ----------
    version
        The version that the commit made.
    first, rows
        How many of its rows are before these, and how many these are.
    last
        Whether it has no more.
    """

    version: int
    first: int
    rows: int
    last: bool = False

    def after(self, rows: int) -> Position:
        """Return the position after so many of the rows."""
        if self.last and rows == self.rows:
            return Position(self.version)
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

    def chunk(self, extras: Extras) -> Chunk:
        """Return it as a chunk, and begin the next one."""
        frames = result_frames(pa.concat_batches(self.batches), extras) if self.batches else no_frames()
        chunk = Chunk(frames, self.begins, tuple(self.segments))
        self.begins, self.batches, self.segments, self.rows, self.bytes = chunk.after(self.rows), [], [], 0, 0
        return chunk


def chunks(read: ReadCommit, position: Position, newest: int, extras: Extras) -> Iterator[Chunk]:
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

    Raises
    ------
    StorageError
        If a commit cannot be read; what comes before it has been yielded.
    """
    waiting, skipped = _Waiting(position), position.row
    for version in range(position.version + 1, newest + 1):
        first = 0
        try:
            for batch in read(version, newest):
                for part in _parts(batch):
                    if waiting.full:
                        yield waiting.chunk(extras)
                    left = part.slice(max(0, skipped - first))
                    if left.num_rows:
                        waiting.add(Segment(version, first + part.num_rows - left.num_rows, left.num_rows), left)
                    first += part.num_rows
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


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are no larger than a chunk, on average."""
    rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
