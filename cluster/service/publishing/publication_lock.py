"""Locks in a data folder: each publisher runs once, and none while results are divided among others.

file                      one publisher    publisher 1 of several    dividing
publication.lock          alone            shared                    alone
publication-1.lock                         alone
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.errors import StorageError
from cluster.service.publishing.shares import EVERYTHING, Share

LOCK = "publication.lock"


def lock_publication(folder: Path, share: Share = EVERYTHING) -> list[int]:
    """Lock what a publisher publishes of a data folder, for this process; return handles of the locked files.

    Raises
    ------
    StorageError
        If another process publishes it, or a file cannot be made.
    """
    if share.is_everything:
        return [_lock(folder, LOCK, fcntl.LOCK_EX)]
    common = _lock(folder, LOCK, fcntl.LOCK_SH)
    try:
        return [common, _lock(folder, f"publication-{share.number}.lock", fcntl.LOCK_EX)]
    except StorageError:
        os.close(common)
        raise


def unlock_publication(handles: list[int]) -> None:
    """Release the locks of :func:`lock_publication`."""
    for handle in handles:
        with suppress(OSError):
            os.close(handle)


@contextmanager
def undisturbed(folder: Path) -> Iterator[None]:
    """Let no publisher of a data folder run meanwhile; errors are those of :func:`lock_publication`."""
    handles = lock_publication(folder)
    try:
        yield
    finally:
        unlock_publication(handles)


def _lock(folder: Path, name: str, kind: int) -> int:
    try:
        handle = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"the results in {folder} cannot be published: {error.strerror}") from error
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageError(
            f"another process publishes the results in {folder}",
            hint="it ends with its cluster; if that is gone, end the process",
        ) from error
    return handle
