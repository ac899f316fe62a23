"""Opens a data folder for one process: checks its path, its format, and that no other cluster uses it.

The library of Delta tables reads a path as a URL, in which ``%41`` is an ``A`` and a backslash is a slash: tables would
be looked for in another folder than the one they are written to. So such paths are refused.
"""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError, StorageError
from cluster.service.data_folder.format import decide_on, inspect, mark
from cluster.storage.synced_files import make_folder
from protocols.presence.folder_home import settle
from protocols.security.private_files import LINK_HINT, file_link, warn_of_open

_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]")


class FolderPathError(ClusterError):
    """A data folder whose path Delta tables would interpret as a different one."""

    def __init__(self, folder: Path, part: str) -> None:
        super().__init__(
            f"the data folder {str(folder)!r} has {part!r} in its path, which Delta tables read as another character",
            hint="choose another --data: without a % before two hexadecimal digits, backslashes and control characters",
        )
        self.folder = folder


class FolderMovedError(StorageError):
    """A data folder that is a copy, or on another machine than before."""

    def __init__(self, folder: Path, problem: str, hint: str) -> None:
        super().__init__(problem, hint=hint)
        self.folder = folder


def check_path(folder: Path) -> None:
    """Reject a folder whose path would be interpreted as a different one.

    Raises
    ------
    FolderPathError
        If it would be.
    """
    found = _MISREAD.search(str(folder))
    if found is not None:
        raise FolderPathError(folder, found[0])


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A data folder that belongs to this process until it is closed.

    Parameters
    ----------
    path
        Where it is, with links followed.
    lock
        Handle of the file that is locked.
    """

    path: Path
    lock: int

    def close(self) -> None:
        """Let other processes open it."""
        os.close(self.lock)


def open_folder(folder: Path, *, adopt: bool = False) -> DataFolder:
    """Open a data folder; create it if it does not exist.

    Parameters
    ----------
    folder
        The folder.
    adopt
        Whether it belongs here from now on, even if it was copied from another place.

    Raises
    ------
    FolderPathError
        If its path would be read as another one.
    FolderFormatError
        If this program cannot use its format; it is not changed then.
    FolderMovedError
        If it was copied, or is on another machine than before; it is not changed then.
    StorageError
        If another cluster uses it, it cannot be made or written to, or a file in it is a link.
    """
    path = folder.resolve()
    check_path(path)
    _refuse_links(path)
    decide_on(path, inspect(path))  # before anything is written: a folder that is refused stays as it is
    lock = lock_folder(path)
    found = settle(path, lock, adopt=adopt)
    if found is not None:
        os.close(lock)
        raise FolderMovedError(path, found.described(path), found.hint)
    warn_of_open(path)
    mark(path)
    return DataFolder(path, lock)


def _refuse_links(folder: Path) -> None:
    try:
        link = file_link(folder)
    except OSError as error:
        raise StorageError(f"the data folder {folder} cannot be read: {error.strerror}") from error
    if link is not None:
        raise StorageError(f"in the data folder, {link} is a link to a file", hint=LINK_HINT)


def lock_folder(folder: Path) -> int:
    """Lock a data folder for this process; create it if it does not exist.

    Raises
    ------
    StorageError
        If another cluster has it, or it cannot be made or written to.
    """
    try:
        make_folder(folder)
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"the data folder {folder} cannot be used: {error.strerror}",
            hint="choose another --data, or free some space",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageError(
            f"another cluster runs on the data folder {folder}", hint="stop it, or choose another --data"
        ) from error
    return handle
