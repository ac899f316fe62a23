"""Lost versions: plans or Spark's log refer to them, but no table has them.

Versions are on disk before anything names them. They are lost if a data folder is restored from a copy, or if a disk
does not keep what it has synced. Without repair, a stream's next versions would get the same numbers and count as
read. For the publisher's position, cluster/service/publishing/publication.py has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.ingest.writer import StreamWriter
from cluster.plan.epoch import Plan
from cluster.spark.checkpoint import newest_versions
from protocols.event_log import get_logger

log = get_logger(__name__)


def newest_known_versions(plan: Plan, checkpoint: Path) -> dict[str, int]:
    """Return, by stream that is read, the highest version of its table that a plan or Spark's log of offsets names.

    Other streams may have been dropped since, and created again.
    """
    newest: dict[str, int] = {}
    for stream, version in (*plan.positions.items(), *newest_versions(checkpoint)):
        if stream in plan.streams:
            newest[stream] = max(version, newest.get(stream, 0))
    return newest


def replace_lost_versions(writers: Mapping[str, StreamWriter], newest: Mapping[str, int]) -> None:
    """Give streams empty versions in place of lost ones; log and count them.

    Raises
    ------
    StorageError
        If that cannot be stored.
    """
    for stream, writer in writers.items():
        lost = writer.table.make_up(newest.get(stream, 0))
        if lost:
            writer.admission.counters.lost_versions += lost
            log.error("versions of a stream's table are lost", stream=stream, versions=lost, newest=newest[stream])
