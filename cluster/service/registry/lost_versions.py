"""What is named, and gone: versions that plans, Spark's log or the publisher's position know, and no table has.

What is on disk before it is named is never lost so; a data folder brought back from a copy may be, or one on a disk
that does not keep what it syncs. Were nothing done, a stream's next versions would get those numbers and count as read,
and results would wait for a version that is long past.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.ingest.writer import StreamWriter
from cluster.plan.epoch import Plan
from cluster.service.registry.registry import Registry
from cluster.spark.checkpoint import newest_versions
from cluster.storage.results_table import ResultsTable
from protocols.event_log import get_logger

log = get_logger(__name__)


def named_versions(plan: Plan, checkpoint: Path) -> dict[str, int]:
    """Return, by stream that is read, the highest version of its table that a plan or Spark's log of offsets names.

    Others may have been dropped since, and made anew.
    """
    named: dict[str, int] = {}
    for stream, version in (*plan.positions.items(), *newest_versions(checkpoint)):
        if stream in plan.streams:
            named[stream] = max(version, named.get(stream, 0))
    return named


def make_up_for_lost(writers: Mapping[str, StreamWriter], named: Mapping[str, int]) -> None:
    """Give streams empty versions in the place of lost ones; say so, and count them.

    Raises
    ------
    StorageError
        If that cannot be stored.
    """
    for stream, writer in writers.items():
        lost = writer.table.make_up(named.get(stream, 0))
        if lost:
            writer.admission.counters.lost_versions += lost
            log.error("versions of a stream's table are lost", stream=stream, versions=lost, newest=named[stream])


def set_back(registry: Registry, results: ResultsTable) -> None:
    """Let the publisher begin with the newest results, if it had come further; say what is lost, and count it."""
    version, _ = registry.publication.position()
    lost = max(0, version - results.version)
    if lost:
        log.error("published results are lost", versions=lost, newest=version)
        registry.publication.note_lost(results.version, commits=lost, rows=0)
