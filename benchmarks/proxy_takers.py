"""Receivers of the packets of benchmarks/proxy.py, each for a process of its own.

A bare subscriber, Fjord's link alone, a whole proxy, one that is recorded, and what acknowledges their batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import aiomqtt
from proxy_load import KEYED, UNACKNOWLEDGED, Shared, keyed_seals

from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.recording.segments import DEFAULT_LOG_BYTES
from protocols.recording.timeline import TickingLoop
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import SECOND_US
from proxy.running.link_interface import mqtt_link
from proxy.running.recorded_run import begin_recording, run_on
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores

SILENCE_AFTER_US = 3_600 * SECOND_US


def run_bare(port: int, proxy: str, shared: Shared) -> None:
    """Count packets with nothing but aiomqtt 2."""

    async def count() -> None:
        async with aiomqtt.Client("127.0.0.1", port, max_inflight_messages=UNACKNOWLEDGED) as client:
            await client.subscribe(topics.packet(proxy, "+"), qos=1)
            shared.ready.value = 1
            taken = shared.taken
            async for _ in client.messages:
                taken.value += 1

    asyncio.run(_until_stopped(count(), shared))


def run_link(port: int, proxy: str, shared: Shared) -> None:
    """Count packets with the link alone."""
    configure_logging("error")

    async def take(_: Message) -> None:
        shared.taken.value += 1

    async def tell() -> None:
        shared.ready.value = 1

    async def count() -> None:
        link = MqttLink(
            BrokerAddress(port=port),
            client_id=f"benchmark-{proxy}",
            subscriptions=[Subscription(topics.packet(proxy, "+"))],
            on_connect=tell,
        )
        await link.run(take)

    asyncio.run(_until_stopped(count(), shared))


def run_proxy(port: int, proxy: str, folder: str, shared: Shared, *, deployment: str = "") -> None:
    """Run a whole proxy, as `fjord proxy` does; with a deployment, by TLS with its certificate."""

    async def serve() -> None:
        with open_stores(settings.folder, proxy, quarantine_entries=settings.quarantine_entries) as stores:
            seals = keyed_seals(f"proxy-{proxy}.keys", settings.folder) if proxy == KEYED else None
            service = ProxyService(settings, stores, mqtt_link(settings.broker_address(), seals=seals))
            stop = asyncio.Event()
            running = asyncio.create_task(service.run(stop))
            await _share(service, shared)
            stop.set()
            await running

    settings = _settings(port, proxy, folder, deployment)
    configure_logging("error")
    asyncio.run(serve())


def run_recorded_proxy(port: int, proxy: str, folder: str, shared: Shared) -> None:
    """Run a whole proxy, as `fjord proxy --record` does; its log is in `folder` too."""

    async def share(service: ProxyService) -> None:
        await _share(service, shared)
        recorder.stop()

    async def serve() -> None:
        watching: list[asyncio.Task[None]] = []

        def began(service: ProxyService) -> None:
            watching.append(asyncio.create_task(share(service), context=recorder.outside.copy()))

        await run_on(recorder, settings, stores, mqtt_link(settings.broker_address()), [], began)

    settings = _settings(port, proxy, folder)
    configure_logging("error")
    with open_stores(settings.folder, proxy, quarantine_entries=settings.quarantine_entries) as stores:
        recorder = begin_recording(Path(folder) / "log", DEFAULT_LOG_BYTES, settings)
        with contextlib.closing(recorder), asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(serve())


def _settings(port: int, proxy: str, folder: str, deployment: str = "") -> ProxySettings:
    # Motes send nothing while other contenders have their turn: none may count as silent for that, nor as a mote
    # that does not begin, without which the stream goes on. Their clocks are made up.
    own = f"{deployment}/proxies/{proxy}"
    files = {"broker_ca": "ca.crt", "broker_certificate": f"{proxy}.crt", "broker_key": f"{proxy}.key"}
    return ProxySettings(
        **{setting: f"{own}/{file}" for setting, file in files.items() if deployment},
        name=proxy,
        broker=f"127.0.0.1:{port}",
        data=folder,
        silence_after=SILENCE_AFTER_US,
        patience=SILENCE_AFTER_US,
        keys="in memory" if proxy == KEYED else "",
        max_clock_ahead=0,
        max_clock_behind=0,
    )


async def _share(service: ProxyService, shared: Shared) -> None:
    """Share what a proxy has done, until it must end."""
    await service.link.connected.wait()
    shared.ready.value = 1
    while not shared.stop.is_set():
        await asyncio.sleep(0.02)
        metrics = service.metrics
        shared.taken.value = metrics.value("packets", "") - metrics.value("packets_refused")
        shared.ready.value = 1 + metrics.value("announcements", "")
        shared.processor_ns.value = time.process_time_ns()


def run_acknowledger(port: int, proxy: str, shared: Shared) -> None:
    """Acknowledge each batch of a proxy, and count its rows, as a cluster does."""
    configure_logging("error")
    through: dict[str, int] = {}

    async def take(message: Message) -> None:
        batch = decode_batch(message.payload)
        if batch.sequence == through.get(batch.stream, 0) + 1:
            through[batch.stream] = batch.sequence
            shared.rows.value += batch.rows
        ack = Ack(VERSION, proxy, batch.epoch, batch.stream, through.get(batch.stream, 0))
        await link.publish(Message(topics.acks(proxy), encode(ack)))

    link = MqttLink(
        BrokerAddress(port=port),
        client_id=f"acknowledger-{proxy}",
        subscriptions=[Subscription(topics.batches(proxy))],
        seals=keyed_seals("cluster.keys", Path(tempfile.mkdtemp())) if proxy == KEYED else None,
    )
    asyncio.run(_until_stopped(link.run(take), shared))


async def _until_stopped(work: Coroutine[None, None, None], shared: Shared) -> None:
    running = asyncio.ensure_future(work)
    while not shared.stop.is_set() and not running.done():  # noqa: ASYNC110 - the event is another process's
        await asyncio.sleep(0.05)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
