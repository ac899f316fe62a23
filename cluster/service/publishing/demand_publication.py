"""Demands on streams are published: the pieces that have changed, then the head that names them.

What is published next is decided apart (:mod:`cluster.service.publishing.unpublished_demands`). What cannot be
published now is on the next connection: demands are state, not events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from cluster.service.publishing.unpublished_demands import UnpublishedDemands
from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message

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
        self._unpublished = UnpublishedDemands(demands, empty)
        self._link = link
        self._requests = requests
        # So that no head is published after a newer one.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Answer requests, until cancelled."""
        while True:
            await asyncio.sleep(ANSWER_SECONDS)
            await self.answer()

    async def answer(self) -> None:
        """Publish the pieces that proxies lack once more."""
        await self.publish(self._unpublished.requested(self._requests.take()))

    async def publish(self, streams: Collection[str]) -> None:
        """Publish what has changed in the demands on some streams."""
        async with self._turn:
            self._unpublished.begin(streams)
            while (each := self._unpublished.next()) is not None:
                try:
                    await self._link.publish(each.message)
                except LinkError as error:
                    log.warning("demand waits for the broker", stream=each.stream, error=str(error))
                    self._unpublished.failed(each)
                else:
                    self._unpublished.published(each)

    async def publish_again(self, streams: Collection[str]) -> None:
        """Publish the demands on some streams whole: the broker may have lost them."""
        self._unpublished.connected(streams)
        await self.publish(streams)
