"""The registry's SQLite file: what goes wrong with it is an error of ours.

A disk that is full, or gone, fails whoever asks for something to be written; it never ends the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal

from cluster.errors import UnwritableError

WHAT = "the registry"


class RegistryFile(sqlite3.Connection):
    """A connection that raises StorageError where SQLite would raise an error of its own; open it with :meth:`at`."""

    def execute(self, sql: str, parameters: Iterable[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override] # fewer
        """Execute a statement.

        Raises
        ------
        UnwritableError
            If SQLite cannot.
        """
        try:
            return super().execute(sql, tuple(parameters))
        except sqlite3.Error as error:
            raise UnwritableError(WHAT, error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        """Commit what the block has done, or take it back if it failed, or if it cannot be committed."""
        try:
            super().__exit__(kind, error, trace)
        except sqlite3.Error as failure:
            raise UnwritableError(WHAT, failure) from failure
        return False


MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE queries (
        name TEXT PRIMARY KEY, sql TEXT NOT NULL, node BLOB NOT NULL,
        since_epoch INTEGER NOT NULL, created_us INTEGER NOT NULL
    );
    CREATE TABLE plans (epoch INTEGER PRIMARY KEY, plan BLOB NOT NULL);
    CREATE TABLE published (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL, row INTEGER NOT NULL);
    CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY AUTOINCREMENT, seen_us INTEGER NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
        origin TEXT NOT NULL, content BLOB NOT NULL
    );
    """,
    """
    CREATE TABLE streams (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, text TEXT NOT NULL
    );
    ALTER TABLE queries ADD COLUMN reads TEXT NOT NULL DEFAULT '[]';
    """,
    """
    CREATE TABLE relations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, text TEXT NOT NULL,
        columns BLOB NOT NULL, fresh_us INTEGER
    );
    CREATE TABLE waiting (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, sql TEXT NOT NULL,
        created_us INTEGER NOT NULL, reads TEXT NOT NULL, relations TEXT NOT NULL
    );
    """,
    """
    -- No table changes; but the state of operators does, and versions without a marker know of this number only.
    """,
)
"""Scripts are never changed once released. Numbers of relations never come back, so that identities do not."""
