"""The demands of all queries on a stream, as the one message that proxies read: no query can spoil it for others.

Before a query's demand is published it is encoded, and decoded as proxies decode it. All demands have to fit into one
message. Where room becomes scarce, the newest queries demand more than they need, with fewer and wider bands. Demands
that were published before stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.physical.nodes import Subscriber
from cluster.physical.rules.sensor_demands import ANY_NAME
from cluster.plan.widening import with_fewer_bands
from protocols.event_log import get_logger
from protocols.text.byte_sizes import format_byte_size
from protocols.wire.demands import (
    MAX_DEMAND_BYTES,
    MOST_BANDS,
    MOST_DEMANDS,
    QueryDemand,
    StreamDemand,
    encode_demands,
    encode_query_demand,
)

log = get_logger(__name__)

SHARE = 256
"""A demand of many bands takes at most this part of the room that is left, so that some remains for the next."""
_FEWER_BANDS = (MOST_BANDS, 64, 16, 4, 0)
_HEADER_BYTES = 16
"""By how much the message may exceed the sum of its parts."""


class DemandError(PlanError):
    """A query's demand that no proxy could decode."""


class TooManyDemandsError(DemandError):
    """There is no room for another demand on a stream."""


@dataclass(slots=True)
class AssembledDemand:
    """The demand on a stream.

    Parameters
    ----------
    demand
        The demand that proxies decode.
    payload
        Its encoding.
    left_out
        By query: why its demand is left out.
    """

    demand: StreamDemand
    payload: bytes
    left_out: dict[str, str]


@dataclass(slots=True)
class _Room:
    """The space left in a message."""

    size: int
    demands: int = MOST_DEMANDS
    accepted: list[tuple[QueryDemand, bytes]] = field(default_factory=list)

    def add(self, stream: str, encoded: Sequence[_EncodedDemand]) -> None:
        """Add all demands of one query to the message, or none of them.

        Raises
        ------
        TooManyDemandsError
            If there is no room for them.
        """
        left, found = self.size, []
        for each in encoded:
            fitting = each.fitting(left)
            left -= len(fitting[1])
            found.append(fitting)
        if left < 0 or self.demands < len(found):
            raise TooManyDemandsError(
                f"there is no room for another demand on stream {stream!r}: those of all queries have at most "
                f"{format_byte_size(MAX_DEMAND_BYTES)} and are at most {MOST_DEMANDS:,}",
                hint="drop queries that read it, or compare with ranges instead of long lists of values",
            )
        self.size, self.demands = left, self.demands - len(found)
        self.accepted += found


class _EncodedDemand:
    """One demand, with as many bands as there is room for."""

    def __init__(self, demand: QueryDemand) -> None:
        self._demand = demand
        self._known = {MOST_BANDS: (demand, encode_query_demand(demand))}

    def fitting(self, room: int) -> tuple[QueryDemand, bytes]:
        """Return the demand with so many bands that it takes no more than its share of the room, if possible."""
        found = self._known[MOST_BANDS]
        for most in _FEWER_BANDS:
            if most not in self._known:
                fewer = with_fewer_bands(self._demand, most)
                self._known[most] = fewer, encode_query_demand(fewer)
            found = self._known[most]
            if len(found[1]) <= room // SHARE:
                break
        return found


class PublishedDemands:
    """The demands of the queries that run.

    Parameters
    ----------
    max_bytes
        Of the message of one stream.
    """

    def __init__(self, max_bytes: int = MAX_DEMAND_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: dict[str, dict[str, tuple[_EncodedDemand, ...]]] = {}
        self.left_out: dict[str, dict[str, str]] = {}
        """By stream and query: why its demand was left out when the stream's was last published."""

    def assemble(self, stream: str, known: StreamDemand, queries: Iterable[Subscriber]) -> AssembledDemand:
        """Return the demand of queries, the oldest first, on a stream; proxies can decode it as a whole.

        Parameters
        ----------
        stream
            Its name.
        known
            The demand without those of queries.
        queries
            All that run.
        """
        room, left_out = self._room_left(stream, known, queries)
        demand = replace(known, demands=tuple(demand for demand, _ in room.accepted))
        return AssembledDemand(demand, encode_demands(known, [payload for _, payload in room.accepted]), left_out)

    def note_published(self, stream: str, assembled: AssembledDemand) -> None:
        """Note what was published, and log which queries are left out."""
        for query, reason in assembled.left_out.items():
            if self.left_out.get(stream, {}).get(query) != reason:
                log.warning("demand of a query is left out", stream=stream, query=query, reason=reason)
        self.left_out[stream] = assembled.left_out

    def check(self, query: Subscriber, known: Mapping[str, StreamDemand], queries: Iterable[Subscriber]) -> None:
        """Raise an error if there is no room for the demands of a query, beside those that run.

        Parameters
        ----------
        query
            The query; its name does not matter.
        known
            By stream that it reads: the demand without those of queries.
        queries
            All that run.

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
            if stream in known:
                encoded = [_EncodedDemand(replace(each, query=ANY_NAME)) for each in demands]
                self._room_left(stream, known[stream], queries)[0].add(stream, encoded)

    def forget(self, queries: Iterable[Subscriber]) -> None:
        """Forget the encoded demands of queries other than these."""
        running = {query.identity for query in queries}
        self._known = {key: found for key, found in self._known.items() if key in running}

    def _room_left(
        self, stream: str, known: StreamDemand, queries: Iterable[Subscriber]
    ) -> tuple[_Room, dict[str, str]]:
        room = _Room(self._max_bytes - len(encode_demands(known, ())) - _HEADER_BYTES)
        left_out: dict[str, str] = {}
        for query in queries:
            if query.demands.refused:
                left_out[query.query] = query.demands.refused
            else:
                try:
                    room.add(stream, self._encoded(query).get(stream, ()))
                except TooManyDemandsError as error:
                    left_out[query.query] = error.message
        return room, left_out

    def _encoded(self, query: Subscriber) -> dict[str, tuple[_EncodedDemand, ...]]:
        """Return the encoded demands of a query, by stream."""
        found = self._known.get(query.identity)
        if found is None:
            found = {stream: tuple(map(_EncodedDemand, demands)) for stream, demands in query.demands.streams}
            self._known[query.identity] = found
        return found
