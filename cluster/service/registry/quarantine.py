"""The newest messages and rows that were rejected, with the reason, for people to look at."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster.errors import UnwritableError
from cluster.service.registry.registry_file import RegistryFile
from cluster.storage.synced_files import Troubles

MOST_ROWS = 1000
"""Older ones go."""


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
        Counts what could not be written and was passed over.
    """

    def __init__(self, database: RegistryFile, troubles: Troubles) -> None:
        self._database = database
        self._troubles = troubles

    def keep(self, kind: str, reason: str, origin: str, content: bytes) -> None:
        """Store a rejected message or row; the oldest is deleted beyond the limit. What cannot be stored is counted."""
        try:
            self._keep(kind, reason, origin, content)
        except UnwritableError as error:
            self._troubles.note("quarantine", error.message)

    def newest(self, limit: int = 100) -> list[Quarantined]:
        """Return the latest rejected messages and rows, newest first."""
        rows = self._database.execute(
            "SELECT seen_us, kind, reason, origin, content FROM quarantine ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [Quarantined(*row) for row in rows]

    def _keep(self, kind: str, reason: str, origin: str, content: bytes) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "INSERT INTO quarantine (seen_us, kind, reason, origin, content) VALUES (?, ?, ?, ?, ?)",
                (time.time_ns() // 1000, kind, reason, origin, content),
            )
            self._database.execute(
                "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", (MOST_ROWS,)
            )
