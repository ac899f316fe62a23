"""What the driver sends to tasks: what each of them reads, and what it needs to run the plan over that.

Nothing here imports operators: Spark's processes that only plan tasks do without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.physical.answer_files import ANSWERS_RETURNED
from cluster.physical.nodes import Host
from cluster.plan.relations_read import MEMORY_BYTES

ROWS_PER_TASK = 250_000
"""Fewer rows are not worth a Python task of their own, which takes about 0.2 s."""


class StreamRead(msgspec.Struct, frozen=True):
    """What a micro-batch, or one task of it, reads of one stream.

    Parameters
    ----------
    stream
        Its name.
    files
        (path below its table, rows) of files that hold such rows, and maybe others, in the order of reading.
    watermark_us
        The stream's low watermark behind these rows; None if it has none yet.
    between_us
        Between which stamps; None for all rows of the files.
    backfill_epoch
        The epoch of the query whose history this is; None for what all other queries read live.
    """

    stream: str
    files: tuple[tuple[str, int], ...]
    watermark_us: int | None
    between_us: tuple[int, int] | None = None
    backfill_epoch: int | None = None


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
        Number of this part; part 0 also sends every bucket the control message of the micro-batch.
    reads
        What it reads: of each stream of the plan live, and for each query with history that is not up to date.
    relations_folder, relations, relation_memory_bytes
        Where versions of relations are; by identity, the newest one that counts; what a table of them may take of the
        memory.
    host
        Which of the two Spark queries it belongs to.
    first_key
        The key of bucket 0 in Spark.
    answers_folder, answers_returned
        Where it writes its answers if there are more than it returns; empty if it returns all.
    """

    plans_folder: str
    streams_folder: str
    epoch: int
    previous_epoch: int
    buckets: int
    origin: int
    reads: tuple[StreamRead, ...]
    relations_folder: str = ""
    relations: dict[str, int] = {}
    relation_memory_bytes: int = MEMORY_BYTES
    host: Host = Host.STATEFUL
    first_key: int = 0
    answers_folder: str = ""
    answers_returned: int = ANSWERS_RETURNED

    @property
    def reached_us(self) -> int:
        """How far the streams have come; 0 if that is not known."""
        live = (read.watermark_us for read in self.reads if read.backfill_epoch is None)
        return max((watermark_us for watermark_us in live if watermark_us is not None), default=0)


def divided(reads: Sequence[StreamRead], max_parts: int) -> list[tuple[StreamRead, ...]]:
    """Divide the files of reads, in order, into as many parts as their rows justify, at least one.

    Each part has all the reads, if only with their watermarks and without files.

    Parameters
    ----------
    reads
        Of a micro-batch.
    max_parts
        How many parts there may be.
    """
    files = [(number, file) for number, read in enumerate(reads) for file in read.files]
    rows = sum(count for _, (_, count) in files)
    wanted = max(1, min(max_parts, rows // ROWS_PER_TASK))
    parts: list[list[tuple[int, tuple[str, int]]]] = [[]]
    filled = 0
    for number, file in files:
        if filled >= rows * len(parts) / wanted and len(parts) < wanted:
            parts.append([])
        parts[-1].append((number, file))
        filled += file[1]
    return [
        tuple(
            msgspec.structs.replace(read, files=tuple(file for place, file in part if place == number))
            for number, read in enumerate(reads)
        )
        for part in parts
    ]
