"""Follows a query's result topic, without losing what was published before it listened."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import msgspec

from cluster.service.client import ApiClient
from protocols import topics
from protocols.mqtt import BrokerAddress, Message, MqttLink, Subscription


class _Numbered(msgspec.Struct):
    sequence: int


async def tail(
    name: str,
    client: ApiClient,
    broker: BrokerAddress,
    *,
    after: int | None,
    count: int | None,
    show: Callable[[bytes], None],
) -> None:
    """Call `show` for every row of a query: once each, in order, stored ones first if `after` is given.

    Publishing is at least once; rows already seen are left out by their sequence number, and a gap (the broker was
    away, or dropped rows) is filled from the stored results.
    """
    done = asyncio.Event()
    last: int | None = after
    shown = 0

    def emit(sequence: int, payload: bytes) -> None:
        nonlocal last, shown
        if (last is not None and sequence <= last) or done.is_set():
            return
        last = sequence
        show(payload)
        shown += 1
        if count is not None and shown >= count:
            done.set()

    def catch_up() -> None:
        while last is not None and not done.is_set():
            rows = client.results(name, after=last)
            for row in rows:
                emit(row["sequence"], msgspec.json.encode(row))
            if not rows:
                return

    async def receive(message: Message) -> None:
        sequence = msgspec.json.decode(message.payload, type=_Numbered).sequence
        if last is not None and sequence > last + 1:
            await asyncio.to_thread(catch_up)
        emit(sequence, message.payload)

    async def connected() -> None:
        await asyncio.to_thread(catch_up)

    link = MqttLink(
        broker,
        client_id=f"fjord-tail-{uuid.uuid4().hex[:8]}",
        subscriptions=[Subscription(topics.results(name)), Subscription(topics.query_errors(name))],
        on_connect=connected,
    )
    running = asyncio.create_task(link.run(receive), name="link")
    waiting = asyncio.create_task(done.wait(), name="done")
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (running, waiting):
        task.cancel()
    if running.done() and not running.cancelled() and (error := running.exception()):
        raise error
