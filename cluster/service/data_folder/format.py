"""Which version's data folder this is: decides before anything is written whether to begin, go on, upgrade or refuse.

    format.json   registry.sqlite   found       so
    -             -                 nothing     begin: today's marker is written first
    -             there             1, or 0     0 if one Spark query ran everything: refused. 1 is upgraded
    n             -, or there       n           go on; upgrade what is older; refuse what is newer

The number counts up when an earlier version could not go on with what this one writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from importlib.metadata import version
from pathlib import Path

import msgspec

from cluster.errors import StorageError, UnwritableError
from cluster.spark.checkpoint import has_begun
from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

MARKER = "format.json"
REGISTRY = "registry.sqlite"
CHECKPOINTS = "checkpoint-*"

SINGLE_QUERY, UNMARKED, FORMAT = 0, 1, 4
"""One Spark query for everything; no marker; today's: plan files hold what runs. Since 2, state of windows by count and
of DISTINCT is kept otherwise, and sums of reals are scaled; since 3, plans hold expressions as nodes."""
READABLE = range(UNMARKED, FORMAT + 1)
"""Operators go on from state of any of these (cluster/fjord/operators)."""


class FolderFormatError(StorageError):
    """A data folder that this program cannot use; nothing in it has been changed.

    Parameters
    ----------
    folder
        The folder.
    found
        What it is.
    hint
        The way out.
    """

    def __init__(self, folder: Path, found: str, *, hint: str) -> None:
        here = f"this program, fjord {version('fjord')}, reads formats {READABLE.start} to {FORMAT}"
        super().__init__(f"the data folder {folder} {found}; {here}", hint=f"{hint}; nothing in it was changed")
        self.folder = folder


class Marked(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What the marker says.

    Parameters
    ----------
    format
        The number.
    written_by
        Version of the program that wrote it last.
    """

    format: int
    written_by: str = "an unknown version"


@dataclass(frozen=True, slots=True)
class Found:
    """What is seen of a folder from outside.

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


class Course(Enum):
    """What to do with a folder."""

    BEGIN = auto()
    GO_ON = auto()
    UPGRADE = auto()


def decide(folder: Path, found: Found) -> Course:
    """Return what to do with a folder.

    Raises
    ------
    FolderFormatError
        If this program cannot use it.
    """
    marked = _marked(folder, found)
    if marked is None:
        return Course.BEGIN
    if marked.format == FORMAT:
        return Course.GO_ON
    if marked.format in READABLE:
        return Course.UPGRADE
    if marked.format > FORMAT:
        raise FolderFormatError(
            folder,
            f"has format {marked.format}, written by fjord {marked.written_by}",
            hint="run that version or a later one, or choose another --data",
        )
    raise FolderFormatError(
        folder,
        f"has format {marked.format}, of a version that ran all queries in one of Spark",
        hint="run the cluster with that version, or choose another --data",
    )


def look(folder: Path) -> Found:
    """Return what is seen of a folder, without a change to it.

    Raises
    ------
    StorageError
        If it cannot be read.
    """
    marker = folder / MARKER
    try:
        return Found(
            marker.read_bytes() if marker.exists() else None,
            (folder / REGISTRY).exists(),
            any(map(has_begun, _checkpoints(folder))),
        )
    except OSError as error:
        raise StorageError(
            f"the data folder {folder} cannot be read: {error.strerror}", hint="choose another --data"
        ) from error


def settle(folder: Path) -> None:
    """Mark a folder as one of today's format, if this program can use it.

    Raises
    ------
    FolderFormatError
        If it cannot.
    UnwritableError
        If there is no room for the marker.
    """
    course = decide(folder, look(folder))
    if course is Course.GO_ON:
        return
    if course is Course.UPGRADE:
        log.warning("the data folder is upgraded; earlier versions refuse it from now on", folder=str(folder))
    try:
        write_whole(folder / MARKER, msgspec.json.encode(Marked(FORMAT, version("fjord"))))
    except OSError as error:
        raise UnwritableError(f"the format of the data folder {folder}", error) from error


def _marked(folder: Path, found: Found) -> Marked | None:
    if found.marker is None:
        if not found.registry:
            return None
        return Marked(SINGLE_QUERY if found.single_query else UNMARKED)
    try:
        return msgspec.json.decode(found.marker, type=Marked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FolderFormatError(
            folder,
            f"does not say which format it has: {MARKER} cannot be read ({error})",
            hint=f"restore {MARKER}, or choose another --data",
        ) from error


def _checkpoints(folder: Path) -> Iterator[Path]:
    return folder.glob(CHECKPOINTS)
