"""What a task of the upstream Fjord is told. Apart from the operators: who only plans tasks does not import those."""

from __future__ import annotations

import msgspec

from cluster.plan.pipelines import Host
from cluster.plan.relations_read import MEMORY_BYTES
from cluster.spark.catching_up import PastRead


class UpstreamTask(msgspec.Struct, frozen=True):
    """One part of a micro-batch.

    Parameters
    ----------
    plans_folder, streams_folder
        Where plans and stream tables are.
    epoch, previous_epoch
        The plan to run, and that of the micro-batch before.
    buckets
        How many buckets there are downstream.
    origin
        Number of this part; part 0 also tells every bucket of the micro-batch.
    files
        (stream, path below its table) of the Parquet files to read, in the order of their versions.
    watermarks_us
        By stream: its low watermark at the end of the micro-batch.
    relations_folder, relations, relation_memory_bytes
        Where versions of relations are; by identity, the newest one that counts; what a table of them may take of the
        memory.
    past
        What queries that catch up with their streams read instead of `files`.
    host
        Which of a Fjord's two Spark queries it belongs to.
    between_us
        By stream: between which stamps to read `files`; a stream that is left out is read whatever its stamps.
    """

    plans_folder: str
    streams_folder: str
    epoch: int
    previous_epoch: int
    buckets: int
    origin: int
    files: tuple[tuple[str, str], ...]
    watermarks_us: dict[str, int]
    relations_folder: str = ""
    relations: dict[str, int] = {}
    relation_memory_bytes: int = MEMORY_BYTES
    past: tuple[PastRead, ...] = ()
    host: Host = Host.STATEFUL
    between_us: dict[str, tuple[int, int]] = {}
