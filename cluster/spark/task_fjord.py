"""The Fjord next to the scans, for a task of Spark: over files of stream tables, with versions of relations."""

from __future__ import annotations

from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.spark.running_plans import fragments_at
from cluster.spark.scans import Scans
from cluster.spark.upstream_task import UpstreamTask


def task_fjord(task: UpstreamTask) -> UpstreamDataflow:
    """Return what runs next to the scans in one part of a micro-batch."""
    tables = RelationTables(
        task.relations_folder, task.relations, buckets=task.buckets, memory_bytes=task.relation_memory_bytes
    )
    scans = Scans(task.streams_folder, task.files, task.watermarks_us, task.past, task.between_us)
    return UpstreamDataflow(fragments_at(task.plans_folder, task.epoch, task.host), scans, tables)
