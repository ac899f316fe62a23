"""The registry's table of queries that are set aside: they took too much again and again, and do not run any more."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.service.registry.registry_file import RegistryFile, names_as_text, names_in
from cluster.service.registry.running_queries import RegisteredQuery


@dataclass(frozen=True, slots=True)
class SetAsideQuery:
    """A query that is set aside.

    Parameters
    ----------
    name, sql, created_us, reads
        As those of a query that runs.
    since_us
        When it was set aside, in microseconds since 1970.
    reason
        Why, as a sentence about the query.
    """

    name: str
    sql: str
    created_us: int
    reads: frozenset[str]
    since_us: int
    reason: str

    @classmethod
    def of(cls, query: RegisteredQuery, reason: str, since_us: int) -> SetAsideQuery:
        """Return a query that has run, set aside."""
        return cls(query.name, query.sql, query.created_us, query.reads, since_us, reason)


class SetAsideQueries:
    """The table.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def all(self) -> list[SetAsideQuery]:
        """Return them, the one first that was set aside first."""
        columns = "name, sql, created_us, reads, since_us, reason"
        rows = self._database.execute(f"SELECT {columns} FROM set_aside ORDER BY number")  # noqa: S608 - written above
        return [
            SetAsideQuery(name, sql, created_us, names_in(reads), since_us, reason)
            for name, sql, created_us, reads, since_us, reason in rows
        ]

    def find(self, name: str) -> SetAsideQuery | None:
        """Return the one of this name, or None."""
        return next((query for query in self.all() if query.name == name), None)

    def drop(self, name: str) -> bool:
        """Remove one; return whether there was one."""
        return self._database.execute("DELETE FROM set_aside WHERE name = ?", (name,)).rowcount > 0


def insert_set_aside(database: RegistryFile, query: SetAsideQuery) -> None:
    """Put one into a registry's file, inside a transaction of the caller."""
    database.execute(
        "INSERT INTO set_aside (name, sql, created_us, reads, since_us, reason) VALUES (?, ?, ?, ?, ?, ?)",
        (
            query.name,
            query.sql,
            query.created_us,
            names_as_text(query.reads),
            query.since_us,
            query.reason,
        ),
    )
