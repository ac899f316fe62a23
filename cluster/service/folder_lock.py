"""One cluster per data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cluster.errors import StorageError


def lock_folder(folder: Path) -> int:
    """Take the data folder for this process alone."""
    handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageError(
            f"another cluster runs on the data folder {folder}", hint="stop it, or choose another --data"
        ) from error
    return handle
