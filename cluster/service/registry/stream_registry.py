"""The statements that created streams, and what was set for single ones: budgets, and how long to wait for proxies."""

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
        return self._settings("budget/")

    def set_budget(self, name: str, text: str | None) -> None:
        """Store a stream's budget; None removes it."""
        self._set(f"budget/{name}", text)

    def gone_after(self) -> dict[str, str]:
        """Return, as text, after how long single streams go on without a proxy, by name of the stream."""
        return self._settings("gone_after/")

    def set_gone_after(self, name: str, text: str | None) -> None:
        """Store after how long a stream goes on without a proxy; None removes it."""
        self._set(f"gone_after/{name}", text)

    def _settings(self, prefix: str) -> dict[str, str]:
        select = "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?"
        found = self._database.execute(select, (len(prefix), prefix)).fetchall()
        return {key.removeprefix(prefix): value for key, value in found}

    def _set(self, key: str, text: str | None) -> None:
        if text is None:
            self._database.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))
