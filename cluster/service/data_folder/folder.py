"""Which paths a data folder cannot have: those that the library of Delta tables takes for other ones.

It reads a path as a URL, in which ``%41`` is an ``A`` and a backslash is a slash: tables would be looked for in another
folder than the one they are written to.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from cluster.errors import ClusterError, StorageError

_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]")


class FolderPathError(ClusterError):
    """A data folder whose path is taken for another one."""

    def __init__(self, folder: Path, part: str) -> None:
        super().__init__(
            f"the data folder {str(folder)!r} has {part!r} in its path, which Delta tables take for something else",
            hint="choose another --data: without a % before two hexadecimal digits, backslashes and control characters",
        )
        self.folder = folder


def check_path(folder: Path) -> None:
    """Refuse a folder whose path would be taken for another one.

    Raises
    ------
    FolderPathError
        If it would.
    """
    found = _MISREAD.search(str(folder))
    if found is not None:
        raise FolderPathError(folder, found[0])


def lock_folder(folder: Path) -> int:
    """Take the data folder for this process alone; it is made unless it is there.

    Raises
    ------
    StorageError
        If another cluster has it, or it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
