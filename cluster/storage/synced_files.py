"""Writing files, and their entries in folders, so that they survive a power cut.

A file that has been written is in memory only, and so is its name. Data that must not be lost are synced in an order
in which any rest after a power cut is consistent: files first, then the folders that name them, and only then files
that refer to them (docs/decisions/0007-acknowledged-is-on-disk.md).

A sync that fails must not simply be repeated: the kernel marks pages that it could not write as written, and the next
sync of the file succeeds without them. So the file is first written again, from memory, where it still is.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from protocols.event_log import get_logger, is_logged
from protocols.security.private_files import make_private

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
        Files and folders.
    missing_ok
        Whether to ignore those that do not exist any more.
    anew
        Whether to write them again first, because a sync may have failed in a process that has ended.

    Raises
    ------
    OSError
        If one of them cannot be synced. Some may be on disk, others not.
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
    """Make a folder, and those above it that are missing, for their user only; on return their names are on disk.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    make_private(folder, sync=lambda above: sync([above]))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace its content: after a power cut it has either the new content or the old.

    Raises
    ------
    OSError
        If it cannot be written; then it is unchanged.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    rename(unfinished, path)


def rename(written: Path, path: Path) -> None:
    """Give a completely written file its name, both on disk on return; errors are those of :func:`sync`."""
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
    """Mark all of a file to be written again; the content on disk stays valid meanwhile."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content)


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a process that was forked has none of its parent's
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sync")


class Troubles:
    """Counts failures by kind, of writes above all.

    Several threads may record them at the same time: counts are approximate.

    Parameters
    ----------
    clock
        Seconds that only go forward.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_at: float | None = None
        self.counts: Counter[str] = Counter()
        self.last = ""
        """The last failure, which may be over."""

    def note(self, what: str, reason: str) -> None:
        """Record a failure; the 1st, 2nd, 4th, 8th ... of a kind are logged."""
        self.counts[what] += 1
        self.last, self._last_at = reason, self._clock()
        times = self.counts[what]
        if is_logged(times):
            log.warning("failed", what=what, reason=reason, times=times)

    def as_json(self) -> dict[str, Any]:
        """Return the counts for the API's status."""
        ago = None if self._last_at is None else round(self._clock() - self._last_at, 1)
        return {"failures": dict(self.counts), "last": self.last or None, "last_seconds_ago": ago}
