"""Syncs Spark's log of micro-batches and their state, so that they survive a power cut: Spark itself syncs nothing.

    offsets/7 ── tasks, state/.../8 ── sync ── results of 7 ── commits/7 ── offsets/8 ── ...

If the results of a micro-batch were on disk and its offset were not, another offset would be planned under its number,
and what that reads would count as stored. If an offset or a commit were on disk and the state before it were not, Spark
could not go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cluster.storage.synced_files import sync

_Seen = tuple[int, int]
"""When a file was changed last, and its size."""


class CheckpointFiles:
    """The files of a checkpoint, and which of them are on disk.

    Parameters
    ----------
    folder
        The checkpoint of one of the two Spark queries; it may not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced: dict[Path, _Seen] = {}

    def sync(self) -> None:
        """Sync what has been written since the last time; on return it is on disk.

        Raises
        ------
        OSError
            If something cannot be synced.
        """
        found = dict(_entries(self._folder)) if self._folder.is_dir() else {}
        new = [path for path, seen in found.items() if self._synced.get(path) != seen]
        sync((path for path in new if not path.is_dir()), missing_ok=True)
        sync((path.parent for path in new), missing_ok=True)
        if self._folder in new:  # Spark has made it, and the folder of both checkpoints
            sync([self._folder.parent.parent])
        self._synced = found


def _entries(folder: Path) -> Iterator[tuple[Path, _Seen]]:
    """Yield a folder and everything below it, except files that are being written."""
    yield folder, (0, 0)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _entries(Path(entry.path))
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # Spark removes what is old
                continue
            yield Path(entry.path), (status.st_mtime_ns, status.st_size)
