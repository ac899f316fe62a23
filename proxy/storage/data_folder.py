"""The folder of a proxy's databases, owned by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from protocols.presence.folder_home import settle
from protocols.security.private_files import LINK_HINT, file_link, make_private, warn_of_open
from proxy.errors import DataFolderError, DataFolderInUseError, DataFolderMovedError


@contextlib.contextmanager
def owned_data_folder(folder: Path, *, adopt: bool = False) -> Iterator[Path]:
    """Make the folder if necessary and own it until the context ends, or the process does.

    Parameters
    ----------
    folder
        The folder.
    adopt
        Whether it belongs here from now on, even if it was copied from another place.

    Raises
    ------
    DataFolderInUseError
        Another process owns it.
    DataFolderMovedError
        It was copied, or is on another machine; nothing in it has been changed.
    DataFolderError
        It cannot be made or written, or a file in it is a link.
    """
    try:
        link = file_link(folder)
        if link is not None:
            raise DataFolderError(f"in the data folder, {link} is a link to a file", hint=LINK_HINT)
        # Its name survives a power cut, as the files of SQLite in it do.
        make_private(folder, sync=_sync)
        lock = (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise DataFolderError(
            f"cannot use the data folder {folder}: {error.strerror}", hint="choose another with --data"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip()
            raise DataFolderInUseError(folder, f" (process {owner})" if owner.isdigit() else "") from error
        found = settle(folder, lock.fileno(), adopt=adopt)
        if found is not None:
            raise DataFolderMovedError(folder, found.described(folder), found.hint)
        with contextlib.suppress(OSError):  # on a full disk: only the message of another process needs it
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        warn_of_open(folder)
        yield folder


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
