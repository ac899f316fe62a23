"""What queries demand of a stream, as the one message that proxies read: what one asks never hurts another.

Each query's demand is encoded and read back, by what proxies read it with, before it is published. All of them have to
fit into one message. Where room gets scarce, the newest queries ask for more than they need: for fewer bands, which are
wider. What was there before stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.physical.nodes import Subscriber
from cluster.physical.rules.asked_of_sensors import ANY_NAME
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
"""A demand of many bands takes at most this part of the room that is left, so that there is some for the next."""
_FEWER_BANDS = (MOST_BANDS, 64, 16, 4, 0)
_HEADER_BYTES = 16
"""By which the message may be longer than the sum of its parts."""


class DemandError(PlanError):
    """A query's demand that no proxy could read."""


class TooManyDemandsError(DemandError):
    """There is no room for another demand on a stream."""


@dataclass(slots=True)
class Assembled:
    """The demand on a stream.

    Parameters
    ----------
    demand
        What proxies will read.
    payload
        As bytes.
    left_out
        By query: why proxies are not asked for it.
    """

    demand: StreamDemand
    payload: bytes
    left_out: dict[str, str]


@dataclass(slots=True)
class _Room:
    """What is left of a message."""

    size: int
    demands: int = MOST_DEMANDS
    taken: list[tuple[QueryDemand, bytes]] = field(default_factory=list)

    def take(self, stream: str, pieces: Sequence[_Piece]) -> None:
        """Put the demands of one query into the message, or none of them.

        Raises
        ------
        TooManyDemandsError
            If there is no room for them.
        """
        left, found = self.size, []
        for piece in pieces:
            fitting = piece.fitting(left)
            left -= len(fitting[1])
            found.append(fitting)
        if left < 0 or self.demands < len(found):
            raise TooManyDemandsError(
                f"there is no room for another demand on stream {stream!r}: those of all queries have at most "
                f"{format_byte_size(MAX_DEMAND_BYTES)} and are at most {MOST_DEMANDS:,}",
                hint="drop queries that read it, or ask for ranges instead of long lists of values",
            )
        self.size, self.demands = left, self.demands - len(found)
        self.taken += found


class _Piece:
    """One demand, with as many bands as there is room for."""

    def __init__(self, demand: QueryDemand) -> None:
        self._demand = demand
        self._known = {MOST_BANDS: (demand, encode_query_demand(demand))}

    def fitting(self, room: int) -> tuple[QueryDemand, bytes]:
        """Return it as one that takes no more than its share of the room, if there is one."""
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
        self._known: dict[str, dict[str, tuple[_Piece, ...]]] = {}
        self.left_out: dict[str, dict[str, str]] = {}
        """By stream and query: why proxies were not asked for it when the demand was published last."""

    def assemble(self, stream: str, known: StreamDemand, queries: Iterable[Subscriber]) -> Assembled:
        """Return the demand of queries, the oldest first, on a stream; nothing of it is refused by proxies as a whole.

        Parameters
        ----------
        stream
            Its name.
        known
            The demand without those of queries.
        queries
            All that run.
        """
        room, left_out = self._room_after(stream, known, queries)
        demand = replace(known, demands=tuple(demand for demand, _ in room.taken))
        return Assembled(demand, encode_demands(known, [payload for _, payload in room.taken]), left_out)

    def published(self, stream: str, assembled: Assembled) -> None:
        """Take note of what proxies are asked."""
        for query, reason in assembled.left_out.items():
            if self.left_out.get(stream, {}).get(query) != reason:
                log.warning("proxies are not asked for a query", stream=stream, query=query, reason=reason)
        self.left_out[stream] = assembled.left_out

    def check(self, query: Subscriber, known: Mapping[str, StreamDemand], queries: Iterable[Subscriber]) -> None:
        """Raise if proxies could not be asked for what a query needs, beside those that run.

        Parameters
        ----------
        query
            The query, under whatever name.
        known
            By stream that it reads: the demand without those of queries.
        queries
            All that run.

        Raises
        ------
        DemandError
            If no proxy could read its demand.
        TooManyDemandsError
            If there is no room for it.
        """
        if query.asked.refused:
            raise DemandError(query.asked.refused, hint="sensors cannot be asked for this; ask for less, or otherwise")
        for stream, demands in query.asked.streams:
            if stream in known:
                pieces = [_Piece(replace(each, query=ANY_NAME)) for each in demands]
                self._room_after(stream, known[stream], queries)[0].take(stream, pieces)

    def forget(self, queries: Iterable[Subscriber]) -> None:
        """Forget what is known of queries other than these."""
        running = {query.identity for query in queries}
        self._known = {key: found for key, found in self._known.items() if key in running}

    def _room_after(
        self, stream: str, known: StreamDemand, queries: Iterable[Subscriber]
    ) -> tuple[_Room, dict[str, str]]:
        room = _Room(self._max_bytes - len(encode_demands(known, ())) - _HEADER_BYTES)
        left_out: dict[str, str] = {}
        for query in queries:
            if query.asked.refused:
                left_out[query.query] = query.asked.refused
            else:
                try:
                    room.take(stream, self._pieces(query).get(stream, ()))
                except TooManyDemandsError as error:
                    left_out[query.query] = error.message
        return room, left_out

    def _pieces(self, query: Subscriber) -> dict[str, tuple[_Piece, ...]]:
        """Return what a query demands, by stream."""
        found = self._known.get(query.identity)
        if found is None:
            found = {stream: tuple(map(_Piece, demands)) for stream, demands in query.asked.streams}
            self._known[query.identity] = found
        return found
