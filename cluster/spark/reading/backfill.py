"""What a micro-batch reads of streams for queries with history that are not up to date yet. Pure decisions.

    stamps      |<- begins          reached             watermark
    backfill    |=== read ============|--- next --->        :     up to an instant, while other queries go on live
    its last    |=====================================|-----:-->  what is left, however stamped: from then on live
    stateless   |=====================================|-----:     up to the watermark: from then on live

A version of a table is an exact set of rows, and its watermark promises that no later version holds a row stamped
before it. So what is stored at the version where a micro-batch ends may be read in the order of time, in pieces: up to
an instant that the watermark has passed, nothing can be missing. The last piece is everything from the instant reached
on, as it is stored at the version where its micro-batch ends; the query's next micro-batch reads the versions after
it, or, if it keeps no state, what lies behind that version's watermark. Each row is so read once, and the instants
reached are part of Spark's offset: a replay reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster.fjord.batch import NEVER
from cluster.physical.nodes import PhysicalPlan
from cluster.spark.offsets import Offset
from cluster.spark.reading.reads import StreamRead, TableVersions
from cluster.storage.stream_retention import StoredFiles

Reached = Mapping[str, int]
"""By stream: the instant up to which history has been read."""


def backfill_reached(
    start: Offset, end: Offset, plan: PhysicalPlan, tables: TableVersions, *, max_rows: float | None
) -> dict[int, Reached]:
    """Return how far backfills get in a micro-batch, by the epoch of their query; those it completes are left out.

    Parameters
    ----------
    start, end
        The micro-batch; the history in its end is not looked at.
    plan
        Its plan.
    tables
        The streams' tables.
    max_rows
        About how much history to read; the query that has the least to read gets it first, so that a long history
        delays no short one. None for no bound.
    """
    if max_rows is None:
        return {}
    waiting: list[tuple[float, int, list[_Remaining]]] = []
    for epoch, instants in _running(start, plan):
        remaining = [
            _Remaining(stream, from_us, tables.stored(stream, end.versions[stream]), _passed(tables, stream, end))
            for stream, from_us in sorted(instants.items())
        ]
        if remaining:
            waiting.append((sum(each.rows_until(None) for each in remaining), epoch, remaining))
    found: dict[int, Reached] = {}
    left = max_rows
    for rows, epoch, remaining in sorted(waiting, key=lambda each: each[:2]):
        if rows > left:
            until_us = _instant_with(remaining, left) if left > 0 else None
            found[epoch] = {each.stream: each.reached(until_us) for each in remaining}
        left = max(0.0, left - rows)
    return found


def backfill_reads(
    start: Offset, end: Offset, plan: PhysicalPlan, tables: TableVersions, *, to_the_watermark: bool
) -> list[StreamRead]:
    """Return what backfills read of each of their streams in a micro-batch.

    Parameters
    ----------
    start, end, plan, tables
        As for :func:`backfill_reached`.
    to_the_watermark
        Whether a backfill is complete when it has read up to the watermark, not all that is stored.
    """
    found = []
    for epoch, instants in _running(start, plan):
        reached = end.history.get(epoch)
        for stream, from_us in sorted(instants.items()):
            passed_us = _passed(tables, stream, end)
            until_us = None if reached is None else reached[stream]
            if until_us is None and to_the_watermark:
                until_us = from_us if passed_us is None else max(from_us, passed_us)
            stored = tables.stored(stream, end.versions[stream])
            files = stored.between(from_us, until_us) if until_us != from_us else ()
            found.append(
                StreamRead(
                    stream,
                    tuple((file.path, file.rows) for file in files),
                    passed_us if until_us is None else until_us,
                    (from_us, NEVER if until_us is None else until_us),
                    epoch,
                    tuple((file.first_us, file.last_us) for file in files),
                )
            )
    return found


def _running(start: Offset, plan: PhysicalPlan) -> Iterator[tuple[int, Reached]]:
    """Yield the epoch of each query with history, and from which instants on it reads in the micro-batch after `start`.

    There are no such instants if it is live.
    """
    for query, beginnings in plan.with_history:
        epoch = query.visible_from
        yield epoch, beginnings if epoch > start.epoch else start.history.get(epoch, {})


def _passed(tables: TableVersions, stream: str, end: Offset) -> int | None:
    return tables.watermark_us(stream, end.versions[stream])


class _Remaining:
    """The part of one stream's history that a query still has to read, as far as the watermark has passed it."""

    def __init__(self, stream: str, from_us: int, files: StoredFiles, watermark_us: int | None) -> None:
        self.stream = stream
        self._files = files
        self._from_us = from_us
        self._watermark_us = from_us if watermark_us is None else max(from_us, watermark_us)

    @property
    def span(self) -> tuple[int, int]:
        """The range of instants that still has to be read."""
        first, end = self._files.first_us or 0, self._files.end_us or 0
        return max(self._from_us, first), min(self._watermark_us, end)

    def reached(self, until_us: int | None) -> int:
        """Return the instant up to which it can be read, given one up to which to read; None if it has to wait."""
        return self._from_us if until_us is None else min(max(self._from_us, until_us), self._watermark_us)

    def rows_until(self, until_us: int | None) -> float:
        """Return about how many rows there are up to an instant; None for all that the watermark has passed."""
        until = self._watermark_us if until_us is None else self.reached(until_us)
        return self._files.rows_between(self._from_us, until)


def _instant_with(remaining: list[_Remaining], rows: float) -> int:
    """Return the first instant up to which there are this many rows; up to the watermarks there are more."""
    spans = [each.span for each in remaining]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(each.rows_until(middle) for each in remaining) < rows:
            low = middle
        else:
            high = middle
    return high
