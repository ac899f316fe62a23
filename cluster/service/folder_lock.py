"""One cluster per data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cluster.errors import StorageError


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
