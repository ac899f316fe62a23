"""The registry's tables of functions, streams, sizes and relations, and of messages that were rejected."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cluster.errors import UnwritableError
from cluster.operators.columns import Schema
from cluster.service.registry.registry_file import RegistryFile, names_as_text, names_in
from cluster.storage.synced_files import Troubles


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
