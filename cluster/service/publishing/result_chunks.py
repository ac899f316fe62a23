"""Commits of the results table, cut and joined into chunks of rows that are published together.

    commits    ...[ 7 ][8][9][           10           ][ 11 ]
    chunks        [    a    ][    b    ][    c    ][    d   ]      each of about so many rows
    segments       7    8  9   10         10        10   11        each part of one commit

So small commits cost little more than large ones, and large ones need little memory. A publisher that has some of the
shards only leaves out the rows of others; its positions count these, too, so that they mean the same to all publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from cluster.errors import StorageError
from cluster.service.publishing.result_messages import Extras, no_frames, result_frames
from cluster.service.publishing.shares import ALL_SHARDS, shard_of
from protocols.mqtt.publish_frames import PublishFrames

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_ROWS = 4_096
CHUNK_BYTES = 16 * 1024**2
"""A chunk ends when it has so many rows, or so many bytes."""

ReadCommit = Callable[[int, int], Iterator[pa.RecordBatch]]
"""As :meth:`cluster.storage.committed_results.CommittedResults.read`."""

Unpublished: TypeAlias = Callable[[int], frozenset[int]]
"""Returns the shards of which a version is to be published."""


class Position(NamedTuple):
    """Everything up to a version of the results table, and so many rows of the next one."""

    version: int
    row: int = 0


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


def chunks(
    read: ReadCommit,
    position: Position,
    newest: int,
    extras: Extras,
    unpublished: Unpublished = lambda _: ALL_SHARDS,
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
    unpublished
        Which shards are to be published; all rows of others are left out.

    Raises
    ------
    StorageError
        If a commit cannot be read; what comes before it has been yielded.
    """
    waiting, skipped = _Waiting(position), position.row
    for version in range(position.version + 1, newest + 1):
        first, shards = 0, unpublished(version)
        try:
            for batch in read(version, newest):
                for segment, rows in _segments(batch, version, first, skipped, shards):
                    if waiting.full:
                        yield waiting.chunk(extras)
                    waiting.add(segment, rows)
                first += batch.num_rows
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


def _segments(
    batch: pa.RecordBatch, version: int, first: int, skipped: int, shards: frozenset[int]
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
    shards
        Which shards are published.
    """
    rows = batch.slice(max(0, skipped - first))
    first += batch.num_rows - rows.num_rows
    if shards == ALL_SHARDS:
        for part in _parts(rows):
            yield Segment(version, first, part.num_rows), part
            first += part.num_rows
        return
    here = _places(rows, shards)
    for part in _parts(rows.take(pa.array(here))):
        places, here = here[: part.num_rows] + first, here[part.num_rows :]
        yield Segment(version, int(places[0]), part.num_rows, places=places), part


def _places(rows: pa.RecordBatch, shards: frozenset[int]) -> NDArray[np.int64]:
    """Return where the rows of some shards are."""
    if not shards:
        return np.empty(0, np.int64)
    queries = rows.column("query").dictionary_encode()
    chosen = np.array([shard_of(name) in shards for name in queries.dictionary.to_pylist()], np.bool_)
    return np.flatnonzero(chosen[np.asarray(queries.indices)]).astype(np.int64)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are no larger than a chunk, on average."""
    rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
