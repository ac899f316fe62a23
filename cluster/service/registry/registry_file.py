"""The registry's SQLite file: errors of SQLite are raised as Fjord's own.

A disk that is full or has failed fails the request that has to write; it never ends the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from cluster.errors import StorageError, UnwritableError
from cluster.storage.synced_files import make_folder

WHAT = "the registry"
OPENING_HINT = "check whether the disk is full, or the file belongs to another program"


class RegistryFile(sqlite3.Connection):
    """A connection that raises StorageError where SQLite would raise an error of its own."""

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
        """Commit the block's changes; roll them back if the block or the commit fails."""
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
    """
    -- No table changes; but the plan has no queries any more: those of the table of queries are all there are.
    """,
    """
    ALTER TABLE queries ADD COLUMN early INTEGER NOT NULL DEFAULT 0;
    """,
    """
    CREATE TABLE functions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, text TEXT NOT NULL
    );
    ALTER TABLE waiting ADD COLUMN functions TEXT NOT NULL DEFAULT '[]';
    """,
    """
    -- Of queries that have migrated, or are migrating: since when the plan answers, and the plan that follows it.
    CREATE TABLE migrations (name TEXT PRIMARY KEY, since TEXT, next TEXT, node BLOB);
    """,
    """
    -- Queries that took too much again and again: they are not run any more, and keep their names until dropped.
    CREATE TABLE set_aside (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, sql TEXT NOT NULL,
        created_us INTEGER NOT NULL, reads TEXT NOT NULL, since_us INTEGER NOT NULL, reason TEXT NOT NULL
    );
    """,
)
"""Scripts are never changed once released. Numbers of relations and of functions never come back, nor identities."""


def open_registry_file(path: Path) -> RegistryFile:
    """Open a registry's file; create it if it does not exist, and migrate it if its schema is older.

    Raises
    ------
    StorageError
        If it cannot be opened, or a newer program wrote it.
    """
    try:
        make_folder(path.parent)
        path.touch(mode=0o600)  # addresses of relations may hold passwords
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=RegistryFile)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        _migrate(database, path)
    except UnwritableError as error:
        raise StorageError(f"the registry {path} cannot be opened: {error.cause}", hint=OPENING_HINT) from error
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"the registry {path} cannot be opened: {error}", hint=OPENING_HINT) from error
    return database


def names_as_text(names: frozenset[str]) -> str:
    """Return names as a column of the file holds them; the reverse of :func:`names_in`."""
    return msgspec.json.encode(sorted(names)).decode()


def names_in(text: str | bytes) -> frozenset[str]:
    """Return the names in a column of the file."""
    return frozenset(msgspec.json.decode(text, type=list[str]))


def _migrate(database: RegistryFile, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StorageError(
            f"the registry {path} has schema version {version}, this program supports up to {len(MIGRATIONS)}",
            hint="run the newer program that wrote it",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        database.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
