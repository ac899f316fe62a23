"""The data folder of a process: whether it is begun, continued, upgraded or refused; its lock and path.

**The format of a data folder: before anything is written, decides whether to begin, continue, upgrade or reject it.**

    format.json   registry.sqlite   found       so
    -             -                 nothing     begin: the present marker is written first
    -             present           1, or 0     0 if one Spark query ran all queries: refused. 1 is upgraded
    n             -, or present     n           continue; an older one is upgraded, a newer one refused

The number increases when an earlier version could not continue with what this one writes.

**Opens a data folder for one process: checks its path, its format, and that no other cluster uses it.**

The library of Delta tables reads a path as a URL, in which ``%41`` is an ``A`` and a backslash is a slash: tables would
be looked for in another folder than the one they are written to. So such paths are refused.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from importlib.metadata import version
from pathlib import Path

import msgspec

from cluster.errors import ClusterError, StorageError, UnwritableError
from cluster.spark.checkpoint import has_begun
from cluster.storage.synced_files import make_folder, write_whole
from protocols.event_log import get_logger
from protocols.presence.folder_home import settle
from protocols.security.private_files import LINK_HINT, file_link, warn_of_open

log = get_logger(__name__)

MARKER = "format.json"
REGISTRY = "registry.sqlite"
CHECKPOINTS = "checkpoint-*"

SINGLE_QUERY, UNMARKED, FORMAT = 0, 1, 4
"""One Spark query for all queries; no marker; the present one: plan files hold the physical plan. Since 2, the state of
count windows and of DISTINCT has another layout, and sums of reals are scaled; since 3, plans hold expressions as
nodes."""
READABLE = range(UNMARKED, FORMAT + 1)
"""Operators can read the state of any of these (cluster/fjord/operators)."""


class FolderFormatError(StorageError):
    """A data folder that this program cannot use; nothing in it has been changed.

    Parameters
    ----------
    folder
        The folder.
    found
        What was found, after "the data folder ...".
    hint
        What to do.
    """

    def __init__(self, folder: Path, found: str, *, hint: str) -> None:
        here = f"this program, fjord {version('fjord')}, reads formats {READABLE.start} to {FORMAT}"
        super().__init__(f"the data folder {folder} {found}; {here}", hint=f"{hint}; nothing in it was changed")
        self.folder = folder


class Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The content of the marker.

    Parameters
    ----------
    format
        The number.
    written_by
        Version of the program that last wrote it.
    """

    format: int
    written_by: str = "an unknown version"


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The contents that determine the format of a folder.

    Parameters
    ----------
    marker
        Content of the marker, if there is one.
    registry
        Whether there is a registry.
    single_query
        Whether there is the log of a single Spark query.
    """

    marker: bytes | None = None
    registry: bool = False
    single_query: bool = False


class Action(Enum):
    """What is done with a folder."""

    BEGIN = auto()
    CONTINUE = auto()
    UPGRADE = auto()


def decide_on(folder: Path, found: FolderContents) -> Action:
    """Return what to do with a folder.

    Raises
    ------
    FolderFormatError
        If this program cannot use it.
    """
    marked = _marked(folder, found)
    if marked is None:
        return Action.BEGIN
    if marked.format == FORMAT:
        return Action.CONTINUE
    if marked.format in READABLE:
        return Action.UPGRADE
    if marked.format > FORMAT:
        raise FolderFormatError(
            folder,
            f"has format {marked.format}, written by fjord {marked.written_by}",
            hint="run that version or a later one, or choose another --data",
        )
    raise FolderFormatError(
        folder,
        f"has format {marked.format}, of a version that ran all queries in one Spark query",
        hint="run the cluster with that version, or choose another --data",
    )


def inspect(folder: Path) -> FolderContents:
    """Return the contents that determine the format of a folder, without changing it.

    Raises
    ------
    StorageError
        If it cannot be read.
    """
    marker = folder / MARKER
    try:
        return FolderContents(
            marker.read_bytes() if marker.exists() else None,
            (folder / REGISTRY).exists(),
            any(map(has_begun, _checkpoints(folder))),
        )
    except OSError as error:
        raise StorageError(
            f"the data folder {folder} cannot be read: {error.strerror}", hint="choose another --data"
        ) from error


def mark(folder: Path) -> None:
    """Mark a folder with the present format, if this program can use it.

    Raises
    ------
    FolderFormatError
        If it cannot.
    UnwritableError
        If there is no room for the marker.
    """
    action = decide_on(folder, inspect(folder))
    if action is Action.CONTINUE:
        return
    if action is Action.UPGRADE:
        log.warning("the data folder has been upgraded; earlier versions can no longer use it", folder=str(folder))
    try:
        write_whole(folder / MARKER, msgspec.json.encode(Marker(FORMAT, version("fjord"))))
    except OSError as error:
        raise UnwritableError(f"the format of the data folder {folder}", error) from error


def _marked(folder: Path, found: FolderContents) -> Marker | None:
    if found.marker is None:
        if not found.registry:
            return None
        return Marker(SINGLE_QUERY if found.single_query else UNMARKED)
    try:
        return msgspec.json.decode(found.marker, type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FolderFormatError(
            folder,
            f"has an unknown format: {MARKER} cannot be read ({error})",
            hint=f"restore {MARKER}, or choose another --data",
        ) from error


def _checkpoints(folder: Path) -> Iterator[Path]:
    return folder.glob(CHECKPOINTS)


_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]")


class FolderPathError(ClusterError):
    """A data folder whose path Delta tables would interpret as a different one."""

    def __init__(self, folder: Path, part: str) -> None:
        super().__init__(
            f"the data folder {str(folder)!r} has {part!r} in its path, which Delta tables read as another character",
            hint="choose another --data: without a % before two hexadecimal digits, backslashes and control characters",
        )
        self.folder = folder


class FolderMovedError(StorageError):
    """A data folder that is a copy, or on another machine than before."""

    def __init__(self, folder: Path, problem: str, hint: str) -> None:
        super().__init__(problem, hint=hint)
        self.folder = folder


def check_path(folder: Path) -> None:
    """Reject a folder whose path would be interpreted as a different one.

    Raises
    ------
    FolderPathError
        If it would be.
    """
    found = _MISREAD.search(str(folder))
    if found is not None:
        raise FolderPathError(folder, found[0])


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A data folder that belongs to this process until it is closed.

    Parameters
    ----------
    path
        Where it is, with links followed.
    lock
        Handle of the file that is locked.
    """

    path: Path
    lock: int

    def close(self) -> None:
        """Let other processes open it."""
        os.close(self.lock)


