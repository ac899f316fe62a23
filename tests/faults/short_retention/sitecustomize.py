"""A cluster with short retention times: with this folder in PYTHONPATH, an hour counts as a second.

Replaced files are kept for two seconds, tables are maintained every three, and commits are removed from the log, and
the archive, after some twenty. Nothing else is changed: files that still have to be read must be kept all the same.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import PurePosixPath

from cluster.storage import archived_log

HOUR_SECONDS = 1
KEEP_HOURS = 2
COMMITS = 20

archived_log.HOUR_SECONDS = HOUR_SECONDS
archived_log.KEEP_HOURS = KEEP_HOURS
archived_log.COMMITS_KEPT = COMMITS
archived_log.COMMITS_A_FOLDER = COMMITS

from cluster.storage import appending, compaction, delta_tables  # noqa: E402 - these read what was changed above

delta_tables.COMMITS_BETWEEN_CHECKPOINTS = COMMITS // 2
delta_tables.CONFIGURATION["delta.checkpointInterval"] = str(COMMITS // 2)
compaction.SECONDS_BETWEEN = 3
_replaced_since: dict[tuple[str, str], float] = {}


def _remove_old(table: appending.AppendedTable, hours: int) -> int:
    """Remove files that were replaced this long ago: Delta itself counts in hours of 3,600 seconds."""
    now = time.monotonic()
    replaced = table.delta.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    files, root = compaction.open_files(table.root)
    gone = 0
    for path in replaced:
        if now - _replaced_since.setdefault((table.root, path), now) >= hours * HOUR_SECONDS:
            with contextlib.suppress(FileNotFoundError):
                files.delete_file(str(PurePosixPath(root, path)))
                gone += 1
    return gone


compaction._remove_old = _remove_old
