"""Demands on streams are published: the pieces that have changed, then the head that names them.

What cannot be published now is on the next connection: demands are state, not events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics

if TYPE_CHECKING:
    from cluster.service.publishing.demand_requests import DemandRequests
    from cluster.service.publishing.published_demands import PublishedDemands
    from protocols.wire.demands import StreamDemand

log = get_logger(__name__)

ANSWER_SECONDS = 1.0
"""Requests are answered this far apart, however many there are."""


class Publishes(Protocol):
    """A link to a broker."""

    async def publish(self, message: Message) -> None:
        """As that of :class:`protocols.mqtt.link.MqttLink`."""


class DemandPublication:
    """Publishes the demands on all streams.

    Parameters
    ----------
    demands
        What is demanded.
    link
        Where it is published.
    requests
        Pieces that proxies lack.
    empty
        Returns the demand on a stream without those of queries.
    """

    def __init__(
        self,
        demands: PublishedDemands,
        link: Publishes,
        requests: DemandRequests,
        empty: Callable[[str], StreamDemand],
    ) -> None:
        self._demands = demands
        self._link = link
        self._requests = requests
        self._empty = empty
        # So that no head is published after a newer one.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Answer requests, until cancelled."""
        while True:
            await asyncio.sleep(ANSWER_SECONDS)
            await self.answer()

    async def answer(self) -> None:
        """Publish the pieces that proxies lack once more."""
        for stream, numbers in self._requests.take().items():
            if self._demands.known(stream):
                self._demands.pieces(stream).forget_published(sorted(numbers))
                await self.publish([stream])

    async def publish(self, streams: Collection[str]) -> None:
        """Publish what has changed in the demands on some streams."""
        async with self._turn:
            for stream in sorted(streams):
                try:
                    await self._publish(stream)
                except LinkError as error:
                    log.warning("demand waits for the broker", stream=stream, error=str(error))

    async def publish_again(self, streams: Collection[str]) -> None:
        """Publish the demands on some streams whole: the broker may have lost them."""
        for stream in streams:
            self._demands.pieces(stream).forget_published()
        await self.publish(streams)

    async def _publish(self, stream: str) -> None:
        pieces = self._demands.pieces(stream)
        for number, payload in pieces.unpublished():
            await self._link.publish(Message(topics.demand_piece(stream, number), payload, retain=True))
            pieces.note_published(number, payload)
        # Last, as it stands then: queries may have come and gone meanwhile.
        await self._link.publish(Message(topics.demand(stream), pieces.head(self._empty(stream)), retain=True))
