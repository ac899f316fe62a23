"""The demands on streams as messages, whole or in pieces, so that no query can spoil them for others; which is next.

**The demands on one stream, as messages: one whole, or pieces by name of the query and a head with their digests.**

A query that comes or goes changes one piece; the others are neither encoded nor published again.

**The demands of all queries on a stream, as proxies read them: no query can spoil them for others.**

Before a query's demand is published it is encoded, and decoded as proxies decode it. All demands on a stream together
are bounded. Where room becomes scarce, the newest queries demand more than they need, with fewer and wider bands.
Demands that were published before stay as they are.

**Which message about demands is published next: of one stream after the other the pieces that changed, then the head.**

A head names the pieces that belong to it, so it comes last, and as it stands then::

    begin a, b     piece a3 | piece a9, empty | head a | head b      one message at a time
                   piece a3 | failed          |        | head b      the rest of a is due from the next connection on

Pieces that the broker has are not published again, until a proxy asks for them, or there is a new connection: the
broker may have lost everything. A piece that is acknowledged after a new connection was not published on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.physical.nodes import Subscriber
from cluster.physical.plan_changes import Splice
from cluster.physical.rules.sensor_demands import ANY_NAME
from cluster.plan.push_down import with_fewer_bands
from protocols.event_log import get_logger
from protocols.mqtt.messages import Message
from protocols.text.quantities import format_byte_size
from protocols.wire import topics
from protocols.wire.demands import (
    MAX_PIECES_BYTES,
    MOST_DEMANDS,
    DemandHead,
    QueryDemand,
    StreamDemand,
    digest_of,
    encode_demands,
    encode_piece,
    encode_query_demand,
    piece_of,
)
from protocols.wire.frames import VERSION, encode

WHOLE_BYTES = 32 * 1024
"""Demands that take no more than this are one message, which earlier proxies read, too. Once they have taken more, they
are pieces until they take half of it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One demand of a query.

    Parameters
    ----------
    since
        The epoch with which the query began.
    demand, payload
        The demand, and its encoding.
    """

    since: int
    demand: QueryDemand
    payload: bytes

    @property
    def place(self) -> tuple[int, str, bytes]:
        """Where it stands among all demands on its stream."""
        return self.since, self.demand.query, self.payload


class StreamPieces:
    """The demands on one stream, and what of them the broker has.

    Parameters
    ----------
    stream
        Its name.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.size_bytes = 0
        """Of all demands together."""
        self.whole = True
        """Whether they are one message."""
        self._count = 0
        self._pieces: dict[int, dict[str, tuple[Entry, ...]]] = {}
        """By number and identity of the query."""
        self._digests: dict[int, bytes] = {}
        """Of the pieces that have been encoded as they are."""
        self._published: dict[int, bytes] = {}

    def __len__(self) -> int:
        """How many demands there are."""
        return self._count

    def add(self, query: str, name: str, since: int, demands: Sequence[tuple[QueryDemand, bytes]]) -> None:
        """Add the demands of a query, given its identity, its name, the epoch with which it began."""
        entries = tuple({payload: Entry(since, demand, payload) for demand, payload in demands}.values())
        number = piece_of(name)
        self._pieces.setdefault(number, {})[query] = entries
        self._changed(number, entries, 1)

    def drop(self, query: str, name: str) -> bool:
        """Remove the demands of a query; return whether there were any."""
        number = piece_of(name)
        entries = self._pieces.get(number, {}).pop(query, ())
        if not self._pieces.get(number):
            self._pieces.pop(number, None)
        self._changed(number, entries, -1)
        return bool(entries)

    def ordered(self) -> list[Entry]:
        """Return all demands, those of the oldest queries first."""
        found = [each for piece in self._pieces.values() for entries in piece.values() for each in entries]
        return sorted(found, key=lambda each: each.place)

    def unpublished(self) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces that the broker does not have as they are, empty ones to be removed.

        Each has to be noted by :meth:`note_published` before the next is taken.
        """
        for number in sorted(self._published.keys() | (set() if self.whole else self._pieces.keys())):
            # Queries may come and go while pieces are published.
            if self.whole or number not in self._pieces:
                yield number, b""
            elif number not in self._digests or self._published.get(number) != self._digests[number]:
                payload = self._encoded(number)
                self._digests[number] = digest_of(payload)
                yield number, payload

    def note_published(self, number: int, payload: bytes) -> None:
        """Note that the broker has a piece."""
        if payload:
            self._published[number] = digest_of(payload)
        else:
            self._published.pop(number, None)

    def forget_published(self, numbers: Sequence[int] | None = None) -> None:
        """Publish pieces again, all unless some are named: the broker, or a proxy, has lost them."""
        for number in list(self._published) if numbers is None else numbers:
            if number in self._published:
                self._published[number] = b""

    def head(self, known: StreamDemand) -> bytes:
        """Return the message on the stream's topic, given the demand without those of queries."""
        if self.whole:
            return encode_demands(known, [each.payload for each in self.ordered()])
        for number in self._pieces.keys() - self._digests.keys():
            self._digests[number] = digest_of(self._encoded(number))
        pieces = {number: self._digests[number] for number in sorted(self._pieces)}
        return encode(DemandHead(VERSION, known.cluster, self.stream, known.epoch, pieces, known.declared, known.only))

    def _changed(self, number: int, entries: Sequence[Entry], sign: int) -> None:
        self._digests.pop(number, None)
        self._count += sign * len(entries)
        self.size_bytes += sign * sum(len(each.payload) for each in entries)
        self.whole = self.size_bytes <= (WHOLE_BYTES if self.whole else WHOLE_BYTES // 2)

    def _encoded(self, number: int) -> bytes:
        entries = sorted(
            (each for entries in self._pieces[number].values() for each in entries), key=lambda each: each.place
        )
        return encode_piece(VERSION, self.stream, number, [(each.since, each.payload) for each in entries])


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


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a message.

    Parameters
    ----------
    stream, piece
        What it is about; None for the head.
    message
        The message.
    connection
        The number of the connection for which it was made.
    """

    stream: str
    piece: int | None
    message: Message
    connection: int


class UnpublishedDemands:
    """What the broker lacks of the demands on all streams.

    Parameters
    ----------
    demands
        What is demanded.
    empty
        Returns the demand on a stream without those of queries.
    """

    def __init__(self, demands: PublishedDemands, empty: Callable[[str], StreamDemand]) -> None:
        self._demands = demands
        self._empty = empty
        self._connection = 0
        self._streams: deque[str] = deque()
        """Those still to be published in this round; pieces of the first are being published."""
        self._pieces: Iterator[tuple[int, bytes]] | None = None

    def connected(self, streams: Collection[str]) -> None:
        """Note a new connection, with which the demands on these streams are published whole."""
        self._connection += 1
        for stream in streams:
            self._demands.pieces(stream).forget_published()

    def requested(self, requests: Mapping[str, Collection[int]]) -> list[str]:
        """Note which pieces proxies lack, by stream; return the streams that are to be published for that."""
        known = [stream for stream in requests if self._demands.known(stream)]
        for stream in known:
            self._demands.pieces(stream).forget_published(sorted(requests[stream]))
        return known

    def begin(self, streams: Collection[str]) -> None:
        """Begin a round, after the end of the one before: what has changed in the demands on some streams is due."""
        self._streams = deque(sorted(streams))
        self._pieces = None

    def next(self) -> Publish | None:
        """Return what to publish next in this round; None at its end."""
        if not self._streams:
            return None
        stream = self._streams[0]
        pieces = self._demands.pieces(stream)
        if self._pieces is None:
            self._pieces = pieces.unpublished()
        for number, payload in self._pieces:
            message = Message(topics.demand_piece(stream, number), payload, retain=True)
            return Publish(stream, number, message, self._connection)
        self._end_stream()
        # As it stands now: queries may have come and gone while pieces were published.
        head = Message(topics.demand(stream), pieces.head(self._empty(stream)), retain=True)
        return Publish(stream, None, head, self._connection)

    def published(self, publish: Publish) -> None:
        """Note that the broker has acknowledged a message."""
        # Else it is another connection, before which the broker may have lost the message already.
        if publish.piece is not None and publish.connection == self._connection:
            self._demands.pieces(publish.stream).note_published(publish.piece, publish.message.payload)

    def failed(self, publish: Publish) -> None:
        """Note that a message was not published: no head is, either, before its pieces."""
        if publish.piece is not None:
            self._end_stream()

    def _end_stream(self) -> None:
        self._streams.popleft()
        self._pieces = None
