"""Queries with history (``SINCE``): the instant of each stream from which they read, fixed when a query begins.

"2 hours ago" is relative to the stream's low watermark at the position where the query's plan begins, because replays
of recorded days have clocks of their own. The instant is written into the plan, so that the history depends only
on plans and tables, which never change. The epoch is written with it, so that a query with history shares
tuples, panes and state with no query without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec.structs import replace

from cluster.language.acquisition import with_sources
from cluster.language.algebra import History, Node, Source
from cluster.language.walks import nodes_of

EVER_US = -(2**62)
"""Before all stamps."""


def sources_with_history(node: Node) -> Iterator[tuple[Source, History]]:
    """Yield the sources of a plan that begin with history."""
    for each in nodes_of(node):
        if isinstance(each, Source) and each.history is not None:
            yield each, each.history


def with_history_starts(node: Node, epoch: int, stands_us: Mapping[str, int | None]) -> Node:
    """Return a plan with the instants from which it reads.

    Parameters
    ----------
    node
        The plan.
    epoch
        The epoch with which the query begins.
    stands_us
        By stream: its low watermark at the position where the epoch begins; None if it has no tuples yet.
    """

    def beginning(source: Source) -> Source:
        history = source.history
        if history is None:
            return source
        stands, back = stands_us.get(source.stream), history.back_us
        begins = EVER_US if stands is None or back is None else max(EVER_US, stands - back)
        return replace(source, history=replace(history, begins_us=begins, epoch=epoch))

    return with_sources(node, beginning) if any(sources_with_history(node)) else node


@lru_cache(maxsize=4096)
def history_starts(node: Node) -> Mapping[str, int]:
    """Return the instants from which a plan reads stored tuples, by stream, without streams that it reads only live."""
    found: dict[str, int] = {}
    for source, history in sources_with_history(node):
        begins = EVER_US if history.begins_us is None else history.begins_us
        found[source.stream] = min(begins, found.get(source.stream, begins))
    return found
