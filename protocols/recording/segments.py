"""Writing a log of events: segment files in a folder, bounded in total, by a thread of its own.

Nothing here may harm the part that is recorded. If the disk is full, or slower than what happens, the recording ends:
that is counted and logged once, and the part goes on.
"""

from __future__ import annotations

import fcntl
import os
import queue
import secrets
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from protocols.event_log import get_logger
from protocols.recording.entries import MAGIC, SUFFIX, Chunk, Header, LogError, encode
from protocols.security.private_files import make_private

log = get_logger(__name__)

DEFAULT_LOG_BYTES: Final = 64 * 1024 * 1024
LEAST_LOG_BYTES: Final = 16_000
"""A smaller one would be full of headers."""
SEGMENTS: Final = 8
"""Into how many segments a log of full size is divided."""
MOST_WAITING_BYTES: Final = 32 * 1024 * 1024
"""What may wait to be written; if the disk is slower, the recording ends."""
FRAME: Final = struct.Struct("<II")
"""Length and checksum, before each frame."""

MakeHeader = Callable[[str, bool, int], Header]
"""Makes a segment's header: of which run, whether the process begins here, and how many bytes of state it may have."""


def frame(content: bytes) -> bytes:
    """Return the frame of a header or a chunk."""
    return FRAME.pack(len(content), zlib.crc32(content)) + content


def segment_files(folder: Path) -> list[Path]:
    """Return the segments of a log, the oldest first; raises OSError."""
    return sorted(each for each in folder.iterdir() if each.suffix == SUFFIX and each.stem.isdecimal())


class SegmentWriter:
    """Writes the log of one run of a process.

    Parameters
    ----------
    folder
        Where the segments are; those of earlier runs stay for as long as there is room.
    limit_bytes
        Of all segments together.
    make_header
        Makes the header of each segment; called in the writer's thread.

    Attributes
    ----------
    writes
        False once the recording has ended.
    trouble
        Why it ended before the process did.

    Raises
    ------
    LogError
        The folder cannot be used, or another process records there; or the limit is too small.
    """

    def __init__(self, folder: Path, limit_bytes: int, make_header: MakeHeader) -> None:
        if limit_bytes < LEAST_LOG_BYTES:
            raise LogError(
                f"a log of {limit_bytes:,} bytes holds nothing", hint=f"--record-size is {LEAST_LOG_BYTES:,} or more"
            )
        self.writes = True
        self.trouble: str | None = None
        self.bytes_written = 0
        self._folder = folder
        self._limit = limit_bytes
        self._segment_bytes = max(1, limit_bytes // SEGMENTS)
        self._make_header = make_header
        self._lock_descriptor = self._descriptor = -1
        self._size = self._header_bytes = 0
        self._warned = False
        self._run = secrets.token_hex(8)
        self._waiting: queue.SimpleQueue[tuple[Chunk | None, int]] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        try:
            make_private(folder)
            self._own_folder()
            last = [int(each.stem) for each in segment_files(folder)][-1:]
            self._number = last[0] if last else 0
            self._begin(begins=True)
        except BaseException as error:
            self._close_all()
            if isinstance(error, OSError):
                raise LogError(f"cannot record in {folder}: {error.strerror}") from error
            raise
        self._thread = threading.Thread(target=self._write_all, name="record", daemon=True)
        self._thread.start()

    def put(self, chunk: Chunk, size_bytes: int) -> None:
        """Write a chunk soon; `size_bytes` is about how large it is."""
        with self._lock:
            self._waiting_bytes += size_bytes
            too_slow = self._waiting_bytes > MOST_WAITING_BYTES
        if too_slow:
            self.end("the disk is slower than what happens")
        if self.writes:
            self._waiting.put((chunk, size_bytes))

    def close(self) -> None:
        """Write what waits, and end."""
        self._waiting.put((None, 0))
        self._thread.join(timeout=10)

    def _write_all(self) -> None:
        while True:
            chunk, size_bytes = self._waiting.get()
            if chunk is None:
                break
            with self._lock:
                self._waiting_bytes -= size_bytes
            if not self.writes:
                continue
            try:
                self._write(chunk)
            except OSError as error:
                self.end(str(error.strerror or error))
            except Exception as error:  # noqa: BLE001 - of what makes headers, such as a database
                self.end(str(error))
        self._close_all()

    def _own_folder(self) -> None:
        """Lock the folder until the recording ends, or the process does."""
        self._lock_descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LogError(
                f"another process records in {self._folder}", hint="choose another folder with --record"
            ) from error

    def _write(self, chunk: Chunk) -> None:
        content = frame(encode(chunk))
        if self._header_bytes + len(content) > self._limit:
            self.end("too much happens at once for a log of this size")
            return
        if self._size >= self._segment_bytes:
            self._close()
            self._begin(begins=False)
        self._make_room(len(content))
        self._append(content)

    def _begin(self, *, begins: bool) -> None:
        """Begin a segment, and delete the oldest until all fit."""
        self._number += 1
        header = self._make_header(self._run, begins, self._segment_bytes // 2)
        if header.left_out and not self._warned:
            self._warned = True
            log.warning(
                "a replay will not be compared: copies of files do not fit into the log, use a larger --record-size",
                folder=str(self._folder), files=list(header.left_out),
            )  # fmt: skip
        self._descriptor = os.open(
            self._folder / f"{self._number:08}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
        )
        self._size = 0
        self._append(MAGIC + frame(encode(header)))
        self._header_bytes = self._size
        self._make_room(self._segment_bytes)

    def _make_room(self, needed_bytes: int) -> None:
        """Delete the oldest segments until so many bytes fit; the one that is written stays."""
        files = segment_files(self._folder)
        sizes = [each.stat().st_size for each in files]
        while len(files) > 1 and sum(sizes) + needed_bytes > self._limit:
            files.pop(0).unlink()
            sizes.pop(0)

    def _append(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._size += len(content)
        self.bytes_written += len(content)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _close_all(self) -> None:
        self._close()
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def end(self, reason: str) -> None:
        """Write no more, and log why."""
        if self.writes:
            self.writes = False
            self.trouble = reason
            log.error("recording ends, the part goes on", folder=str(self._folder), reason=reason)


def masked(settings: dict[str, Any]) -> dict[str, int | float | str | bool | None]:
    """Return settings as a header holds them: plain values, and no secret."""
    from protocols.event_format import hide_secrets  # noqa: PLC0415 - imports structlog

    hidden = hide_secrets(None, "", dict(settings))
    return {
        name: value if isinstance(value, int | float | str | bool | None) else str(value)
        for name, value in hidden.items()
    }
