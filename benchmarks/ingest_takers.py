"""Receivers of the batches of benchmarks/ingest.py, each for a process of its own: the ingest, and bare subscribers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import aiomqtt
from ingest_load import Shared

from cluster.ingest.service import Ingest
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics

LINK_PREFIX, BARE_PREFIX = "link/", "bare/"


def run_ingest(port: int, folder: str, shared: Shared) -> None:
    """Run the ingest of a cluster, with its tables in a folder."""

    def reject(kind: str, reason: str, origin: str, _: bytes) -> None:
        sys.exit(f"rejected from {origin}: {kind}: {reason}")

    async def ready() -> None:
        shared.ready.value = 1

    async def serve() -> None:
        link = MqttLink(
            BrokerAddress(port=port),
            client_id="fjord-cluster-benchmark",
            subscriptions=Ingest.subscriptions,
            on_connect=ready,
        )
        ingest = Ingest(Path(folder), quarantine=reject, link=link)

        async def handle(messages: Sequence[Message]) -> None:
            acks = [ingest.handle(message, topics.parse(message.topic)) for message in messages]
            if any(acks):
                await ingest.acknowledge(ack for ack in acks if ack is not None)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ingest.run())
            await link.run_in_bursts(handle)

    configure_logging("error")
    asyncio.run(_until_stopped(serve(), shared))


def run_link(port: int, shared: Shared) -> None:
    """Count batches with Fjord's link alone."""

    async def take(_: Message) -> None:
        shared.taken.value += 1

    async def ready() -> None:
        shared.ready.value = 1

    configure_logging("error")
    link = MqttLink(
        BrokerAddress(port=port),
        client_id="fjord-link-benchmark",
        subscriptions=[Subscription(LINK_PREFIX + topics.batches("+"), qos=0)],
        on_connect=ready,
    )
    asyncio.run(_until_stopped(link.run(take), shared))


def run_bare(port: int, shared: Shared) -> None:
    """Count batches with nothing but aiomqtt 2."""

    async def count() -> None:
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe(BARE_PREFIX + topics.batches("+"), qos=0)
            shared.ready.value = 1
            taken = shared.taken
            async for _ in client.messages:
                taken.value += 1

    asyncio.run(_until_stopped(count(), shared))


async def _until_stopped(work: Coroutine[None, None, None], shared: Shared) -> None:
    running = asyncio.ensure_future(work)
    while not shared.stop.is_set() and not running.done():  # noqa: ASYNC110 - the event is another process's
        await asyncio.sleep(0.05)
    if not running.done():
        running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
