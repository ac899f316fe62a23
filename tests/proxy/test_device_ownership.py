"""Who owns a device, and what a restart of the proxy keeps of it.

run       1                                  2
driver    announced, boot 1    rows          announced, boot 2, a promise | first message: a row at once
catalog   kitchen: rooms, 1                  kitchen: rooms, 2
"""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from proxy.drivers.settings import read_drivers
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores
from tests.proxy.test_service import FakeLink, published_batches, until

ROOMS = {
    "kind": "json", "name": "rooms", "topic": "rooms/{mote}", "stream": "climate", "minimum_period": "1ms",
    "field": [{"name": "t", "path": "t", "type": "real"}],
}  # fmt: skip


@contextlib.asynccontextmanager
async def running(tmp_path, drivers, *, keys=False):
    settings = ProxySettings(
        name="p",
        data=str(tmp_path / "data"),
        flush_interval=10_000,
        entry_interval=1,
        counters_interval=1,
        keys="p.keys" if keys else "",
    )
    if drivers and isinstance(drivers[0], dict):
        drivers = read_drivers({"driver": drivers}, "test")
    with open_stores(settings.folder, settings.name, quarantine_entries=100) as stores:
        service = ProxyService(settings, stores, FakeLink, drivers=drivers)
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        yield service
        stop.set()
        await asyncio.wait_for(task, 10)


async def send(service, topic, content, *, retain=False):
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    await service.link.take([Message(topic, payload, retain=retain)])


async def demand_temperatures(service):
    wanted = StreamDemand(VERSION, "c", "climate", 1, (QueryDemand("q", ("t",), 1_000),))
    await send(service, topics.demand("climate"), encode(wanted), retain=True)
    await service.merging.settled()


def rows(service):
    found = {each.sequence: each for each in published_batches(service.link)}
    return [
        value
        for _, batch in sorted(found.items())
        for each in batch.columns
        if each.name == "t"
        for value in each.values(batch.rows)
    ]


def rejected(service):
    count = service.metrics.value
    return count("announcements_refused") + count("packets_refused") + count("frames_refused")


async def drive(service, *values):
    for value in values:
        await asyncio.sleep(0.002)  # a slot of its own
        await send(service, "rooms/kitchen", {"t": value})
    await until(lambda: values[-1] in rows(service))


@pytest.mark.parametrize("keys", [False, True])
async def test_the_first_message_after_each_start_is_a_row_at_once(tmp_path, keys):
    async with running(tmp_path, [ROOMS], keys=keys) as service:
        await demand_temperatures(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
        await drive(service, *map(float, range(30)))
    for value in (100.5, 101.5):
        async with running(tmp_path, [ROOMS], keys=keys) as service:
            await drive(service, value)
            assert rejected(service) == 0
