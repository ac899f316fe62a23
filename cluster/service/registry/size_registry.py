"""Which sizes of queries with ranges hold from which instant on."""

from __future__ import annotations

import msgspec

from cluster.service.registry.registry_file import RegistryFile

Changes = list[tuple[int, str]]
"""Instants in microseconds since 1970, ascending, and the quality of rows from each of them on."""


class SizeRegistry:
    """The registry's record of sizes.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def of(self, query: str, created_us: int) -> Changes:
        """Return the sizes of the query of a name that was created at a time; none of an earlier one of this name."""
        found = self._database.execute("SELECT value FROM meta WHERE key = ?", (f"sizes/{query}",)).fetchone()
        if found is None:
            return []
        created, changes = msgspec.json.decode(found[0], type=tuple[int, Changes])
        return changes if created == created_us else []

    def store(self, query: str, created_us: int, changes: Changes) -> None:
        """Store the sizes of a query."""
        text = msgspec.json.encode((created_us, changes)).decode()
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"sizes/{query}", text))

    def forget(self, query: str) -> None:
        """Remove the sizes of a query that has ended."""
        self._database.execute("DELETE FROM meta WHERE key = ?", (f"sizes/{query}",))
