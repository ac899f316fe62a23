"""What a proxy tells the cluster of its spool, now and then: how much waits, and for how long."""

from __future__ import annotations

import contextlib

from protocols import topics
from protocols.catalog import ProxySpool
from protocols.frames import VERSION, encode
from protocols.mqtt import Message
from proxy.errors import StoreError
from proxy.stores import Stores


async def spool_report(proxy: str, stores: Stores, now_us: int) -> Message:
    """Return the message; `now_us` is real time.

    Quality of service 0: the next one tells more.
    """
    since_us: int | None = None
    with contextlib.suppress(StoreError):  # as far as it can be read; batches that cannot be are counted where they are
        since_us = await stores.in_thread(stores.spool.waiting_since_us)
    waits_us = None if since_us is None else max(0, now_us - since_us)
    said = ProxySpool(VERSION, proxy, stores.spool.batches, stores.spool.size_bytes, waits_us)
    return Message(topics.proxy_spool(proxy), encode(said), qos=0)
