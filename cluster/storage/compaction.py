"""Keeps tables that grow by many small commits readable: merges small files, removes those long replaced.

Compaction only rearranges: what a version added stays what it was, and the files it names stay on disk for a day, so a
reader that is behind still finds them.
"""

from __future__ import annotations

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cluster.storage.archived_log import KEEP_HOURS

log = structlog.get_logger(__name__)

COMMITS_BETWEEN = 2_000
"""Commits after which a table is compacted: at ten a second, every three minutes."""
TARGET_BYTES = 64 * 1024 * 1024
"""Files of this size are left alone from then on."""


class Compaction:
    """Decides when a table is due, and compacts it.

    Parameters
    ----------
    commits_between
        A table is due after so many commits.
    """

    def __init__(self, commits_between: int = COMMITS_BETWEEN) -> None:
        self._commits_between = commits_between
        self._done_at: int | None = None

    def due(self, version: int) -> bool:
        """Return whether a table at this version should be compacted."""
        if self._done_at is None:
            self._done_at = version
        return version - self._done_at >= self._commits_between

    def run(self, table: DeltaTable) -> None:
        """Compact; a failure is logged and tried again after as many commits more: the table is whole either way."""
        try:
            merged = table.optimize.compact(target_size=TARGET_BYTES)
            removed = table.vacuum(retention_hours=KEEP_HOURS, dry_run=False, enforce_retention_duration=False)
        except (DeltaError, OSError) as error:
            table.update_incremental()
            log.warning("compaction failed", table=table.table_uri, error=str(error))
        else:
            log.info(
                "compacted",
                table=table.table_uri,
                merged=merged["numFilesRemoved"],
                into=merged["numFilesAdded"],
                removed=len(removed),
            )
        self._done_at = table.version()
