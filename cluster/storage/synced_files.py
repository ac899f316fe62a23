"""Makes files, and the entries that name them in folders, outlast a power cut.

A file that has been written is in memory only, and so is its name. What must not be taken back is synced, in an order
in which whatever is left after a cut makes sense: files first, then the folders that name them, and only then what
refers to them (docs/decisions/0007-acknowledged-is-on-disk.md).

A sync that fails must not be tried again as it was: the kernel takes what it could not write for written, and the next
sync of the file succeeds without it. So the file is written again first, from memory, where it still is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from protocols.event_log import get_logger

log = get_logger(__name__)

AT_ONCE = 8
"""Files that are synced at the same time: a file system then writes its journal once for several of them."""
_failed: set[Path] = set()
"""Files whose last sync failed."""


def sync(paths: Iterable[Path], *, missing_ok: bool = False, anew: bool = False) -> None:
    """Sync files, or the entries of folders, in any order; on return they are on disk.

    Parameters
    ----------
    paths
        Of files and folders.
    missing_ok
        Whether what is gone meanwhile is passed over.
    anew
        Whether they are written again first, as a sync may have failed in a process that is no more.

    Raises
    ------
    OSError
        If one of them cannot be. Some may be on disk, others not.
    """
    wanted = list(dict.fromkeys(paths))
    sync_one = partial(_sync, missing_ok=missing_ok, anew=anew)
    if len(wanted) == 1:
        sync_one(wanted[0])
    elif wanted:
        list(_threads(os.getpid()).map(sync_one, wanted))


def sync_with_names(files: Iterable[Path]) -> None:
    """Sync files, and then their names in their folders; errors are those of :func:`sync`."""
    wanted = list(files)
    sync(wanted)
    sync(file.parent for file in wanted)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; on return their names are on disk.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync([folder.parent])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace what is in it: whenever the power goes, all of it is there, or what was before.

    Raises
    ------
    OSError
        If it cannot be written; then it is as before.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    rename(unfinished, path)


def rename(written: Path, path: Path) -> None:
    """Give a wholly written file its name, both on disk on return; errors are those of :func:`sync`."""
    sync([written])
    written.replace(path)
    sync([path.parent])


def _sync(path: Path, *, missing_ok: bool, anew: bool) -> None:
    try:
        if (anew or path in _failed) and not path.is_dir():
            _write_again(path)
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        _failed.discard(path)
        if missing_ok:
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError:
        _failed.add(path)
        raise
    finally:
        os.close(descriptor)
    _failed.discard(path)


def _write_again(path: Path) -> None:
    """Let all of a file wait to be written: what is on disk meanwhile is no less than before."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content)


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a process that was forked has none of its parent's
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sync")


class Troubles:
    """Counts failed writes by what was to be written. Threads may note at the same time: counts are approximate."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last = ""
        """What went wrong last; it may be over."""

    def note(self, what: str, reason: str) -> None:
        """Note that something could not be written; the 1st, 2nd, 4th, 8th ... of its kind are logged."""
        self.counts[what] += 1
        self.last = reason
        times = self.counts[what]
        if times & (times - 1) == 0:
            log.warning("cannot be written", what=what, reason=reason, times=times)

    def as_json(self) -> dict[str, Any]:
        """Return what the API's status shows."""
        return {"failures": dict(self.counts), "last": self.last or None}