def open_folder(folder: Path, *, adopt: bool = False) -> DataFolder:
    """Open a data folder; create it if it does not exist.

    Parameters
    ----------
    folder
        The folder.
    adopt
        Whether it belongs here from now on, even if it was copied from another place.

    Raises
    ------
    FolderPathError
        If its path would be read as another one.
    FolderFormatError
        If this program cannot use its format; it is not changed then.
    FolderMovedError
        If it was copied, or is on another machine than before; it is not changed then.
    StorageError
        If another cluster uses it, it cannot be made or written to, or a file in it is a link.
    """
    path = folder.resolve()
    check_path(path)
    _refuse_links(path)
    decide_on(path, inspect(path))  # before anything is written: a folder that is refused stays as it is
    lock = lock_folder(path)
    found = settle(path, lock, adopt=adopt)
    if found is not None:
        os.close(lock)
        raise FolderMovedError(path, found.described(path), found.hint)
    warn_of_open(path)
    mark(path)
    return DataFolder(path, lock)


def _refuse_links(folder: Path) -> None:
    try:
        link = file_link(folder)
    except OSError as error:
        raise StorageError(f"the data folder {folder} cannot be read: {error.strerror}") from error
    if link is not None:
        raise StorageError(f"in the data folder, {link} is a link to a file", hint=LINK_HINT)


def lock_folder(folder: Path) -> int:
    """Lock a data folder for this process; create it if it does not exist.

    Raises
    ------
    StorageError
        If another cluster has it, or it cannot be made or written to.
    """
    try:
        make_folder(folder)
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
