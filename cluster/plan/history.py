"""Queries with history (``SINCE``) or flowing relations: the instants from which they read, fixed when they begin.

"2 hours ago" is relative to the stream's low watermark at the position where the query's plan begins, because replays
of recorded days have clocks of their own. The instant is written into the plan, so that the history depends only
on plans and tables, which never change. The epoch is written with it, so that a query with history shares
tuples, panes and state with no query without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec.structs import replace

from cluster.language.algebra import Held, History, Node, Source
from cluster.language.walks import nodes_of, rebuilt

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

    def beginning_of(each: Node) -> Node:
        if isinstance(each, Held):
            return replace(each, begins_us=_first_instant(each, stands_us), epoch=epoch)
        return beginning(each) if isinstance(each, Source) else each

    def beginning(source: Source) -> Source:
        history = source.history
        if history is None:
            return source
        stands, back = stands_us.get(source.stream), history.back_us
        begins = EVER_US if stands is None or back is None else max(EVER_US, stands - back)
        return replace(source, history=replace(history, begins_us=begins, epoch=epoch))

    return rebuilt(node, beginning_of) if any(sources_with_history(node)) or streams_of_held(node) else node


def _first_instant(held: Held, stands_us: Mapping[str, int | None]) -> int | None:
    """Return the instant at which the rows of relations begin; None for that of the first tuple."""
    found = []
    for source in (each for each in nodes_of(held.input) if isinstance(each, Source)):
        begins = stands_us.get(source.stream) if source.history is None else source.history.begins_us
        found.append(EVER_US if begins is None else begins)
    first = min(found, default=EVER_US)
    return None if first == EVER_US else first


@lru_cache(maxsize=4096)
def streams_of_held(node: Node) -> frozenset[str]:
    """Return the streams in whose time rows of relations flow."""
    inputs = [each.input for each in nodes_of(node) if isinstance(each, Held)]
    return frozenset(each.stream for held in inputs for each in nodes_of(held) if isinstance(each, Source))


@lru_cache(maxsize=4096)
def history_starts(node: Node) -> Mapping[str, int]:
    """Return the instants from which a plan reads stored tuples, by stream, without streams that it reads only live."""
    found: dict[str, int] = {}
    for source, history in sources_with_history(node):
        begins = EVER_US if history.begins_us is None else history.begins_us
        found[source.stream] = min(begins, found.get(source.stream, begins))
    return found
