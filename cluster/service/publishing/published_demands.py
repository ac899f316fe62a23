"""The demands of all queries on a stream, as proxies read them: no query can spoil them for others.

Before a query's demand is published it is encoded, and decoded as proxies decode it. All demands on a stream together
are bounded. Where room becomes scarce, the newest queries demand more than they need, with fewer and wider bands.
Demands that were published before stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.physical.nodes import Subscriber
from cluster.physical.plan_changes import Splice
from cluster.physical.rules.sensor_demands import ANY_NAME
from cluster.plan.widening import with_fewer_bands
from cluster.service.publishing.stream_pieces import StreamPieces
from protocols.event_log import get_logger
from protocols.text.byte_sizes import format_byte_size
from protocols.wire.demand_pieces import MAX_PIECES_BYTES
from protocols.wire.demands import (
    MOST_DEMANDS,
    QueryDemand,
    encode_query_demand,
)

log = get_logger(__name__)

SHARE = 256
"""A demand of many bands takes at most this part of the room that is left, so that some remains for the next."""
_FEWER_BANDS = (64, 16, 4, 0)


class DemandError(PlanError):
    """A query's demand that no proxy could decode."""


class TooManyDemandsError(DemandError):
    """There is no room for another demand on a stream."""


class PublishedDemands:
    """The demands of the queries that run, by stream; changed only by the queries that come and go.

    Parameters
    ----------
    max_bytes
        Of all demands on one stream.
    """

    def __init__(self, max_bytes: int = MAX_PIECES_BYTES) -> None:
        self._max_bytes = max_bytes
        self._queries: tuple[Subscriber, ...] = ()
        self._streams: dict[str, StreamPieces] = {}
        self._waiting: dict[str, dict[str, Subscriber]] = {}
        """By stream and identity: the queries for whose demands there is no room."""
        self._left_out: dict[str, dict[str, str]] = {}
        """By stream and query: why its demand is left out."""
        self._refused: dict[str, str] = {}
        """By query: why none of its demands can be published."""

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """By stream and query: why its demand is left out."""
        return {stream: {**self._left_out.get(stream, {}), **self._refused} for stream in self._streams}

    def follow(self, queries: tuple[Subscriber, ...], *, most: int | None = None) -> bool:
        """Let queries come and go until these are left, which are in the order of age; return whether they are.

        Parameters
        ----------
        queries
            Those that run.
        most
            So many come at a time where only some come and none goes, which takes long if they are many; None for all.
        """
        change = Splice.between(self._queries, queries)
        if most is not None and not change.out and len(change.into) > most:
            self._queries = Splice(change.at, 0, change.into[:most]).applied_to(self._queries)
            for each in change.into[:most]:
                self._add(each)
            return False
        gone = self._queries[change.at : change.at + change.out]
        kept = {each.identity for each in change.into} if gone else frozenset[str]()
        had = {each.identity for each in gone}
        self._queries = queries
        for each in gone:
            if each.identity not in kept:
                self._drop(each)
        for each in change.into:
            if each.identity not in had:
                self._add(each)
        return True

    def known(self, stream: str) -> bool:
        """Return whether the demand on a stream has been published, or looked at."""
        return stream in self._streams

    def pieces(self, stream: str) -> StreamPieces:
        """Return the demands on a stream, as messages."""
        return self._streams.setdefault(stream, StreamPieces(stream))

    def check(self, query: Subscriber) -> None:
        """Raise an error if there is no room for the demands of a query, beside those that run.

        Parameters
        ----------
        query
            The query; its name does not matter.

        Raises
        ------
        DemandError
            If no proxy could decode its demand.
        TooManyDemandsError
            If there is no room for it.
        """
        if query.demands.refused:
            raise DemandError(query.demands.refused, hint="no sensor can be asked for this; write a simpler query")
        for stream, demands in query.demands.streams:
            self._fitting(stream, [replace(each, query=ANY_NAME) for each in demands])

    def _add(self, query: Subscriber) -> None:
        if query.demands.refused:
            self._refused[query.query] = query.demands.refused
            log.warning("demand of a query is left out", query=query.query, reason=query.demands.refused)
        for stream, demands in query.demands.streams:
            self._add_to(stream, query, demands)

    def _add_to(self, stream: str, query: Subscriber, demands: Sequence[QueryDemand]) -> None:
        try:
            fitting = self._fitting(stream, demands)
        except TooManyDemandsError as error:
            self._waiting.setdefault(stream, {})[query.identity] = query
            self._leave_out(stream, query, error.message)
        else:
            self._waiting.get(stream, {}).pop(query.identity, None)
            self._left_out.get(stream, {}).pop(query.query, None)
            self.pieces(stream).add(query.identity, query.query, query.visible_from, fitting)

    def _drop(self, query: Subscriber) -> None:
        self._refused.pop(query.query, None)
        for stream, _ in query.demands.streams:
            self._left_out.get(stream, {}).pop(query.query, None)
            self._waiting.get(stream, {}).pop(query.identity, None)
            if self.pieces(stream).drop(query.identity, query.query):
                for each in sorted(self._waiting.get(stream, {}).values(), key=lambda waits: waits.visible_from):
                    self._add_to(stream, each, each.demands.of(stream))

    def _leave_out(self, stream: str, query: Subscriber, reason: str) -> None:
        known = self._left_out.setdefault(stream, {})
        if known.get(query.query) != reason:
            known[query.query] = reason
            log.warning("demand of a query is left out", stream=stream, query=query.query, reason=reason)

    def _fitting(self, stream: str, demands: Iterable[QueryDemand]) -> list[tuple[QueryDemand, bytes]]:
        """Return the demands of one query with as many bands as there is room for.

        Raises
        ------
        TooManyDemandsError
            If there is no room for all of them.
        """
        pieces = self.pieces(stream)
        left, found = self._max_bytes - pieces.size_bytes, []
        for each in demands:
            fitting = _fitting(each, left)
            left -= len(fitting[1])
            found.append(fitting)
        if left < 0 or len(pieces) + len(found) > MOST_DEMANDS:
            raise TooManyDemandsError(
                f"there is no room for another demand on stream {stream!r}: those of all queries have at most "
                f"{format_byte_size(self._max_bytes)} and are at most {MOST_DEMANDS:,}",
                hint="drop queries that read it, or compare with ranges instead of long lists of values",
            )
        return found


def _fitting(demand: QueryDemand, room: int) -> tuple[QueryDemand, bytes]:
    """Return a demand with so many bands that it takes no more than its share of the room, if possible."""
    found = demand, encode_query_demand(demand)
    for most in _FEWER_BANDS:
        if len(found[1]) <= room // SHARE:
            break
        fewer = with_fewer_bands(demand, most)
        found = fewer, encode_query_demand(fewer)
    return found
