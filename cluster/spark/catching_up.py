"""How queries that look back catch up with their streams, micro-batch by micro-batch. Pure decisions.

    stamps      |<- begins          reached             watermark
    history     |=== read ============|--- next --->        :     up to an instant, while other queries go on live
    the last    |=====================================|-----:-->  what is left, however stamped: from then on live
    stateless   |=====================================|-----:     up to the watermark: from then on live

A version of a table is an exact set of rows, and its watermark promises that no later version holds a row stamped
before it. So what is stored at the version where a micro-batch ends may be read in the order of time, in pieces: up to
an instant that the watermark has passed, nothing can be missing. The last piece is everything from the instant reached
on, as it is stored at the version where its micro-batch ends; the query's next micro-batch reads the versions after
it, or, if it keeps no state, what lies behind that version's watermark. Each row is so read once, and the instants
reached are part of Spark's offset: a replay reads the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from cluster.physical.nodes import PhysicalPlan
from cluster.spark.offsets import Offset
from cluster.storage.stored_files import StoredFile, StoredFiles

Reached = Mapping[str, int]
"""By stream: the instant up to which history has been read."""


class PastRead(msgspec.Struct, frozen=True):
    """What a query that catches up reads of one stream in one micro-batch.

    Parameters
    ----------
    epoch
        With which the query began.
    stream
        The stream.
    from_us, until_us
        Between which stamps; None for all that is stored.
    watermark_us
        That of the query's edges at the end of the micro-batch; None if nothing is known of the stream.
    paths
        Files below the table that hold such rows, and others; a part of the micro-batch reads some of them.
    """

    epoch: int
    stream: str
    from_us: int
    until_us: int | None
    watermark_us: int | None
    paths: tuple[str, ...] = ()


def reads_from(epoch: int, beginnings: Reached, start: Offset) -> Reached:
    """Return from which instants on a query reads history in the micro-batch after an offset; none if it is live.

    Parameters
    ----------
    epoch
        With which the query began.
    beginnings
        From which instants on it reads from then on.
    start
        The offset.
    """
    return beginnings if epoch > start.epoch else start.history.get(epoch, {})


def caught_up(
    start: Offset,
    end: Offset,
    plan: PhysicalPlan,
    stored: Callable[[str, int], StoredFiles],
    watermark: Callable[[str, int], int | None],
    *,
    max_rows: float | None,
) -> dict[int, Reached]:
    """Return how far the queries that catch up get in a micro-batch; those that are through are left out.

    Parameters
    ----------
    start, end
        The micro-batch; what its end says of history is not looked at.
    plan
        Its plan.
    stored
        What a stream's table holds at a version.
    watermark
        A stream's low watermark at a version.
    max_rows
        About how much history to read; the query that has the least to read gets it first, so that a long look back
        holds up no short one. None for no bound.
    """
    if max_rows is None:
        return {}
    waiting: list[tuple[float, int, list[_Piece]]] = []
    for query, beginnings in plan.with_history:
        pieces = [
            _Piece(stream, from_us, stored(stream, end.versions[stream]), watermark(stream, end.versions[stream]))
            for stream, from_us in sorted(reads_from(query.visible_from, beginnings, start).items())
        ]
        if pieces:
            waiting.append((sum(piece.rows_until(None) for piece in pieces), query.visible_from, pieces))
    found: dict[int, Reached] = {}
    left = max_rows
    for rows, epoch, pieces in sorted(waiting, key=lambda each: each[:2]):
        if rows > left:
            until_us = _instant_with(pieces, left) if left > 0 else None
            found[epoch] = {piece.stream: piece.reached(until_us) for piece in pieces}
        left = max(0.0, left - rows)
    return found


def past_reads(
    start: Offset,
    end: Offset,
    plan: PhysicalPlan,
    stored: Callable[[str, int], StoredFiles],
    watermark: Callable[[str, int], int | None],
    *,
    to_the_watermark: bool = False,
) -> list[tuple[PastRead, tuple[StoredFile, ...]]]:
    """Return what queries that catch up read in a micro-batch, and from which files.

    Parameters
    ----------
    start, end, plan, stored, watermark
        As for :func:`caught_up`.
    to_the_watermark
        Whether whoever is through has read up to the watermark only, not all that is stored.
    """
    found = []
    for query, beginnings in plan.with_history:
        reached = end.history.get(query.visible_from)
        for stream, from_us in sorted(reads_from(query.visible_from, beginnings, start).items()):
            version = end.versions[stream]
            until_us = None if reached is None else reached[stream]
            passed_us = watermark(stream, version)
            if until_us is None and to_the_watermark:
                until_us = from_us if passed_us is None else max(from_us, passed_us)
            files = stored(stream, version).between(from_us, until_us) if until_us != from_us else ()
            promised = passed_us if until_us is None else until_us
            found.append((PastRead(query.visible_from, stream, from_us, until_us, promised), files))
    return found


class _Piece:
    """What a query has still to read of one stream's past, as far as the watermark has passed it."""

    def __init__(self, stream: str, from_us: int, files: StoredFiles, watermark_us: int | None) -> None:
        self.stream = stream
        self._files = files
        self._from_us = from_us
        self._watermark_us = from_us if watermark_us is None else max(from_us, watermark_us)

    @property
    def span(self) -> tuple[int, int]:
        """Between which instants there is something."""
        first, end = self._files.first_us or 0, self._files.end_us or 0
        return max(self._from_us, first), min(self._watermark_us, end)

    def reached(self, until_us: int | None) -> int:
        """Return the instant up to which it can be read, given one up to which to read; None if it has to wait."""
        return self._from_us if until_us is None else min(max(self._from_us, until_us), self._watermark_us)

    def rows_until(self, until_us: int | None) -> float:
        """Return about how many rows there are up to an instant; None for all that the watermark has passed."""
        until = self._watermark_us if until_us is None else self.reached(until_us)
        return self._files.rows_between(self._from_us, until)


def _instant_with(pieces: list[_Piece], rows: float) -> int:
    """Return the first instant up to which there are so many rows; there are more than that up to the watermarks."""
    spans = [piece.span for piece in pieces]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(piece.rows_until(middle) for piece in pieces) < rows:
            low = middle
        else:
            high = middle
    return high
