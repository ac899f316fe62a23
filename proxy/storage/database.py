"""SQLite files with a schema version: opened, brought up to date, and rejected if they cannot be read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from proxy.errors import StoreCorruptError, StoreError, StoreFullError, StoreVersionError

_BUSY_SECONDS = 5.0
LOG_PAGES = 256
"""Pages of 4 KiB in the log of a database from which on it is copied into the database, and to which it is cut off."""


def migrations_of(kind: str) -> list[str]:
    """Return the SQL of all schema changes of a kind of database, in order."""
    files = {each.name: each for each in resources.files("proxy.storage.migrations").iterdir()}
    return [files[name].read_text("utf-8") for name in sorted(files) if name.startswith(kind + "_")]


def open_database(path: Path, kind: str, *, durable: bool) -> sqlite3.Connection:
    """Open a database and bring its schema up to date.

    Parameters
    ----------
    path
        Its file; made if it does not exist.
    kind
        Name of its migrations.
    durable
        True if what is committed must survive a power cut; else it survives the end of this process only.

    Raises
    ------
    StoreVersionError
        Written by a newer program.
    StoreCorruptError
        Not a database, or damaged.
    StoreError
        Not accessible.
    """
    migrations = migrations_of(kind)
    connection: sqlite3.Connection | None = None
    try:
        # The proxy uses one thread for all its databases, though not the one that opens them.
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(migrations):
            raise StoreVersionError(path, version, len(migrations))
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new database; see proxy.storage.disk_room
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite overwrite whatever is deleted
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_PAGES * 4096}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        check = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if check != "ok":
            raise StoreCorruptError(path, str(check))
        for number, script in enumerate(migrations[version:], version + 1):
            connection.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")
    except (sqlite3.DatabaseError, StoreError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, StoreError):
            raise
        raise _explained(path, error) from error
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Commit everything in the block, or nothing.

    Raises
    ------
    StoreFullError, StoreCorruptError, StoreError
        The error of SQLite, with a hint.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.DatabaseError):
                connection.execute("ROLLBACK")
        raise _explained(path, error) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert SQLite's errors about a file that cannot be read into Fjord's own.

    Raises
    ------
    StoreFullError, StoreCorruptError, StoreError
        As for :func:`transaction`.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: sqlite3.DatabaseError) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreFullError(path, str(error))
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return StoreCorruptError(path, str(error))
    return StoreError(path, str(error), hint="check the folder's permissions and the disk")
