"""The quarantine: the latest rejected frames with the reason, for inspection by a person (a SQLite file).

Bounded: a ring of entries on disk, in a file of a bounded size, and as many in memory until they are written. While the
disk is nearly full, frames are dropped and counted: samples come first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from proxy.errors import StoreFullError
from proxy.storage.database import RESERVE_BYTES, disk_bytes, free_bytes, open_database, reading, transaction

LONGEST_PAYLOAD_BYTES = 64 * 1024
_LONGEST_TEXT = 512
_PENDING = 256
_LARGEST_BYTES = 64 * 1024 * 1024
_LARGEST_SHARE = 8
"""Of the disk the file takes no more than one part in so many."""
_ROW_BYTES = 4 * _LONGEST_TEXT
_LEAST_FREE_BYTES = 2 * RESERVE_BYTES
"""So much of the disk is left to the spool."""


@dataclass(frozen=True, slots=True)
class RejectedFrame:
    """A frame, cut to 64 KiB, and why it was rejected."""

    received_us: int
    topic: str
    reason: str
    detail: str
    payload: bytes


class Quarantine:
    """Rejected frames on disk.

    Parameters
    ----------
    path
        Of the database.
    entries
        How many are kept.

    Attributes
    ----------
    dropped
        How many frames were not kept, as there was no room for them or too many came at once.

    Raises
    ------
    StoreError
        It cannot be opened.
    """

    def __init__(self, path: Path, entries: int) -> None:
        self.path = path
        self._entries = entries
        self._pending: deque[RejectedFrame] = deque(maxlen=min(entries, _PENDING))
        self._connection = open_database(path, "quarantine", durable=False)
        with reading(path):
            page_bytes = int(self._connection.execute("PRAGMA page_size").fetchone()[0])
            most_bytes = min(_LARGEST_BYTES, disk_bytes(path.parent) // _LARGEST_SHARE)
            self._connection.execute(f"PRAGMA max_page_count = {most_bytes // page_bytes}")
        self.dropped = 0

    def put(self, frame: RejectedFrame) -> None:
        """Keep a frame; it is on disk after the next :meth:`write`."""
        self.dropped += len(self._pending) == self._pending.maxlen
        self._pending.append(frame)

    def take_pending(self) -> list[RejectedFrame]:
        """Remove and return the frames that are not yet on disk."""
        pending = list(self._pending)
        self._pending.clear()
        return pending

    def write(self, frames: list[RejectedFrame]) -> None:
        """Write frames to disk and delete the oldest beyond the bounds.

        Raises
        ------
        StoreFullError, StoreError
            They were not written, and are counted as dropped.
        """
        try:
            self._write(frames)
        except BaseException:
            self.dropped += len(frames)
            raise

    def _write(self, frames: list[RejectedFrame]) -> None:
        needed = sum(len(each.payload) + _ROW_BYTES for each in frames)
        if free_bytes(self.path.parent) < needed + _LEAST_FREE_BYTES:
            raise StoreFullError(self.path, "the disk is nearly full")
        try:
            self._insert(frames)
        except StoreFullError:  # the file has its largest size: the older half makes room
            with transaction(self._connection, self.path):
                self._connection.execute(
                    "DELETE FROM frames WHERE number <= (SELECT (min(number) + max(number)) / 2 FROM frames)"
                )
            self._insert(frames)

    def _insert(self, frames: list[RejectedFrame]) -> None:
        with transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT INTO frames (heard_us, topic, reason, detail, payload) VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        each.received_us,
                        each.topic[:_LONGEST_TEXT],
                        each.reason,
                        each.detail[:_LONGEST_TEXT],
                        each.payload[:LONGEST_PAYLOAD_BYTES],
                    )
                    for each in frames
                ],
            )
            self._connection.execute(
                "DELETE FROM frames WHERE number <= (SELECT max(number) FROM frames) - ?", (self._entries,)
            )

    def frames(self) -> list[RejectedFrame]:
        """Return what is on disk, the oldest first; raises StoreError."""
        ordered = "SELECT heard_us, topic, reason, detail, payload FROM frames ORDER BY number"
        with reading(self.path):
            return [RejectedFrame(*row) for row in self._connection.execute(ordered)]

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
