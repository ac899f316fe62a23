"""Keeps the log of a Delta table short: old commits go into a folder beside it, for as long as replaced data stay.

**How long replaced data stay: commits that left the log, and files that compaction has merged into others.**

Decisions without I/O. Replaced data stay for at least a day, for replays and restarts, and as long as any reader needs
them, however long a broker or Spark has been away::

    commits   ---|-------------------------|------------ now
                 needed                    a day ago
    kept         |==============================>

Each commit to a table lists the table's whole log, 8 µs a file; at ten commits a second that would be 0.3 s a commit
after an hour. Delta itself would delete old commits, but an engine that is behind reads them one by one. So we move
them, with the checkpoints of their time: any version can still be rebuilt.

    _delta_log/   the newest checkpoint that lies far enough back, and everything after it
    _fjord_log/   what was before, in folders of ten thousand commits, for a day, and while a reader needs it
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cluster.storage.synced_files import make_folder

HOUR_SECONDS = 3_600
KEEP_HOURS = 24
"""How long replaced data stay at least."""


def hours_kept(now: float, needed_since: float | None) -> int:
    """Return for how many hours replaced files are kept.

    Parameters
    ----------
    now
        Seconds since 1970.
    needed_since
        When the oldest version that a reader needs was made; None if none is needed. A file that was in the table
        then, or came later, was not replaced before.
    """
    if needed_since is None:
        return KEEP_HOURS
    return max(KEEP_HOURS, math.ceil((now - needed_since) / HOUR_SECONDS) + 1)


def names_hold(now: float, named_since: float) -> bool:
    """Return whether files that were in a table at an instant surely still exist, whatever its readers need.

    Parameters
    ----------
    now
        Seconds since 1970.
    named_since
        When the version with these files was made, or the oldest of several. A file may be replaced right after it,
        and is removed a day later, unless a reader needs that version.
    """
    return now - named_since < KEEP_HOURS * HOUR_SECONDS / 2


def may_go(last_version: int, changed: float, *, now: float, first_needed: int | None) -> bool:
    """Return whether commits that left the log may be removed.

    Parameters
    ----------
    last_version
        The newest of them, at most.
    changed
        When the last of them was moved, in seconds since 1970.
    now
        Seconds since 1970.
    first_needed
        The oldest version that is still needed; None for none.
    """
    if first_needed is not None and last_version >= first_needed:
        return False
    return changed < now - KEEP_HOURS * HOUR_SECONDS


LOG = "_delta_log"
ARCHIVE = "_fjord_log"
COMMITS_KEPT = 200
"""Most recent commits that always stay in the log."""
COMMITS_A_FOLDER = 10_000

_CHECKPOINT = ".checkpoint.parquet"
_COMMIT = ".json"


def is_local(root: str) -> bool:
    """Return whether a table's log can be archived: on a disk, not in an object store."""
    return "://" not in root


def archived_name(version: int) -> str:
    """Return the path of an archived commit, below the table."""
    return f"{ARCHIVE}/{_folder(version)}/{version:020d}{_COMMIT}"


def archive(root: Path, newest: int) -> None:
    """Move old commits and checkpoints of a table out of its log.

    Parameters
    ----------
    root
        Folder of the table.
    newest
        Its newest version.
    """
    entries = [(entry, version) for entry in (root / LOG).iterdir() if (version := _version(entry)) is not None]
    old = (version for entry, version in entries if _is_checkpoint(entry) and version <= newest - COMMITS_KEPT)
    cut = max(old, default=None)
    if cut is None:
        return
    for entry, version in entries:
        if version < cut or (version == cut and not _is_checkpoint(entry)):
            folder = root / ARCHIVE / _folder(version)
            make_folder(folder)
            entry.replace(folder / entry.name)


@contextlib.contextmanager
def log_at(root: Path, version: int) -> Iterator[Path]:
    """Yield a folder with the log of a table at a version, rebuilt from its log and the archive.

    It contains no data, only the names of the files of the version.
    """
    places = [root / LOG, *sorted((root / ARCHIVE).glob("*"), reverse=True)]
    found = [
        (entry, number) for place in places for entry in place.iterdir() if (number := _version(entry)) is not None
    ]
    checkpoints = [number for entry, number in found if _is_checkpoint(entry) and number <= version]
    first = max(checkpoints, default=0)
    with tempfile.TemporaryDirectory(prefix="fjord-log-") as name:
        log = Path(name, LOG)
        log.mkdir()
        for entry, number in found:
            if first <= number <= version and (number == first or not _is_checkpoint(entry)):
                (log / entry.name).symlink_to(entry.absolute())
        yield Path(name)


def forget_archived(root: Path, *, needed: int | None, now: float) -> int:
    """Remove folders whose last commit is old; return how many.

    Parameters
    ----------
    root
        Folder of the table.
    needed
        The oldest version that a reader may have to open; None if there is none. It needs older commits, too,
        back to the checkpoint from which it is rebuilt.
    now
        Seconds since 1970.
    """
    archived = root / ARCHIVE
    folders = [each for each in archived.iterdir() if each.name.isdigit()] if archived.is_dir() else []
    first_needed = None if needed is None else _checkpoint_before(root, folders, needed)
    gone = 0
    for folder in folders:
        last = (int(folder.name) + 1) * COMMITS_A_FOLDER - 1
        if may_go(last, folder.stat().st_mtime, now=now, first_needed=first_needed):
            shutil.rmtree(folder, ignore_errors=True)
            gone += 1
    return gone


def _checkpoint_before(root: Path, folders: Iterable[Path], version: int) -> int:
    entries = (entry for place in (root / LOG, *folders) for entry in place.iterdir() if _is_checkpoint(entry))
    known = (number for number in map(_version, entries) if number is not None and number <= version)
    return max(known, default=0)


def _folder(version: int) -> str:
    return f"{version // COMMITS_A_FOLDER:016d}"


def _version(entry: Path) -> int | None:
    """Return the version of a commit or checkpoint; None for other files."""
    number, _, rest = entry.name.partition(".")
    return int(number) if number.isdigit() and f".{rest}" in (_COMMIT, _CHECKPOINT) else None


def _is_checkpoint(entry: Path) -> bool:
    return entry.name.endswith(_CHECKPOINT)
