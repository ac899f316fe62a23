"""Removing entries from a table's log that a power cut left incomplete, before the table is opened.

Nothing relied on these entries: a commit is synced before anything relies on it, and before the next one is made; a
checkpoint is synced before the commits that it replaces are moved away.
"""

from __future__ import annotations

from pathlib import Path

from cluster.storage.archived_log import LOG, is_local
from cluster.storage.log_entries import (
    CHECKPOINT,
    COMMIT,
    LAST_CHECKPOINT,
    actions_in,
    is_readable,
    last_checkpoint,
    numbered,
)
from cluster.storage.synced_files import sync
from protocols.event_log import get_logger

log = get_logger(__name__)


def repair_log(root: str) -> None:
    """Remove the newest commit and checkpoints of a table if they are incomplete; then sync the rest of the log.

    Parameters
    ----------
    root
        Folder (or URI) of a table, which need not exist.

    Raises
    ------
    OSError
        If the log cannot be read or synced.
    """
    folder = Path(root, LOG)
    if not is_local(root) or not folder.is_dir():
        return
    _mend_checkpoints(folder)
    newest = max(numbered(folder, COMMIT).values(), default=None)
    if newest is not None and not actions_in(newest):
        log.warning("a commit that was cut off is removed", commit=str(newest))
        newest.unlink()
        newest = None
    # A process that was killed may have made a commit and not synced it, or failed to; now it counts.
    sync([newest] if newest is not None else [], anew=True)
    sync([folder, folder.parent])


def _mend_checkpoints(folder: Path) -> None:
    for checkpoint in sorted(numbered(folder, CHECKPOINT).values()):
        if checkpoint.is_file() and not is_readable(checkpoint):
            log.warning("a checkpoint that was cut off is removed", checkpoint=str(checkpoint))
            checkpoint.unlink()
    named = last_checkpoint(folder)
    if named is not None and not (folder / f"{named:020d}{CHECKPOINT}").is_file():
        (folder / LAST_CHECKPOINT).unlink()  # then the existing checkpoints are searched for
