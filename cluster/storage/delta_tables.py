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


def renewed(table: DeltaTable, root: str) -> DeltaTable:
    """Return a table, just committed to, opened anew and with a shorter log if it is time for that."""
    if (table.version() + 1) % COMMITS_BETWEEN_CHECKPOINTS == 0:  # version 0 is a commit, too
        with contextlib.suppress(DeltaError, OSError):  # it goes on without as well
            if is_local(root):
                archive(Path(root), table.version())
            return DeltaTable(root)
    return table
