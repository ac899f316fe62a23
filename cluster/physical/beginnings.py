"""Where streams begin, for queries that were there before them: their rows of relations flow from there.

    commit      1       2       3           watermark behind it, by commit: none, 2, 6
    stamps      5       4       9           begins at 4: then no earlier tuple can come any more

A query that is added later begins at the watermark that the stream has then (cluster/plan/history.py). A beginning
depends only on what is stored and in which commits: not on conditions, micro-batches, or where a replay begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.physical.nodes import Fragment


def unbegun_streams(fragments: Iterable[Fragment]) -> frozenset[str]:
    """Return the streams with whose beginning rows of relations begin to flow."""
    return frozenset().union(*(each.begins_with for each in fragments))


def beginning_us(first_us: int | None, commits: Iterable[tuple[int | None, int | None]]) -> int | None:
    """Return where a stream begins: at its earliest tuple, or at its first watermark if that comes before any tuple.

    Parameters
    ----------
    first_us
        Its earliest stamp before these commits; None if there was no tuple.
    commits
        The earliest stamp of each, and the stream's watermark behind it; None for those that there are not.

    Returns
    -------
    int or None
        The instant; None if it does not begin with these commits. For a stream that has begun already it may be any.
    """
    for stamped_us, watermark_us in commits:
        if stamped_us is not None:
            first_us = stamped_us if first_us is None else min(first_us, stamped_us)
        if watermark_us is None:
            continue
        if first_us is None or first_us <= watermark_us:
            return watermark_us if first_us is None else first_us
    return None
