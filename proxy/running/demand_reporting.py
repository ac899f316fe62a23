"""Reports of the demands that a proxy does not answer: on every change, and after each connect."""

from __future__ import annotations

import contextlib

from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import ProxySpool
from protocols.wire.demand_reports import demand_report
from protocols.wire.demands import RefusedDemand
from protocols.wire.frames import VERSION, encode
from proxy.errors import StoreError
from proxy.fleet.fleet import Fleet
from proxy.storage.stores import Stores


class DemandReporting:
    """The reports of one proxy, retained: one for each stream with rejected demands.

    Parameters
    ----------
    proxy
        Its name.
    fleet
        Has the rejected demands.
    """

    def __init__(self, proxy: str, fleet: Fleet) -> None:
        self._proxy = proxy
        self._fleet = fleet
        self._published: dict[str, tuple[int, tuple[RefusedDemand, ...]]] = {}
        self._under_way: dict[str, tuple[str, tuple[int, tuple[RefusedDemand, ...]]]] = {}

    def forget_published(self) -> None:
        """Publish all reports again: the broker may have lost them, or kept those of an earlier run of the proxy."""
        self._published.clear()

    def due(self) -> list[Message]:
        """Return the messages to publish; an empty one removes a report."""
        found: list[Message] = []
        for stream, state in self._fleet.streams.items():
            rejected = state.rejected_demands
            now = (state.demand_epoch if rejected else 0, rejected)
            if self._published.get(stream) == now:
                continue
            topic = topics.demand_report(self._proxy, stream)
            report = encode(demand_report(self._proxy, stream, *now)) if rejected else b""
            self._under_way[topic] = (stream, now)
            found.append(Message(topic, report, retain=True))
        return found

    def published(self, message: Message) -> None:
        """Note that a message has been published."""
        stream, now = self._under_way.pop(message.topic)
        self._published[stream] = now


async def spool_report(proxy: str, stores: Stores, now_us: int) -> Message:
    """Return the report of how much waits in the spool; `now_us` is real time.

    Quality of service 0: the next report replaces it.
    """
    since_us: int | None = None
    with contextlib.suppress(StoreError):  # as far as it can be read; sending counts batches that cannot be read
        since_us = await stores.in_thread(stores.spool.waiting_since_us)
    waits_us = None if since_us is None else max(0, now_us - since_us)
    report = ProxySpool(VERSION, proxy, stores.spool.batches, stores.spool.size_bytes, waits_us)
    return Message(topics.proxy_spool(proxy), encode(report), qos=0)
