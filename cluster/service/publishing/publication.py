"""How far results have been published, and which are lost: files beside the results, written by publishers in turns.

**Locks in a data folder: each publisher runs once, and none while results are divided among others.**

file                      one publisher    publisher 1 of several    dividing
publication.lock          alone            shared                    alone
publication-1.lock                         alone

    publication.json       by the cluster, when shards are divided among publishers; by its publisher, if it is alone
    publication-1.json     by publisher 1 of several: what of its shards has been published since then

A position is written after the broker has acknowledged all rows before it, and is on disk then. A publisher that was
killed publishes some rows again, and leaves out none. Files of an earlier division count no longer.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from cluster.errors import StorageError, UnwritableError
from cluster.service.publishing.published import (
    ALL_SHARDS,
    EVERYTHING,
    SHARDS,
    LostResults,
    Position,
    Published,
    Share,
    part_of,
    shares_of,
    united,
)
from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

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


log = get_logger(__name__)

FILE = "publication.json"
ROWS_BETWEEN_NOTES = 65_536
"""After so many rows of one commit a position is noted, too: about so many come again after a kill."""
NONE_BEHIND: Mapping[int, Position] = MappingProxyType({})


class Publication:
    """How far one publisher is.

    Parameters
    ----------
    folder
        The data folder.
    share
        Which shards are the publisher's.

    Raises
    ------
    StorageError
        If a file is there and cannot be read, or the shards are divided among another number of publishers.
    """

    def __init__(self, folder: Path, share: Share = EVERYTHING) -> None:
        self.share = share
        self._path = _path(folder, share)
        whole = _read(folder / FILE) or Published()
        if whole.publishers != share.publishers:
            raise StorageError(
                f"the results in {folder} are published by {whole.publishers} publishers, of which {share} is none"
            )
        self.now = _part(folder, whole, share)

    def note(self, front: Position, behind: Mapping[int, Position] = NONE_BEHIND) -> None:
        """Note how far the publisher is, unless that is hardly further than what is noted.

        Parameters
        ----------
        front, behind
            As in :meth:`cluster.service.publishing.published.Published.reached`.

        Raises
        ------
        UnwritableError
            If it cannot be written.
        """
        if self.is_due(front, behind):
            self._write(self.now.reached(front, behind, self.share))

    def is_due(self, front: Position, behind: Mapping[int, Position]) -> bool:
        """Return whether that is further than what is noted: by a commit of a shard, or many rows of one."""
        before, after = self.now, self.now.reached(front, behind, self.share)
        if (after.version, after.ahead) != (before.version, before.ahead):
            return True
        return after.row - before.row >= ROWS_BETWEEN_NOTES

    def note_lost(
        self, front: Position, behind: Mapping[int, Position] = NONE_BEHIND, *, commits: int, rows: int
    ) -> LostResults:
        """Note how many commits, and rows if known, are lost, and how far the publisher is behind them.

        Errors are those of :meth:`note`.
        """
        lost = _more_lost(self.now.lost, commits, rows)
        self._write(replace(self.now.reached(front, behind, self.share), lost=lost))
        return lost

    def unpublished(self, version: int) -> frozenset[int]:
        """Return the shards of which the publisher still has to publish a version."""
        return self.now.unpublished(version, self.share)

    def _write(self, published: Published) -> None:
        _write(self._path, published)
        self.now = published


def published_of(folder: Path) -> Published:
    """Return how far all shards of a data folder are.

    Raises
    ------
    StorageError
        If a file is there and cannot be read.
    """
    whole = _read(folder / FILE) or Published()
    return united(whole, {share.number: _part(folder, whole, share) for share in shares_of(whole.publishers)})


def begin(folder: Path, published: Published) -> None:
    """Begin with what another place says, unless a data folder knows how far publication is.

    Raises
    ------
    UnwritableError
        If it cannot be written.
    """
    if not (folder / FILE).exists():
        _write(folder / FILE, published)


def rewind(folder: Path, newest: int) -> None:
    """Move back to the newest results if they are behind what has been published; log and count what is lost.

    Parameters
    ----------
    folder
        The data folder of a cluster that is about to start.
    newest
        The newest version of the results table.

    Raises
    ------
    StorageError
        If results are lost and a publisher of an earlier cluster still runs, or a file cannot be read or written.
    """
    if published_of(folder).newest <= newest:
        return
    with undisturbed(folder):
        found = published_of(folder)
        lost = max(0, max(found.versions(ALL_SHARDS).values()) - newest)
        if lost:
            log.error("published results are lost", versions=lost, newest=newest + lost)
            found = replace(found, lost=_more_lost(found.lost, lost, 0))
        _divide(folder, found.back_to(newest))


def divide(folder: Path, publishers: int) -> None:
    """Divide the shards of a data folder among so many publishers, if they are not: each keeps its position.

    Raises
    ------
    StorageError
        If a publisher still runs, or a file cannot be read or written.
    """
    if (_read(folder / FILE) or Published()).publishers == publishers:
        return
    with undisturbed(folder):
        before = published_of(folder)
        _divide(folder, replace(before, publishers=publishers))
    log.info("results are divided anew", publishers=publishers, before=before.publishers)


def _divide(folder: Path, whole: Published) -> None:
    """Write where all publishers begin. The files of earlier divisions do not count from then on."""
    _write(folder / FILE, replace(whole, division=whole.division + 1))


def _part(folder: Path, whole: Published, share: Share) -> Published:
    """Return how far a publisher is: as its own file says, if it has written one since the division."""
    own = None if share.is_everything else _read(_path(folder, share))
    if own is not None and own.division == whole.division:
        return own
    return part_of(whole, share)


def _path(folder: Path, share: Share) -> Path:
    return folder / (FILE if share.is_everything else f"publication-{share.number}.json")


def _more_lost(before: LostResults, commits: int, rows: int) -> LostResults:
    return LostResults(before.times + 1, before.commits + commits, before.rows + rows, time.time_ns() // 1000)


def _write(path: Path, published: Published) -> None:
    try:
        write_whole(path, msgspec.json.encode(published))
    except OSError as error:
        raise UnwritableError("the published position", error) from error


def _read(path: Path) -> Published | None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Published)
        if min(found.version, found.row, *found.ahead.values(), 0) < 0:
            raise msgspec.ValidationError(f"a position of version {found.version}, row {found.row}")
        if not 1 <= found.publishers <= SHARDS:
            raise msgspec.ValidationError(f"{found.publishers} publishers")
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"how far results have been published cannot be read: {path}: {error}",
            hint="restore the file, or remove it: all results that are kept are then published again",
        ) from error
    return found
