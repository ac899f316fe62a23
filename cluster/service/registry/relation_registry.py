"""The registry's tables of relations, and of queries that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cluster.errors import UnwritableError
from cluster.operators.columns import Schema
from cluster.service.registry.registry_file import RegistryFile, names_as_text, names_in
from cluster.storage.synced_files import Troubles


@dataclass(frozen=True, slots=True)
class RegisteredRelation:
    """A relation as it was created.

    Parameters
    ----------
    name
        Its name.
    number
        Counts all relations that were ever created.
    text
        The statement; may hold a password.
    columns
        Its columns when it was created.
    fresh_us
        When it was last known to equal its source; None if it never was.
    """

    name: str
    number: int
    text: str
    columns: Schema
    fresh_us: int | None

    @property
    def identity(self) -> str:
        """A name that no other relation has, had or will have."""
        return f"{self.name}@{self.number}"


@dataclass(frozen=True, slots=True)
class WaitingQuery:
    """A query that was accepted and has not begun, because a relation that it reads has no version yet.

    Parameters
    ----------
    name, sql, created_us, reads
        As those of a query that runs.
    relations
        Identities of all relations it reads.
    functions
        Identities of all functions of users that it calls.
    """

    name: str
    sql: str
    created_us: int
    reads: frozenset[str]
    relations: frozenset[str]
    functions: frozenset[str] = frozenset()


class RelationRegistry:
    """The registry's tables of relations and of waiting queries.

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

    def relations(self) -> list[RegisteredRelation]:
        """Return all relations, oldest first."""
        rows = self._database.execute("SELECT name, number, text, columns, fresh_us FROM relations ORDER BY number")
        return [
            RegisteredRelation(name, number, text, msgspec.json.decode(columns, type=Schema), fresh_us)
            for name, number, text, columns, fresh_us in rows
        ]

    def create(self, name: str, text: str, columns: Schema) -> RegisteredRelation:
        """Register a relation."""
        cursor = self._database.execute(
            "INSERT INTO relations (name, text, columns) VALUES (?, ?, ?)", (name, text, msgspec.json.encode(columns))
        )
        assert cursor.lastrowid is not None  # noqa: S101 - it was just inserted
        return RegisteredRelation(name, cursor.lastrowid, text, columns, None)

    def drop(self, name: str) -> None:
        """Remove a relation."""
        self._database.execute("DELETE FROM relations WHERE name = ?", (name,))

    def set_fresh(self, name: str, fresh_us: int) -> None:
        """Note when a relation was last known to equal its source; a failure to write is only counted."""
        try:
            self._database.execute("UPDATE relations SET fresh_us = ? WHERE name = ?", (fresh_us, name))
        except UnwritableError as error:
            self._troubles.note("freshness of a relation", error.message)

    def waiting(self) -> list[WaitingQuery]:
        """Return all waiting queries, oldest first."""
        columns = "name, sql, created_us, reads, relations, functions"
        rows = self._database.execute(f"SELECT {columns} FROM waiting ORDER BY number")  # noqa: S608 - written above
        return [
            WaitingQuery(name, sql, created_us, names_in(reads), names_in(relations), names_in(functions))
            for name, sql, created_us, reads, relations, functions in rows
        ]

    def add_waiting(self, query: WaitingQuery) -> None:
        """Register a query that waits."""
        self._database.execute(
            "INSERT INTO waiting (name, sql, created_us, reads, relations, functions) VALUES (?, ?, ?, ?, ?, ?)",
            (
                query.name,
                query.sql,
                query.created_us,
                *map(names_as_text, (query.reads, query.relations, query.functions)),
            ),
        )

    def remove_waiting(self, name: str) -> None:
        """Remove a query that waits."""
        self._database.execute("DELETE FROM waiting WHERE name = ?", (name,))
