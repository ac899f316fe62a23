"""Proxies' requests for pieces of demands that they still lack: of which streams, and which ones.

A core without I/O: messages in, state out. The same piece is published once, however many proxies ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.errors import FrameError
from protocols.event_log import get_logger
from protocols.mqtt.link import Message, Subscription
from protocols.wire import topics
from protocols.wire.demand_pieces import decode_demand_request

log = get_logger(__name__)

MOST_STREAMS = 1_000
"""Streams of which pieces may be outstanding; further requests are rejected until some are answered."""


class DemandRequests:
    """The requests that have not been answered."""

    subscriptions = (Subscription(topics.demand_request("+", "+")),)

    def __init__(self) -> None:
        self._outstanding: dict[str, set[int]] = {}
        self.rejected: dict[str, int] = {}
        """Messages that were rejected, by reason."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._outstanding)

    def handle(self, message: Message, topic: topics.ParsedTopic) -> None:
        """Handle a message on one of :attr:`subscriptions`; bad ones are rejected and counted, others ignored."""
        if topic.kind != "demand_request":
            return
        try:
            self._note(topic.names, message.payload)
        except FrameError as error:
            self.rejected[error.reason] = self.rejected.get(error.reason, 0) + 1
            log.warning("request rejected", topic=message.topic, reason=error.reason, error=str(error))

    def take(self) -> Mapping[str, frozenset[int]]:
        """Remove and return the pieces that are outstanding, by stream."""
        found = {stream: frozenset(pieces) for stream, pieces in self._outstanding.items()}
        self._outstanding.clear()
        return found

    def _note(self, names: tuple[str, ...], payload: bytes) -> None:
        request = decode_demand_request(payload)
        if (request.proxy, request.stream) != names:
            raise FrameError("identity", f"request of {request.proxy}/{request.stream} came for {'/'.join(names)}")
        if request.stream not in self._outstanding and len(self._outstanding) >= MOST_STREAMS:
            raise FrameError("full", f"there are requests about {MOST_STREAMS:,} streams already")
        self._outstanding.setdefault(request.stream, set()).update(request.pieces)
