"""The newest messages and rows that were rejected, with the reason, for people to look at."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cluster.errors import UnwritableError
from cluster.service.registry.registry_file import RegistryFile
from cluster.storage.synced_files import Troubles

MOST_ROWS = 1000
"""Older ones go."""
MOST_BYTES = 4096
"""Of each: they wait in memory, while the disk is full for as long as that lasts."""
WRITING_SECONDS = 1.0
"""At most one transaction in this time: a proxy whose rows all come too late holds up no one else's."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A rejected message or row."""

    seen_us: int
    kind: str
    reason: str
    origin: str
    content: bytes


class Quarantine:
    """The registry's table of rejected messages and rows.

    Parameters
    ----------
    database
        The registry's.
    troubles
        Counts what could not be written at once.
    clock
        Seconds that only go forward.
    """

    def __init__(self, database: RegistryFile, troubles: Troubles, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._troubles = troubles
        self._clock = clock
        self._waiting = deque[Quarantined](maxlen=MOST_ROWS)
        self._written_at = -WRITING_SECONDS

    @property
    def waiting(self) -> int:
        """How many are not stored yet."""
        return len(self._waiting)

    def keep(self, kind: str, reason: str, origin: str, content: bytes) -> None:
        """Keep the beginning of a rejected message or row, and store it soon; the oldest goes beyond the limit."""
        self._waiting.append(Quarantined(time.time_ns() // 1000, kind, reason, origin, content[:MOST_BYTES]))
        if self._clock() - self._written_at >= WRITING_SECONDS:
            self.write()

    def write(self) -> None:
        """Store what waits, as the service does once a second; if that fails, it is counted, and tried again."""
        if not self._waiting:
            return
        self._written_at = self._clock()
        try:
            self._store()
        except UnwritableError as error:
            self._troubles.note("quarantine", error.message)
            return
        self._waiting.clear()

    def newest(self, limit: int = 100) -> list[Quarantined]:
        """Return the latest rejected messages and rows, newest first."""
        self.write()
        rows = self._database.execute(
            "SELECT seen_us, kind, reason, origin, content FROM quarantine ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [Quarantined(*row) for row in rows]

    def _store(self) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT INTO quarantine (seen_us, kind, reason, origin, content) VALUES (?, ?, ?, ?, ?)",
                [(each.seen_us, each.kind, each.reason, each.origin, each.content) for each in self._waiting],
            )
            self._database.execute(
                "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", (MOST_ROWS,)
            )
