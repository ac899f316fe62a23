"""Motes, a proxy and a scripted cluster with keys, at a real broker where an intruder publishes whatever it likes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from firmware_sim.fleet import Fleet, FleetSettings
from firmware_sim.phenomena.worlds import make_world
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.sealing.keys import make_keys, read_mote_keys, read_part_keys
from protocols.sealing.seals import FleetSeals, PartSeals
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.catalog import Presence, Status, decode_mote_entry
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Control, Packet, RunProgram
from protocols.wire.programs import SLEEP
from proxy.running.link_interface import mqtt_link
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores

S = 1_000_000
KEYS = make_keys(b"k" * 32, ["p", "q"])
DEMAND = StreamDemand(VERSION, "c", "traffic", 1, (QueryDemand("q1", ("speed",), S // 2),))
EMPTY = StreamDemand(VERSION, "c", "traffic", 2, ())


async def until(condition, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is in several parts
            await asyncio.sleep(0.02)


def part_keys(name):
    return read_part_keys(KEYS.files()[name], name)


class Cluster:
    """Acknowledges what it gets, and notes it."""

    def __init__(self, address, folder, *, sealed=True):
        folder.mkdir(exist_ok=True)
        self.link = MqttLink(
            address,
            client_id="cluster",
            subscriptions=[Subscription(topics.batches("p")), Subscription(topics.mote_entry("p", "+"))],
            seals=PartSeals(part_keys("cluster.keys"), folder) if sealed else None,
        )
        self.batches, self.entries, self.refused = {}, [], []
        self.acknowledges = True

    async def receive(self, message):
        if message.refusal:
            self.refused.append(message.refusal)
        elif message.topic == topics.batches("p"):
            batch = decode_batch(message.payload)
            self.batches[batch.sequence] = batch
            if self.acknowledges:
                ack = Ack(VERSION, "p", batch.epoch, "traffic", batch.sequence, (), "c/1")
                asyncio.get_running_loop().create_task(self.send(topics.acks("p"), ack))
        elif message.payload:
            self.entries.append(decode_mote_entry(message.payload))

    async def send(self, topic, frame, *, retain=False):
        await self.link.publish(Message(topic, encode(frame), retain=retain))


@contextlib.asynccontextmanager
async def linked(link, receive):
    running = asyncio.create_task(link.run(receive))
    await link.connected.wait()
    yield
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@contextlib.asynccontextmanager
async def proxy(address, folder, *, sealed=True):
    settings = ProxySettings(name="p", data=str(folder), keys="p.keys" if sealed else "")
    with open_stores(settings.folder, "p", quarantine_entries=1_000) as stores:
        seals = PartSeals(part_keys("proxy-p.keys"), settings.folder) if sealed else None
        service, stop = ProxyService(settings, stores, mqtt_link(address, seals=seals)), asyncio.Event()
        running = asyncio.create_task(service.run(stop))
        await service.link.connected.wait()
        yield service
        stop.set()
        await running


@contextlib.asynccontextmanager
async def motes(address, *, sealed=True, count=2):
    seals = FleetSeals(read_mote_keys(KEYS.files()["motes-p.keys"], "motes")) if sealed else None
    settings = FleetSettings(proxy="p", broker=address, sealed=sealed, seals=seals)
    fleet = Fleet(make_world("traffic", motes=count, seed=1, default_period_us=S), settings)
    running = asyncio.create_task(fleet.run())
    yield fleet
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


class Intruder:
    """Reads everything, and publishes what it likes."""

    def __init__(self, address):
        self.link = MqttLink(address, client_id="intruder", subscriptions=[Subscription("fjord/v1/#")])
        self.seen = []

    async def receive(self, message):
        self.seen.append(message)

    async def publish(self, topic, payload, **options):
        await self.link.publish(Message(topic, payload, **options))

    def of(self, topic):
        return [each.payload for each in self.seen if each.topic == topic]


async def attack(intruder, fleet, epoch, through):
    """Publish what the issue names, and what was seen before, on the topics of the first mote and its proxy."""
    mote = fleet.motes[0].description.name
    packets, controls = topics.packet("p", mote), topics.control("p", mote)

    # forged acknowledgements delete spools
    sealed_acks = intruder.of(topics.acks("p"))
    ack = encode(Ack(VERSION, "p", epoch, "traffic", through, (), "c/1"))
    for payload in (ack, b"\xc1" + bytes(8) + ack + bytes(64), sealed_acks[0], sealed_acks[-1]):
        await intruder.publish(topics.acks("p"), payload)
    # forged demands put motes to sleep
    await intruder.publish(topics.demand("traffic"), encode(EMPTY), retain=True)
    await intruder.publish(topics.demand("traffic"), b"", retain=True)
    # packets of boot 2^62 silence a mote for good, and replayed ones count again
    boot = Packet(VERSION, mote, 2**62, 0, fleet.sample_clock.at(0), 0, 0, 0, ())
    await intruder.publish(packets, encode(boot), qos=0)
    await intruder.publish(packets, b"\xc1" + encode(boot) + b"abcd", qos=0)
    old = intruder.of(packets)[0]
    for _ in range(3):
        await intruder.publish(packets, old, qos=0)
        await intruder.publish(topics.packet("p", fleet.motes[1].description.name), old, qos=0)
    # announcements of before
    before = intruder.of(topics.announcement("p", mote))[0]
    await intruder.publish(topics.announcement("p", mote), before, qos=0)
    # programs, forged and of before
    sleep = encode(Control(VERSION, mote, (RunProgram(SLEEP, 0),)))
    program = intruder.of(controls)[-1]
    for _ in range(60):
        for payload in (sleep, b"\xc1" + sleep + b"abcd", program):
            await intruder.publish(controls, payload, qos=0)
        await asyncio.sleep(0.05)
    # entries of another proxy take motes away, and statuses pretend
    await intruder.publish(topics.proxy_status("q"), encode(Status(VERSION, "q", Presence.ONLINE, "e", 0)), retain=True)
    entry = [each.payload for each in intruder.seen if each.topic == topics.mote_entry("p", mote)][-1]
    await intruder.publish(topics.mote_entry("q", mote), entry, retain=True)
    await intruder.publish(topics.mote_entry("p", mote), b"", retain=True)
    await intruder.publish(topics.cluster_status("c"), encode(Status(VERSION, "c", Presence.ONLINE, "e", 0)))
    await intruder.publish(topics.proxy_claim("p"), encode(Status(VERSION, "p", Presence.ONLINE, "e", 0)))


async def test_an_intruder_changes_nothing_where_keys_are_in_use(broker, tmp_path):
    address = BrokerAddress(broker.host, broker.port)
    cluster, intruder = Cluster(address, tmp_path / "c"), Intruder(address)
    async with (
        linked(cluster.link, cluster.receive),
        linked(intruder.link, intruder.receive),
        proxy(address, tmp_path / "p") as service,
        motes(address) as fleet,
    ):
        count = service.metrics.value
        await cluster.send(topics.demand("traffic"), DEMAND, retain=True)
        await until(lambda: all(mote.sampling for mote in fleet.motes) and len(cluster.batches) > 3)
        await until(lambda: service.stores.spool.batches < 3)
        epoch, newest = service.stores.spool.epoch, max(cluster.batches)
        cluster.acknowledges = False
        kept = newest + 3
        await until(lambda: max(cluster.batches) >= kept)

        await attack(intruder, fleet, epoch, kept)
        newest = max(cluster.batches)
        await until(lambda: max(cluster.batches) > newest + 5)
        assert service.stores.spool.batches >= kept - newest, "batches were deleted that the cluster has not stored"
        assert all(each.sampling and each.boot == fleet.motes[0].boot for each in fleet.motes)
        assert all(service.fleet.has(each.description.name) for each in fleet.motes)
        assert {reason: count("frames_refused", reason) > 0 for reason in ("unsealed", "forged", "replayed")} == {
            "unsealed": True, "forged": True, "replayed": True,
        }  # fmt: skip
        assert count("frames_refused", "forged") >= 6
        assert count("packets_refused", "replayed") == 3
        assert count("announcements_refused", "replayed") == 1
        assert count("acks_refused") == count("claims_refused") == 0
        assert fleet.motes[0].counters.control_refused >= 100
        quarantined = {each.reason for each in service.stores.quarantine.frames()}
        assert {"unsealed", "forged", "replayed"} <= quarantined
        assert "unsealed" in cluster.refused
        cluster.acknowledges = True
        await until(lambda: service.stores.spool.batches < 3)


async def test_what_was_spooled_before_keys_is_accepted_on_its_own_proxy(broker, tmp_path):
    address = BrokerAddress(broker.host, broker.port)
    keyless = Cluster(address, tmp_path / "c", sealed=False)
    keyless.acknowledges = False
    async with linked(keyless.link, keyless.receive), proxy(address, tmp_path / "p", sealed=False) as service:
        async with motes(address, sealed=False):
            await keyless.send(topics.demand("traffic"), DEMAND, retain=True)
            await until(lambda: service.stores.spool.batches > 4)
        spooled = service.stores.spool.batches
    keyed = Cluster(address, tmp_path / "c")
    async with linked(keyed.link, keyed.receive), proxy(address, tmp_path / "p") as service:
        await until(lambda: len(keyed.batches) >= spooled and service.stores.spool.batches == 0)
    assert {sequence: keyed.batches[sequence] for sequence in keyless.batches} == keyless.batches


@pytest.mark.parametrize("sealed", ["motes", "proxy"])
async def test_motes_and_proxy_of_which_only_one_has_keys_do_not_understand_each_other(broker, tmp_path, sealed):
    address = BrokerAddress(broker.host, broker.port)
    async with (
        proxy(address, tmp_path / "p", sealed=sealed == "proxy") as service,
        motes(address, sealed=sealed == "motes"),
    ):
        reason = "unsealed" if sealed == "proxy" else "garbled"
        await until(lambda: service.metrics.value("frames_refused", reason) > 2)
        assert not service.fleet.motes
