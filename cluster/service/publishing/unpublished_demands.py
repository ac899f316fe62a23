"""Which message about demands is published next: of one stream after the other the pieces that changed, then the head.

Pure. A head names the pieces that belong to it, so it comes last, and as it stands then::

    begin a, b     piece a3 | piece a9, empty | head a | head b      one message at a time
                   piece a3 | failed          |        | head b      the rest of a is due from the next connection on

Pieces that the broker has are not published again, until a proxy asks for them, or there is a new connection: the
broker may have lost everything. A piece that is acknowledged after a new connection was not published on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocols.mqtt.messages import Message
from protocols.wire import topics

if TYPE_CHECKING:
    from cluster.service.publishing.published_demands import PublishedDemands
    from protocols.wire.demands import StreamDemand


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
