"""Queries with history (``SINCE``) or flowing relations: the instants from which they read, fixed when they begin.

"2 hours ago" is relative to the stream's low watermark at the position where the query's plan begins, because replays
of recorded days have clocks of their own. The instant is written into the plan, so that the history depends only
on plans and tables, which never change. The epoch is written with it, so that a query with history shares
tuples, panes and state with no query without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec.structs import replace

from cluster.operators import Held, Node, Source
from cluster.operators.source import History
from cluster.operators.walks import nodes_of, rebuilt

EVER_US = -(2**62)
"""Before all stamps."""
NOTHING_STORED: Mapping[str, int | None] = MappingProxyType({})


def sources_with_history(node: Node) -> Iterator[tuple[Source, History]]:
    """Yield the sources of a plan that begin with history."""
    for each in nodes_of(node):
        if isinstance(each, Source) and each.history is not None:
            yield each, each.history


def has_own_beginning(node: Node) -> bool:
    """Return whether the instants from which a plan reads are fixed in it when it begins."""
    return any(sources_with_history(node)) or bool(streams_of_held(node))


def with_history_starts(
    node: Node, epoch: int, stands_us: Mapping[str, int | None], stored_us: Mapping[str, int | None] = NOTHING_STORED
) -> Node:
    """Return a plan with the instants from which it reads.

    Parameters
    ----------
    node
        The plan.
    epoch
        The epoch with which the query begins.
    stands_us
        By stream: its low watermark at the position where the epoch begins; None if it has none yet.
    stored_us
        By stream: the earliest stamp that is stored of it.
    """
    if not has_own_beginning(node):
        return node

    def beginning(source: Source) -> Source:
        history = source.history
        if history is None:
            return source
        stands, back = stands_us.get(source.stream), history.back_us
        begins = EVER_US if stands is None or back is None else max(EVER_US, stands - back)
        return replace(source, history=replace(history, begins_us=begins, epoch=epoch))

    sources = [beginning(each) for each in nodes_of(node) if isinstance(each, Source)]

    def beginning_of(each: Node) -> Node:
        if isinstance(each, Held):
            return replace(each, begins_us=_first_instant(each, sources, stands_us, stored_us), epoch=epoch)
        return beginning(each) if isinstance(each, Source) else each

    return rebuilt(node, beginning_of)


def _first_instant(
    held: Held, sources: Iterable[Source], stands_us: Mapping[str, int | None], stored_us: Mapping[str, int | None]
) -> int | None:
    """Return the instant at which the rows of relations begin; None if all streams are still to begin.

    It is the earliest beginning of a stream whose time passes, or the latest of those that the rows are held against.
    """
    if not held.against:
        sources = (each for each in nodes_of(held.input) if isinstance(each, Source))
    found = []
    for source in sources:
        stands = stands_us.get(source.stream)
        if stands is None or (held.against and source.stream not in held.against):
            continue
        history = source.history
        begins = stands if history is None or history.begins_us is None else history.begins_us
        stored = stored_us.get(source.stream)
        found.append(begins if begins > EVER_US else stands if stored is None else min(stored, stands))
    return max(found, default=None) if held.against else min(found, default=None)


@lru_cache(maxsize=4096)
def streams_of_held(node: Node) -> frozenset[str]:
    """Return the streams with which rows of relations begin to flow."""
    held = (each for each in nodes_of(node) if isinstance(each, Held))
    return frozenset().union(*(each.input.streams.union(each.against) for each in held))


@lru_cache(maxsize=4096)
def history_starts(node: Node) -> Mapping[str, int]:
    """Return the instants from which a plan reads stored tuples, by stream, without streams that it reads only live."""
    found: dict[str, int] = {}
    for source, history in sources_with_history(node):
        begins = EVER_US if history.begins_us is None else history.begins_us
        found[source.stream] = min(begins, found.get(source.stream, begins))
    return found
