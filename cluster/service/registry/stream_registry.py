"""The statements that created streams, and the budgets of streams that have one of their own."""

from __future__ import annotations

from cluster.service.registry.registry_file import RegistryFile


class StreamRegistry:
    """The registry's record of streams.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def statements(self) -> dict[str, str]:
        """Return the CREATE STREAM statements, by name of the stream, oldest first."""
        return dict(self._database.execute("SELECT name, text FROM streams ORDER BY number").fetchall())

    def create(self, name: str, text: str) -> None:
        """Register a CREATE STREAM statement."""
        self._database.execute("INSERT INTO streams (name, text) VALUES (?, ?)", (name, text))

    def drop(self, name: str) -> None:
        """Remove the statement that created a stream, if there is one."""
        self._database.execute("DELETE FROM streams WHERE name = ?", (name,))

    def budgets(self) -> dict[str, str]:
        """Return the budgets of single streams, as text, by name of the stream."""
        found = self._database.execute("SELECT key, value FROM meta WHERE key LIKE 'budget/%'").fetchall()
        return {key.removeprefix("budget/"): value for key, value in found}

    def set_budget(self, name: str, text: str | None) -> None:
        """Store a stream's budget; None removes it."""
        if text is None:
            self._database.execute("DELETE FROM meta WHERE key = ?", (f"budget/{name}",))
        else:
            self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"budget/{name}", text))
