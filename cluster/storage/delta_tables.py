"""What all our Delta tables have in common: many small commits, from one process that keeps the table open.

Each commit makes an open table slower by about 0.1 ms, until it is opened anew; and that is quick only when the log has
a checkpoint not far back. So there is a checkpoint every hundred commits, and after it the table is opened anew.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cluster.storage.archived_log import KEEP_HOURS, archive, is_local

COMMITS_BETWEEN_CHECKPOINTS = 100

CONFIGURATION: dict[str, str | None] = {
    # For logs that are not archived.
    "delta.logRetentionDuration": f"interval {KEEP_HOURS} hours",
    # As long as compaction leaves the files themselves.
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS} hours",
    "delta.checkpointInterval": str(COMMITS_BETWEEN_CHECKPOINTS),
}


def due_for_checkpoint(before: int, version: int) -> bool:
    """Return whether a table at `version` needs a checkpoint, if it was seen to at the version `before`."""
    made, needed = (commits // COMMITS_BETWEEN_CHECKPOINTS for commits in (before + 1, version + 1))
    return needed > made  # version 0 is a commit, too


def checkpointed(table: DeltaTable, root: str) -> DeltaTable:
    """Return a table opened anew, with a checkpoint and a shorter log; it goes on without them as well."""
    with contextlib.suppress(DeltaError, OSError):
        table.create_checkpoint()
        if is_local(root):
            archive(Path(root), table.version())
        return DeltaTable(root)
    return table
