"""The disk of a simulated cluster: a folder in memory that knows what was synced, and may be full or fail.

What has not been synced is there after a power cut, or not, or in part (tests/power_cuts/disk.py). SQLite syncs where
it cannot be observed: its files are taken as synced.

    full             writing raises "no space left", before anything is written
    failing          the next syncs, or commits of tables or of the registry, raise: before they take effect, or after
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from cluster.errors import UnwritableError
from cluster.service.registry.registry_file import WHAT, RegistryFile
from cluster.storage import appending, delta_tables, results_table, synced_files, unnumbered_answers
from tests.power_cuts.disk import RecordedDisk
from tests.simulation.delta_log import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

_CHANGING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "BEGIN", "COMMIT")


class SyncedDisk:
    """A disk.

    Parameters
    ----------
    folder
        All that is on it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.full = False
        self.failing: dict[str, int] = {}
        """How many of the next operations fail, by kind: `sync`, `registry` before its commit, `registry committed`
        after it, or an instant of :class:`DeltaLog`."""
        self.failed = 0
        """How many operations have failed so far."""
        self.on_commit: Callable[[str, int], None] = lambda _root, _version: None
        """Called with the root of a table and a version when it has been committed."""
        self.root, self.inside = str(folder), f"{folder}/"
        folder.mkdir(parents=True, exist_ok=True)
        self._recorded = RecordedDisk(folder)
        _DISKS.append(self)
        _install()

    def cut(self, dice: Random | None) -> None:
        """Lose what was not synced, or some of it; without dice, all of it."""
        after = self.folder.with_name(f"{self.folder.name}.after")
        self._recorded.cut(after, dice)
        self._recorded.close()
        shutil.rmtree(self.folder)
        after.rename(self.folder)
        self._recorded = RecordedDisk(self.folder)

    def remove(self) -> None:
        """Remove all that is on it."""
        _DISKS.remove(self)
        self._recorded.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fails(self, what: str) -> bool:
        """Return whether this operation fails, and count it."""
        left = self.failing.get(what, 0)
        if left:
            self.failing[what] = left - 1
            self.failed += 1
        return left > 0

    def check_room(self) -> None:
        """Raise if the disk is full."""
        if self.full:
            self.failed += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_DISKS: list[SyncedDisk] = []
_installed: list[bool] = []


class _Inline:
    """A pool of threads that needs none."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Do all work at once."""
        return [work(item) for item in items]


def disk_of(path: str | Path) -> SyncedDisk | None:
    """Return the disk that a path is on."""
    text = str(path)
    return next((disk for disk in _DISKS if text.startswith(disk.inside) or text == disk.root), None)


def _install() -> None:
    """Let everything that writes ask its disk; once per process."""
    if _installed:
        return
    _installed.append(True)
    os.fsync = _fsync
    delta_tables.DeltaTable = DeltaLog  # type: ignore[assignment, misc]
    DeltaLog.instant = staticmethod(_instant)
    synced_files._threads = lambda _: _Inline()  # type: ignore[assignment]
    for module in (appending, results_table, unnumbered_answers):
        module.write_data_file = _checked(module.write_data_file)  # type: ignore[attr-defined]
    Path.write_bytes = _checked(Path.write_bytes)  # type: ignore[method-assign]
    execute = RegistryFile.execute

    def executed(self: RegistryFile, sql: str, parameters: Iterable[Any] = (), /) -> sqlite3.Cursor:
        if sql.lstrip().upper().startswith(_CHANGING) and (full := [disk for disk in _DISKS if disk.full]):
            for disk in full:
                disk.failed += 1
            raise UnwritableError(WHAT, sqlite3.OperationalError("database or disk is full"))
        return execute(self, sql, parameters)

    leave = RegistryFile.__exit__

    def left(self: RegistryFile, kind: Any, error: BaseException | None, trace: Any, /) -> Any:
        if kind is None and any(disk.fails("registry") for disk in _DISKS):
            failure = sqlite3.OperationalError("disk I/O error")
            leave(self, type(failure), failure, None)
            raise UnwritableError(WHAT, failure)
        left = leave(self, kind, error, trace)
        if kind is None and any(disk.fails("registry committed") for disk in _DISKS):
            raise UnwritableError(WHAT, sqlite3.OperationalError("disk I/O error"))
        return left

    RegistryFile.execute = executed  # type: ignore[assignment, method-assign]
    RegistryFile.__exit__ = left  # type: ignore[method-assign]


def _checked(write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes to the path that is its first argument, if there is room."""

    def checked(path: str | Path, *arguments: Any, **keywords: Any) -> Any:
        disk = disk_of(path)
        if disk is not None:
            disk.check_room()
        return write(path, *arguments, **keywords)

    return checked


def _fsync(descriptor: int) -> None:
    path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes five times as long
    disk = disk_of(path)
    if disk is None:
        return
    if disk.fails("sync"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    disk._recorded.note(path)


def _instant(what: str, root: str, version: int) -> None:
    disk = disk_of(root)
    if disk is None:
        return
    if what == "committed":
        disk.on_commit(root, version)
    if what == "committing" and disk.full:
        disk.failed += 1
        raise DeltaError("no space left on device")
    if disk.fails(what):
        raise DeltaError(f"the disk failed while {what}")
