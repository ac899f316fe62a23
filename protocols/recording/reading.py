"""Reading logs of events. They may come from anywhere: sizes are bounded, and a torn end is an end."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from protocols.recording.entries import (
    LATEST_NS,
    MAGIC,
    MAX_FRAME_BYTES,
    MOST_PAUSE_NS,
    Began,
    Chunk,
    ClockRead,
    Header,
    Input,
    LogError,
    Sent,
    Turn,
    WallClock,
    decode_chunk,
    decode_header,
)
from protocols.recording.segments import FRAME, segment_files


@dataclass(slots=True)
class RecordedTurn:
    """A turn of the loop.

    Parameters
    ----------
    now_ns, ahead_ns
        The monotonic clock, and how far the time of day is ahead of it.
    waited
        Whether nothing could be done before it.
    inputs
        What reached the part, in order.
    sent
        What it published in the turn.
    began
        The tasks that wanted work to be done in threads.
    reads
        By number, readings of clocks that showed a later time.
    connected
        Whether there was a connection when the chunk of this turn began.
    """

    now_ns: int
    ahead_ns: int
    waited: bool
    connected: bool
    inputs: list[Input] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    reads: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class RecordedRun:
    """A run of a process, or what is left of it.

    Parameters
    ----------
    header
        Of its first segment.
    files
        Its segments.
    """

    header: Header
    files: list[Path]
    damage: str | None = None
    """Why it ends before its files do; known once it has been read."""

    @property
    def exact(self) -> bool:
        """Whether the log has all from the beginning of the process."""
        return self.header.begins and not self.header.left_out

    def turns(self) -> Iterator[RecordedTurn]:
        """Yield the turns of the run."""
        self.damage = None
        turn: RecordedTurn | None = None
        now_ns = ahead_ns = 0
        for chunk in self._chunks():
            now_ns, ahead_ns = chunk.now_ns, chunk.ahead_ns
            for entry in chunk.entries:
                if isinstance(entry, Turn):
                    if turn is not None:
                        yield turn
                    now_ns += entry.after_ns
                    if now_ns > LATEST_NS:
                        self.damage = "its clock goes on for centuries"
                        return
                    turn = RecordedTurn(now_ns, ahead_ns, entry.waited, chunk.connected)
                elif isinstance(entry, WallClock):
                    ahead_ns = entry.ahead_ns
                    if turn is not None:
                        turn.ahead_ns = ahead_ns
                elif turn is None:
                    continue  # of a turn that was in a segment that is gone
                elif isinstance(entry, ClockRead):
                    if not now_ns <= entry.now_ns <= now_ns + MOST_PAUSE_NS:
                        self.damage = "a clock jumps within a turn"
                        yield turn
                        return
                    now_ns = turn.reads[entry.number] = entry.now_ns
                elif isinstance(entry, Sent):
                    turn.sent.append(entry)
                elif isinstance(entry, Began):
                    turn.began.append(entry.task)
                else:
                    turn.inputs.append(entry)
        if turn is not None:
            yield turn

    def known(self) -> Counter[tuple[str, str]]:
        """Return how many messages of each topic were sent, and how many pieces of work of each task began."""
        found: Counter[tuple[str, str]] = Counter()
        for turn in self.turns():
            found.update(("sent", each.topic) for each in turn.sent)
            found.update(("began", task) for task in turn.began)
        return found

    def _chunks(self) -> Iterator[Chunk]:
        for number, file in enumerate(self.files):
            left = len(self.files) - 1 - number
            if number and int(file.stem) != int(self.files[number - 1].stem) + 1:
                self.damage = f"the segment before {file.name} is missing; {left + 1} segments are left out"
                return
            with _opened(file) as segment:
                try:
                    _read_header(segment, file)
                    whole = segment.tell()
                    while (content := _read_frame(segment, file)) is not None:
                        yield decode_chunk(content)
                        whole = segment.tell()
                except LogError as error:
                    self.damage = error.message
                else:
                    if left and whole < os.fstat(segment.fileno()).st_size:
                        self.damage = f"{file.name} is cut off"
                if self.damage is not None:
                    if left:
                        self.damage += f"; {left} further segments are left out"
                    return


def read_runs(folder: Path) -> list[RecordedRun]:
    """Return the runs in a log of events, the oldest first.

    Raises
    ------
    LogError
        It cannot be read, or holds none.
    """
    runs: list[RecordedRun] = []
    try:
        for file in segment_files(folder) if folder.is_dir() else [folder]:
            with file.open("rb") as segment:
                try:
                    header = _read_header(segment, file)
                except LogError:
                    if len(runs) == 0:
                        raise
                    runs[-1].files.append(file)  # reading the run reports it
                    continue
            if runs and runs[-1].header.run == header.run:
                runs[-1].files.append(file)
            else:
                runs.append(RecordedRun(header, [file]))
    except OSError as error:
        raise LogError(f"cannot read {folder}: {error.strerror}") from error
    if not runs:
        raise LogError(f"there is no log of events in {folder}", hint="record one with --record FOLDER")
    return runs


def decompressed(content: bytes, name: str, most_bytes: int) -> bytes:
    """Return a file of a log.

    Parameters
    ----------
    content
        As the log holds it.
    name
        Of the file, for errors.
    most_bytes
        What it may have.

    Raises
    ------
    LogError
        It is damaged, torn or larger.
    """
    decompressor = zlib.decompressobj()
    try:
        found = decompressor.decompress(content, most_bytes)
    except zlib.error as error:
        raise LogError(f"the copy of {name} in the log is damaged: {error}") from error
    if not decompressor.eof:
        raise LogError(f"the copy of {name} in the log is torn, or larger than {most_bytes:,} bytes")
    return found


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    try:
        with file.open("rb") as segment:
            yield segment
    except OSError as error:
        raise LogError(
            f"cannot read {file}: {error.strerror}",
            hint="a process that records here deletes old segments: copy the folder, and replay the copy",
        ) from error


def _read_header(segment: BinaryIO, file: Path) -> Header:
    if segment.read(len(MAGIC)) != MAGIC:
        raise LogError(f"{file.name} is no log of events")
    content = _read_frame(segment, file)
    if content is None:
        raise LogError(f"{file.name} ends before its header does")
    return decode_header(content)


def _read_frame(segment: BinaryIO, file: Path) -> bytes | None:
    """Return the content of the next frame; None if there is none, or it was not written to its end."""
    head = segment.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    size, checksum = FRAME.unpack(head)
    if size > MAX_FRAME_BYTES:
        raise LogError(f"{file.name} has a frame of {size:,} bytes, the limit is {MAX_FRAME_BYTES:,}")
    if size > os.fstat(segment.fileno()).st_size - segment.tell():
        return None  # before there is room for what is not there
    content = segment.read(size)
    if len(content) < size:
        return None
    if zlib.crc32(content) != checksum:
        raise LogError(f"{file.name} is damaged")
    return content
