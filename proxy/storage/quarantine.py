"""The quarantine: the latest rejected frames with the reason, for inspection by a person (a SQLite file).

Bounded: a ring of entries on disk, and as many in memory until they are written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from proxy.storage.database import open_database, reading, transaction

LONGEST_PAYLOAD_BYTES = 64 * 1024
_LONGEST_TEXT = 512
_PENDING = 256


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

    def put(self, frame: RejectedFrame) -> None:
        """Keep a frame; it is on disk after the next :meth:`write`."""
        self._pending.append(frame)

    def take_pending(self) -> list[RejectedFrame]:
        """Remove and return the frames that are not yet on disk."""
        pending = list(self._pending)
        self._pending.clear()
        return pending

    def write(self, frames: list[RejectedFrame]) -> None:
        """Write frames to disk and delete the oldest beyond the bound."""
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
