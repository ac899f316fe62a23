"""How far results have been published, and which of them are lost: a file beside the results, written by its publisher.

The position is written after the broker has acknowledged all rows before it, and is on disk then. A publisher that
was killed publishes some rows again, and leaves out none.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cluster.errors import StorageError, UnwritableError
from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

FILE, LOCK = "publication.json", "publication.lock"


class LostResults(msgspec.Struct, frozen=True):
    """Results that are lost, published or not.

    Parameters
    ----------
    times
        How often some were lost.
    commits, rows
        How many; rows as far as is known.
    seen_us
        When the last loss was found.
    """

    times: int = 0
    commits: int = 0
    rows: int = 0
    seen_us: int | None = None


class Published(msgspec.Struct, frozen=True):
    """What the file says.

    Parameters
    ----------
    version
        Up to this version of the results table, everything has been published or counted as lost.
    lost
        What is lost.
    row
        How many rows of the next version have been published, too: by earlier programs, which noted that.
    """

    version: int = 0
    lost: LostResults = LostResults()
    row: int = 0


class Publication:
    """The file of a data folder.

    Parameters
    ----------
    folder
        The data folder.

    Raises
    ------
    StorageError
        If the file is there and cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.now = _read(self._path)

    def begin(self, published: Published) -> None:
        """Write the file with what another place says, unless it exists.

        Raises
        ------
        UnwritableError
            If it cannot be written.
        """
        if not self._path.exists():
            self._write(published)

    def note(self, version: int) -> None:
        """Note that everything up to a version has been published; errors are those of :meth:`begin`."""
        self._write(replace(self.now, version=version, row=0))

    def note_lost(self, version: int, *, commits: int, rows: int) -> LostResults:
        """Note how many commits, and rows if known, are lost, and that publication goes on after a version.

        Errors are those of :meth:`begin`.
        """
        before = self.now.lost
        lost = LostResults(before.times + 1, before.commits + commits, before.rows + rows, time.time_ns() // 1000)
        self._write(Published(version, lost))
        return lost

    def rewind(self, newest: int) -> None:
        """Move back to the newest results if they are behind the position; log and count what is lost.

        Only a cluster that is about to start may do so: no publisher runs. Errors are those of :meth:`begin`.
        """
        lost = max(0, self.now.version - newest)
        if lost:
            log.error("published results are lost", versions=lost, newest=self.now.version)
            self.note_lost(newest, commits=lost, rows=0)

    def _write(self, published: Published) -> None:
        try:
            write_whole(self._path, msgspec.json.encode(published))
        except OSError as error:
            raise UnwritableError("the published position", error) from error
        self.now = published


def lock_publication(folder: Path) -> int:
    """Lock the publication of a data folder for this process; return the handle of the locked file.

    Raises
    ------
    StorageError
        If another process publishes its results, or the file cannot be made.
    """
    try:
        handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"the results in {folder} cannot be published: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageError(
            f"another process publishes the results in {folder}",
            hint="it ends with its cluster; if that is gone, end the process",
        ) from error
    return handle


def _read(path: Path) -> Published:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Published)
        if min(found.version, found.row) < 0:
            raise msgspec.ValidationError(f"a position of version {found.version}, row {found.row}")
    except FileNotFoundError:
        return Published()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"how far results have been published cannot be read: {path}: {error}",
            hint="restore the file, or remove it: all results that are kept are then published again",
        ) from error
    return found
