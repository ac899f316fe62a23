"""Keeps the log of a Delta table short: old commits go into a folder beside it.

Whoever commits to a table lists its whole log, 8 µs a file; at ten commits a second that would be 0.3 s a commit after
an hour. Delta itself would delete old commits, but a Fjord that is behind reads them one by one, so we move them, with
the checkpoints of their time: any version can still be put together.

    _delta_log/   the newest checkpoint that lies far enough back, and everything after it
    _fjord_log/   what was before, in folders of ten thousand commits, for a day
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.synced_files import make_folder

LOG = "_delta_log"
ARCHIVE = "_fjord_log"
COMMITS_KEPT = 200
"""Commits that stay in the log at least."""
COMMITS_A_FOLDER = 10_000
KEEP_HOURS = 24
"""How long what is old stays, commits and replaced files, for readers that are behind and for restarts."""

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
    _forget(root / ARCHIVE)


@contextlib.contextmanager
def log_at(root: Path, version: int) -> Iterator[Path]:
    """Give a folder that has the log of a table at a version, put together from its log and the archive.

    There are no data in it: it tells only which files the version consists of.
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


def _forget(archived: Path) -> None:
    """Remove folders to which the last commit came long ago."""
    for folder in archived.iterdir():
        if folder.stat().st_mtime < time.time() - KEEP_HOURS * 3600:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(version: int) -> str:
    return f"{version // COMMITS_A_FOLDER:016d}"


def _version(entry: Path) -> int | None:
    """Return the version of a commit or checkpoint; None for anything else."""
    number, _, rest = entry.name.partition(".")
    return int(number) if number.isdigit() and f".{rest}" in (_COMMIT, _CHECKPOINT) else None


def _is_checkpoint(entry: Path) -> bool:
    return entry.name.endswith(_CHECKPOINT)
