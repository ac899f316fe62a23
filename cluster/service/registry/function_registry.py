"""The registry's table of functions of users."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.service.registry.registry_file import RegistryFile


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A function as it was created.

    Parameters
    ----------
    name
        Its name.
    number
        Counts all functions that were ever created.
    text
        The statement.
    """

    name: str
    number: int
    text: str

    @property
    def identity(self) -> str:
        """A name that no other function has, had or will have."""
        return f"{self.name}@{self.number}"


class FunctionRegistry:
    """The registry's table of functions.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def functions(self) -> list[RegisteredFunction]:
        """Return all functions, oldest first."""
        rows = self._database.execute("SELECT name, number, text FROM functions ORDER BY number")
        return [RegisteredFunction(*row) for row in rows]

    def create(self, name: str, text: str) -> RegisteredFunction:
        """Register a function."""
        cursor = self._database.execute("INSERT INTO functions (name, text) VALUES (?, ?)", (name, text))
        assert cursor.lastrowid is not None  # noqa: S101 - it was just inserted
        return RegisteredFunction(name, cursor.lastrowid, text)

    def drop(self, name: str) -> None:
        """Remove a function."""
        self._database.execute("DELETE FROM functions WHERE name = ?", (name,))
