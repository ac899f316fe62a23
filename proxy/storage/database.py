"""SQLite files with a schema version, and room on the disk for them, of which deleting needs some, too.

SQLite writes what a transaction changes to its log (``-wal``), and copies that into the database at a checkpoint. On a
full disk, then, nothing can be deleted either, and what was deleted leaves free pages, not a smaller file. So a file
beside the database holds room in reserve, which only deletions and checkpoints may use::

    full       [database        ][log     ][reserve]   a deletion finds no room
    released   [database                  ]            the log is copied and cut off, batches are deleted
    regained   [database           ][reserve]          the file has shrunk, and what was rejected is tried again

The log is short, as no more than the reserve may be needed to copy it. Pages of deleted rows are not overwritten
(`secure_delete`), which would take as much room as it frees.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

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
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new database; see proxy.storage.database
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


RESERVE_BYTES: Final = 1024 * 1024
_MARGIN_BYTES: Final = 128 * 1024
"""Written by a transaction beside its payloads: inner pages, indexes, progress and positions."""
_KEPT_PAGES: Final = 256
"""Free pages that stay in the file for the next batches."""
_LIVE_SHARE: Final = 3
"""A file shrinks once free pages outnumber the others by so much: each page that is moved frees three."""
_STEP_PAGES: Final = LOG_PAGES
"""Pages by which a file shrinks in one transaction: each may have to be moved, through the log."""
_SHORT_STEP_PAGES: Final = 64
"""The same where there is no room but the reserve."""
_MOST_STEPS: Final = 16
_MOST_REWRITTEN_PAGES: Final = 4_096
"""Pages in use of a file of an earlier version that is written anew, as only then can it shrink."""
_INCREMENTAL: Final = 2


def free_bytes(folder: Path) -> int:
    """Return the room on the disk that this process may use, in bytes; more than any disk has if that is not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return sys.maxsize
    return found.f_bavail * found.f_frsize


def disk_bytes(folder: Path) -> int:
    """Return the size of the disk, in bytes; more than any has if that is not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return sys.maxsize
    return found.f_blocks * found.f_frsize


class DiskRoom:
    """The room for one database. Used by one thread at a time.

    Parameters
    ----------
    path
        Of the database.
    reserve_bytes
        How much is held in reserve.

    Attributes
    ----------
    file_bytes
        Size of the database's file and of its log.
    occupied_bytes
        The same without free pages, which are used again before the file grows.
    """

    def __init__(self, path: Path, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._reserve = path.with_name(f"{path.name}-reserve")
        self._reserve_bytes = reserve_bytes
        self._connection: sqlite3.Connection | None = None
        self._free_pages = self._live_pages = 0
        self._page_bytes = 0
        self._incremental = True
        self.file_bytes = self.occupied_bytes = 0

    def watch(self, connection: sqlite3.Connection) -> None:
        """Begin with the open database; raises StoreError."""
        self._connection = connection
        with reading(self._path):
            self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
            self._incremental = connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL
        self._measure()

    @contextlib.contextmanager
    def writing(self, size_bytes: int) -> Iterator[None]:
        """Write payloads of so many bytes in the block; raises StoreFullError, at once if there is no room for them."""
        needed = self._needed(size_bytes)
        if self._free() < needed:
            self.regain()
            if self._free() < needed:
                raise StoreFullError(self._path, "database or disk is full")
        try:
            yield
        except StoreFullError:
            self.regain()  # what was written to the log in vain, too
            raise
        self._measure()

    def release(self) -> None:
        """Give up the reserve, and cut off the log if that can be done with it."""
        self._reserve.unlink(missing_ok=True)
        self._checkpoint()

    def regain(self) -> None:
        """Cut off the log, and hold room in reserve again if there is enough."""
        if not self._checkpoint() and self._reserved:
            self.release()
        if not self._reserved:
            self._take_reserve()

    def deleted(self) -> None:
        """Note that rows were deleted: the file can perhaps shrink."""
        self._measure()

    def shrink(self) -> None:
        """Let the file shrink if most of it is free, and cut off its log; on a full disk with the room in reserve."""
        try:
            self._vacuum(_STEP_PAGES)
        except StoreFullError:
            self.release()
            with contextlib.suppress(StoreError):
                self._vacuum(_SHORT_STEP_PAGES)
        except StoreError:
            pass  # what follows is an error of the next write, too
        self.regain()

    @property
    def shrinks(self) -> bool:
        """Whether the file can shrink by much, or has no room in reserve."""
        return self._surplus_pages > 0 or not self._reserved

    @property
    def _surplus_pages(self) -> int:
        if self._free_pages <= _LIVE_SHARE * self._live_pages:
            return 0
        return self._free_pages - _KEPT_PAGES if self._incremental or self._live_pages <= _MOST_REWRITTEN_PAGES else 0

    @property
    def _reserved(self) -> bool:
        return _size_of(self._reserve) >= self._reserve_bytes

    def _free(self) -> int:
        """Return how much may be written now, without what the reserve lacks."""
        return free_bytes(self._path.parent) - (0 if self._reserved else self._reserve_bytes)

    def _needed(self, size_bytes: int) -> int:
        """Return the room for payloads: in the log first, and in the database, where pages may be free."""
        return size_bytes + max(0, size_bytes - self._free_pages * self._page_bytes) + _MARGIN_BYTES

    def _take_reserve(self) -> None:
        if free_bytes(self._path.parent) < self._reserve_bytes:
            return
        try:
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self._reserve_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)

    def _checkpoint(self) -> bool:
        """Copy the log into the database and cut it off; return whether that was possible."""
        if self._connection is None:
            return False
        try:
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.DatabaseError:
            return False
        finally:
            self._measure()
        return not busy

    def _vacuum(self, step: int) -> None:
        """Give free pages back to the disk; raises StoreError."""
        connection = self._connection
        if connection is None:
            return
        if self._surplus_pages > 0 and not self._incremental:
            with reading(self._path):
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("VACUUM")
            self.watch(connection)
        for _ in range(_MOST_STEPS):
            if self._surplus_pages <= 0:
                break
            with transaction(connection, self._path):
                for _ in range(min(self._surplus_pages, step)):
                    connection.execute("PRAGMA incremental_vacuum(1)")  # of more pages, Python's module frees but one
            self._checkpoint()

    def _measure(self) -> None:
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(sqlite3.DatabaseError):
            pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
            self._free_pages = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
            self._live_pages = pages - self._free_pages
        log_bytes = _size_of(self._log)
        self.file_bytes = _size_of(self._path) + log_bytes
        self.occupied_bytes = self._live_pages * self._page_bytes + log_bytes


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
