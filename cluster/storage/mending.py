"""Removes from a table's log what a power cut has left half written, before the table is opened.

Nothing of it counted: a commit is synced before anybody acts on it, and before the next one is made; a checkpoint is
synced before the commits that it stands for are moved away.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from cluster.storage.archived_log import LOG, is_local
from cluster.storage.commit_log import METADATA_PREFIX
from cluster.synced_files import sync

log = structlog.get_logger(__name__)

LAST_CHECKPOINT = "_last_checkpoint"


LINES = f"{METADATA_PREFIX}lines"
"""Where a commit says how many lines it has: one cut off between two of them reads like a whole one."""


class _LastCheckpoint(msgspec.Struct):
    version: int


class _Action(msgspec.Struct):
    commitInfo: dict[str, object] | None = None  # noqa: N815 - the Delta protocol's spelling


_action = msgspec.json.Decoder(_Action).decode


def mend_log(root: str) -> None:
    """Remove the newest commit and checkpoints of a table if they are not whole; then sync what the log has.

    Parameters
    ----------
    root
        Folder (or URI) of a table; there need not be one.

    Raises
    ------
    OSError
        If the log cannot be read or synced.
    """
    folder = Path(root, LOG)
    if not is_local(root) or not folder.is_dir():
        return
    _mend_checkpoints(folder)
    newest = max(folder.glob("*.json"), default=None)
    if newest is not None and not _is_whole(newest):
        log.warning("a commit that was cut off is removed", commit=str(newest))
        newest.unlink()
        newest = None
    # A process that was killed may have made a commit and not synced it, or failed to; now it counts.
    sync([newest] if newest is not None else [], anew=True)
    sync([folder, folder.parent])


def _mend_checkpoints(folder: Path) -> None:
    for checkpoint in sorted(folder.glob("*.checkpoint.parquet")):
        if checkpoint.is_file() and not _is_readable(checkpoint):
            log.warning("a checkpoint that was cut off is removed", checkpoint=str(checkpoint))
            checkpoint.unlink()
    last = folder / LAST_CHECKPOINT
    try:
        named = msgspec.json.decode(last.read_bytes(), type=_LastCheckpoint).version
    except FileNotFoundError:
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        named = -1
    if not (folder / f"{named:020d}.checkpoint.parquet").is_file():
        last.unlink()  # who opens the table looks for the checkpoints there are


def _is_readable(checkpoint: Path) -> bool:
    try:
        pq.read_table(checkpoint)
    except (pa.ArrowException, OSError):
        return False
    return True


def _is_whole(commit: Path) -> bool:
    """Return whether a commit can be read and, if it says how many lines it has, has them all."""
    lines = commit.read_bytes().splitlines()
    try:
        actions = [_action(line) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    said = [str(action.commitInfo[LINES]) for action in actions if action.commitInfo and LINES in action.commitInfo]
    return bool(lines) and said in ([], [str(len(lines))])
