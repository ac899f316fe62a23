"""Retention times of minutes in place of days, so that a simulation of minutes sees files merged and removed.

An hour counts as some seconds; nothing else is changed: what still has to be read must be kept all the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from cluster.ingest import service
from cluster.service.running import parts
from cluster.storage import archived_log, compaction, delta_tables
from tests.simulation import delta_log

HOUR_SECONDS = 6
KEEP_HOURS = 3
COMMITS = 16
"""Between two compactions, and between two checkpoints."""
SECONDS_BETWEEN = 20
"""Between two compactions, at most."""
COMMITS_KEPT = 40
"""In the log: more than are read to measure a stream's rate."""
BUDGET: dict[str, Any] = {"stream_age_us": 30_000_000, "results_bytes": 3_000}
"""Settings of a cluster that keeps as little."""


def install(seconds_between: int = SECONDS_BETWEEN) -> None:
    """Shorten them, once per process; a table is compacted after so many seconds at most."""
    archived_log.HOUR_SECONDS, archived_log.KEEP_HOURS = HOUR_SECONDS, KEEP_HOURS
    delta_log.HOUR_MS = HOUR_SECONDS * 1_000
    archived_log.COMMITS_KEPT, archived_log.COMMITS_A_FOLDER = COMMITS_KEPT, COMMITS
    delta_tables.COMMITS_BETWEEN_CHECKPOINTS = COMMITS
    compaction.SECONDS_BETWEEN = seconds_between
    often = partial(compaction.Compaction, COMMITS)
    service.Compaction = parts.Compaction = often  # type: ignore[assignment, attr-defined, misc]
