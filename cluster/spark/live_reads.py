"""What a micro-batch reads of streams for queries that are up to date. Pure decisions over what the tables hold.

    version     |  begin                 end            stateful: what the versions after `begin` added, as it came;
    ------------+------------------------------          it waits in the state until the watermark has passed it
    stamps      |  watermark at begin    at end          stateless: what lies between the two watermarks, in order,
                |=== read by this one ===|               whatever version added it; the table itself is where it waits

No version holds a row stamped before the watermark of an earlier one. So between two watermarks nothing can be missing
at the version that set the second, and slices put one behind the other are the stream, each row once and in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.physical.nodes import PhysicalPlan
from cluster.plan.pipelines import Host
from cluster.spark.tables_read import TablesRead


@dataclass(frozen=True, slots=True)
class LiveRead:
    """What to read.

    Parameters
    ----------
    files
        Stream, path below its table, rows.
    watermarks_us
        By stream, as far as there is one: the low watermark at the end.
    between_us
        By stream: between which stamps; a stream that is left out is read whatever its stamps.
    """

    files: list[tuple[str, str, int]] = field(default_factory=list)
    watermarks_us: dict[str, int] = field(default_factory=dict)
    between_us: dict[str, tuple[int, int]] = field(default_factory=dict)


def live_read(
    host: Host, plan: PhysicalPlan, begins: Mapping[str, int], ends: Mapping[str, int], tables: TablesRead
) -> LiveRead:
    """Return what a micro-batch reads live.

    Parameters
    ----------
    host
        For which of a Fjord's two Spark queries.
    plan
        Its plan.
    begins, ends
        By stream: the versions after which and up to which it reads.
    tables
        The streams' tables.
    """
    read = LiveRead()
    for stream in sorted(plan.streams):
        begin, end = begins[stream], ends[stream]
        watermark_us = tables.watermark_us(stream, end)
        if watermark_us is not None:
            read.watermarks_us[stream] = watermark_us
        if host is Host.STATEFUL:
            added = (file for version in range(begin + 1, end + 1) for file in tables.commit(stream, version).files)
            read.files.extend((stream, file.path, file.rows) for file in added)
            continue
        from_us, until_us = tables.passed_us(stream, begin), tables.passed_us(stream, end)
        read.between_us[stream] = from_us, until_us
        if from_us < until_us:
            read.files.extend((stream, file.path, file.rows) for file in tables.unread(stream, begin, end))
    return read
