"""Follows a query's result topic, without losing what was published before it listened."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import msgspec
import structlog

from cluster.service.client import ApiClient, ApiUnreachableError
from protocols import topics
from protocols.mqtt import BrokerAddress, Message, MqttLink, Subscription


log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
"""Before the API is asked again."""


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
    away, or dropped rows) is filled from the stored results. While the cluster is away then, rows wait for it.

    Raises
    ------
    ApiUnreachableError
        If no cluster answers when it begins.
    """
    done, has_begun = asyncio.Event(), asyncio.Event()
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

    async def catch_up_at_last() -> None:
        while True:
            try:
                return await asyncio.to_thread(catch_up)
            except ApiUnreachableError as error:
                if not has_begun.is_set():
                    raise
                log.warning("missed rows wait for the cluster", query=name, error=error.message)
                await asyncio.sleep(PAUSE_SECONDS)

    async def receive(message: Message) -> None:
        sequence = msgspec.json.decode(message.payload, type=_Numbered).sequence
        if last is not None and sequence > last + 1:
            await catch_up_at_last()
        emit(sequence, message.payload)

    async def connected() -> None:
        await catch_up_at_last()
        has_begun.set()

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
