"""Publishes a proxy's catalog and state: the shell around :mod:`proxy.running.unpublished`."""

from __future__ import annotations

import asyncio
import contextlib

from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from proxy.errors import StoreError
from proxy.running.link_interface import Clocks, Link
from proxy.running.metrics import ProxyMetrics
from proxy.running.unpublished import Kind, Publication, Publish, Unpublished, spool_report
from proxy.storage.stores import Stores

log = get_logger(__name__)

_ROUND_SECONDS = 0.25


class CatalogPublisher:
    """Publishes what the broker lacks of one proxy.

    Parameters
    ----------
    proxy
        Its name.
    unpublished
        Decides what is published when.
    stores
        The spool, of which a report is published.
    link
        Publishes.
    metrics, clocks
        Counters, and the time.
    """

    def __init__(
        self, proxy: str, unpublished: Unpublished, stores: Stores, link: Link, *, metrics: ProxyMetrics, clocks: Clocks
    ) -> None:
        self._proxy = proxy
        self._unpublished = unpublished
        self._stores = stores
        self._link = link
        self._metrics = metrics
        self._clocks = clocks

    async def run(self) -> None:
        """Publish round after round, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self._link.connected.wait()
            self._unpublished.begin_round(self._clocks.radio())
            try:
                while (found := self._unpublished.next(self._clocks.radio(), self._clocks.real())) is not None:
                    await self._publish(found)
            except LinkError as error:
                log.debug("catalog was not published", error=str(error))
                self._unpublished.failed()

    async def publish_offers(self) -> None:
        """Publish the offers that the broker lacks now; raises LinkError."""
        while (offer := self._unpublished.offer()) is not None:
            await self._publish(offer)

    async def _publish(self, found: Publication) -> None:
        if isinstance(found, Publish):
            if found.kind is Kind.REQUEST:
                self._metrics.count("demand_requests")
            message = found.message
        else:
            message = await self._spool_report()
        await self._link.publish(message)
        self._unpublished.published(found)

    async def _spool_report(self) -> Message:
        spool, now_us = self._stores.spool, self._clocks.real()
        since_us: int | None = None
        with contextlib.suppress(StoreError):  # as far as it can be read; sending counts batches that cannot be read
            since_us = await self._stores.in_thread(spool.waiting_since_us)
        return spool_report(
            self._proxy,
            batches=spool.batches,
            size_bytes=spool.size_bytes,
            file_bytes=spool.room.file_bytes,
            since_us=since_us,
            now_us=now_us,
        )
