"""A simulated host's disk: a folder in memory, SQLite with faults, and what is left after a kill or a power cut.

Faults act where SQLite commits. A commit that fails *after* taking effect is one whose pages reached the disk, though
its sync reported an error: the process goes on without it, and the next one finds it if nothing was committed since.
What was committed without a sync (`synchronous = NORMAL`) may be lost in a power cut, back to an earlier commit.

Call :func:`install` once; only hosts with a disk are concerned.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.hosts import Incarnation, current

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SNAPSHOT_SHARE = 0.3
"""Of the commits without a sync, so many are states to which a power cut may go back."""
BESIDE = ("", "-wal")
"""The files of a database that last; its -shm is of the running process."""
_real_connect = sqlite3.connect


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong at present.

    Parameters
    ----------
    full
        Whether no commit succeeds.
    error_before, error_after
        The share of commits that fail before and after they took effect.
    unreadable
        The share of queries that fail.
    """

    full: bool = False
    error_before: float = 0.0
    error_after: float = 0.0
    unreadable: float = 0.0


@dataclass(slots=True)
class _Kept:
    """States of one database that a later process may find."""

    unreported: bytes | None = None
    """As after the last commit if its error was reported after it had taken effect."""
    unsynced: dict[str, bytes] | None = None
    """As before what a power cut may take away; None if everything is synced."""


class Disk:
    """The disk of one host.

    Parameters
    ----------
    folder
        Where its files are; everything in it belongs to the disk.
    dice
        Draws which commits fail.
    """

    def __init__(self, folder: Path, dice: Random) -> None:
        self.folder = folder
        self.faults = DiskFaults()
        self.failed: Counter[str] = Counter()
        """How often which fault has happened."""
        self.on_commit: Callable[[Path], None] | None = None
        """Called with its database when a commit has taken effect; it may kill the process, which then does no more."""
        self._dice = dice
        self._kept: dict[Path, _Kept] = {}
        self._graves = 0
        folder.mkdir(parents=True)

    def kept(self, database: Path) -> _Kept:
        """Return what a later process may find of a database."""
        return self._kept.setdefault(database, _Kept())

    def happens(self, kind: str, share: float) -> bool:
        """Draw whether a fault happens, and count it."""
        if share and self._dice.random() < share:
            self.failed[kind] += 1
            return True
        return False

    def draws(self, share: float) -> bool:
        """Draw whether something is so."""
        return self._dice.random() < share

    def process_died(self, *, power_cut: bool) -> None:
        """Let the next process find what the last one left, in files that are not open any more."""
        self._graves += 1
        left = self.folder.with_name(f"{self.folder.name}.{self._graves}")
        self.folder.rename(left)
        shutil.copytree(left, self.folder, ignore=shutil.ignore_patterns("*-shm", "lock"))
        for path, kept in self._kept.items():
            if kept.unreported is not None and self.draws(0.5):
                self._replace(path, {"": kept.unreported})
            elif power_cut and kept.unsynced is not None and self.draws(0.5):
                self.failed["commits lost in a power cut"] += 1
                self._replace(path, kept.unsynced)
        self._kept.clear()

    @staticmethod
    def _replace(path: Path, files: dict[str, bytes]) -> None:
        for suffix in BESIDE:
            file = path.with_name(path.name + suffix)
            if suffix in files:
                file.write_bytes(files[suffix])
            else:
                file.unlink(missing_ok=True)


class SimulatedConnection(sqlite3.Connection):
    """A connection to a database on a simulated disk."""

    def __init__(self, path: str | Path, *arguments: Any, **keywords: Any) -> None:
        super().__init__(path, *arguments, **keywords)
        owner = current()
        assert owner is not None
        self._owner: Incarnation = owner
        self._disk = disk_of(owner)
        self._path = Path(path)
        self._syncs = True

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement, or fail."""
        disk = self._disk
        if not self._owner.alive:
            raise _error("the process is dead", "SQLITE_IOERR")
        if disk is None:
            return super().execute(sql, parameters)
        word = sql[:7].upper()
        if word == "SELECT " and disk.happens("read error", disk.faults.unreadable):
            raise _error("disk I/O error", "SQLITE_IOERR_READ")
        if word == "PRAGMA " and "synchronous" in sql and "=" in sql:
            self._syncs = "FULL" in sql.upper() or "EXTRA" in sql.upper()
        if word[:6] != "COMMIT":
            return super().execute(sql, parameters)
        return self._commit(disk, sql)

    def _commit(self, disk: Disk, sql: str) -> sqlite3.Cursor:
        if disk.happens("disk full", float(disk.faults.full)):
            raise self._failing("database or disk is full", "SQLITE_FULL")
        if disk.happens("error before effect", disk.faults.error_before):
            raise self._failing("disk I/O error", "SQLITE_IOERR_WRITE")
        kept = disk.kept(self._path)
        if disk.happens("error after effect", disk.faults.error_after):
            kept.unreported = self.serialize()
            super().execute("ROLLBACK")
            raise _error("disk I/O error", "SQLITE_IOERR_FSYNC")
        before = None
        if not self._syncs and (kept.unsynced is None or disk.draws(SNAPSHOT_SHARE)):
            before = self._files()
        found = super().execute(sql)
        kept.unreported = None
        if self._syncs:
            kept.unsynced = None
        elif before is not None:
            kept.unsynced = before
        if disk.on_commit is not None:
            disk.on_commit(self._path)
        return found

    def _failing(self, text: str, name: str) -> sqlite3.OperationalError:
        if self._disk is not None and self._disk.draws(0.5):
            super().execute("ROLLBACK")  # SQLite does so itself for some errors
        return _error(text, name)

    def _files(self) -> dict[str, bytes]:
        found = {}
        for suffix in BESIDE:
            with suppress(FileNotFoundError):
                found[suffix] = self._path.with_name(self._path.name + suffix).read_bytes()
        return found


@dataclass(slots=True)
class _Disks:
    by_host: dict[str, Disk] = field(default_factory=dict)
    installed: bool = False


_disks = _Disks()


def give(host_name: str, disk: Disk) -> None:
    """Give a host its disk."""
    _disks.by_host[host_name] = disk


def disk_of(process: Incarnation) -> Disk | None:
    """Return the disk of a process's host."""
    return _disks.by_host.get(process.host.name)


def install() -> None:
    """Let processes of simulated hosts connect to databases on their disks."""
    if _disks.installed:
        return
    _disks.installed = True

    def connect(database: Any, *arguments: Any, **keywords: Any) -> sqlite3.Connection:
        process = current()
        if process is not None and disk_of(process) is not None and str(database) != ":memory:":
            keywords.setdefault("factory", SimulatedConnection)
        return _real_connect(database, *arguments, **keywords)

    sqlite3.connect = connect  # type: ignore[assignment]


def _error(text: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error
