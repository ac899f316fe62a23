"""Devices of other makers through the whole proxy: over a fake link, and over a broker.

time      0           1                2                        3
device    {"t": 20}                    {"t": 21}
driver    announced, listens           sample
demand                t every 10 s                              no demand
to it                 its program, at once                      sleep, at once
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocols.mqtt.link import BrokerAddress, Message
from protocols.wire import topics
from protocols.wire.batches import NO_NEIGHBOUR_US, decode_batch
from protocols.wire.catalog import MoteState, decode_mote_entry
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import AdjustClock
from protocols.wire.programs import program_number, publishing_program
from proxy.command import app
from proxy.drivers.driver import NOTHING, Capabilities, DriverOutput, Publication
from proxy.drivers.settings import read_drivers
from proxy.errors import ConfigurationError
from proxy.running.driver_exchange import MOST_CONTROLS, MOST_WAITING, request
from proxy.running.link_interface import mqtt_link
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores
from tests.proxy.test_service import FakeLink, Field, published_batches, until

S = 1_000_000
RECORDED = Path(__file__).parent / "drivers" / "recorded"
SONOFF = "0x00124b0025033adc"
REQUESTS = "zigbee2mqtt/bridge/request/device/configure_reporting"
RESPONSES = "zigbee2mqtt/bridge/response/device/configure_reporting"
JSON_DRIVER = {
    "kind": "json", "name": "rooms", "topic": "rooms/{mote}", "stream": "climate", "minimum_period": "1ms",
    "field": [{"name": "t", "path": "t", "type": "real"}],
}  # fmt: skip


@contextlib.asynccontextmanager
async def running(tmp_path, drivers, make_link=FakeLink):
    settings = ProxySettings(
        name="p", data=str(tmp_path / "data"), flush_interval=10_000, entry_interval=1, counters_interval=1
    )
    if isinstance(drivers, list) and isinstance(drivers[0], dict):
        drivers = read_drivers({"driver": drivers}, "test")
    with open_stores(settings.folder, settings.name, quarantine_entries=100) as stores:
        service = ProxyService(settings, stores, make_link, drivers=drivers)
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        yield service
        stop.set()
        await asyncio.wait_for(task, 10)


def demand(stream, *fields, period_us=None):
    queries = (QueryDemand("q", fields, period_us),) if fields else ()
    return StreamDemand(VERSION, "c", stream, 1, queries)


async def send(service, topic, content, *, retain=False):
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    await service.link.take([Message(topic, payload, retain=retain)])


def rows(service, column="t"):
    return [
        value
        for batch in published_batches(service.link)
        for each in batch.columns
        if each.name == column
        for value in each.values(batch.rows)
    ]


async def test_values_of_a_json_device_arrive_in_batches_and_nothing_is_sent_to_it(tmp_path):
    async with running(tmp_path, [JSON_DRIVER]) as service:
        subscribed = [each.filter for each in service.link.client_session.devices.subscriptions]
        assert subscribed == [topics.proxy_backlog("p", "+"), "rooms/+"]
        assert not [each for each in service.link.client_session.subscriptions if each.filter == "rooms/+"]
        await send(service, "rooms/kitchen", {"t": 19.0})
        await send(service, topics.demand("climate"), encode(demand("climate", "t", period_us=1_000)), retain=True)
        await service.merging.settled()
        mote = service.fleet.motes["kitchen"]
        assert mote.state is MoteState.SAMPLING, "it runs its program at once, not in a window"
        assert mote.running == program_number(mote.desired)
        await asyncio.sleep(0.002)
        await send(service, "rooms/kitchen", {"t": 20.5})
        await until(lambda: rows(service))
        assert rows(service) == [20.5]
        await send(service, topics.demand("climate"), encode(demand("climate")), retain=True)
        await service.merging.settled()
        assert mote.state is MoteState.SLEEPING
        assert service.metrics.value("controls", "run_program") == 0
    assert not [each for each in service.link.published if "/control" in each.topic or each.topic.startswith("rooms")]


async def test_a_device_that_appears_after_the_demand_begins_with_its_first_message(tmp_path):
    async with running(tmp_path, [JSON_DRIVER]) as service:
        await send(service, topics.demand("climate"), encode(demand("climate", "t", period_us=1_000)), retain=True)
        await send(service, "rooms/kitchen", {"t": 19.0})
        assert service.fleet.motes["kitchen"].state is MoteState.SAMPLING


async def test_a_bad_message_is_quarantined_without_effect_on_others(tmp_path):
    async with running(tmp_path, [JSON_DRIVER]) as service:
        await send(service, topics.demand("climate"), encode(demand("climate", "t", period_us=1_000)), retain=True)
        for content in (b"{", {"x": 1}, {"t": "warm"}, b"[" * 5_000):
            await send(service, "rooms/hall", content)
        await send(service, "rooms/hall", {"t": 1.0}, retain=True)
        await send(service, "rooms/kitchen", {"t": 19.0})
        await asyncio.sleep(0.002)
        await send(service, "rooms/kitchen", {"t": 20.5})
        await until(lambda: 20.5 in rows(service))
        reasons = ("garbled", "missing", "type", "depth", "retained")
        counts = {reason: service.metrics.value("frames_refused", reason) for reason in reasons}
    assert sum(counts.values()) == 5
    assert min(counts["missing"], counts["type"], counts["retained"]) == 1
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        kept = stores.quarantine.frames()
    assert {each.topic for each in kept} == {"rooms/hall"}


class Broken:
    """A driver with a fault of its own."""

    name, subscriptions = "broken", ("broken/#", "rooms/+")

    def finish(self, **_times):
        return NOTHING

    def hold_promises(self, *, held):
        self.held = held

    def waiting(self, _mote):
        return None

    def received(self, *_arguments, **_times):
        raise ZeroDivisionError

    def time_passed(self, **_times):
        raise KeyError("no")


async def test_a_failing_driver_does_not_affect_others(tmp_path, frames):
    good = read_drivers({"driver": [JSON_DRIVER]}, "test")
    async with running(tmp_path, [Broken(), *good]) as service:
        await send(service, "rooms/kitchen", {"t": 19.0})
        service.devices.time_passed()
        await send(service, topics.announcement("p", "m1"), encode(frames.announcement()))
        assert set(service.fleet.motes) == {"kitchen", "m1"}
        assert service.metrics.value("frames_refused", "driver_failed") >= 2
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        kept = [(each.topic, each.reason) for each in stores.quarantine.frames()]
    assert {("rooms/kitchen", "driver_failed"), ("drivers/broken", "driver_failed")} <= set(kept)


async def test_a_name_belongs_to_its_first_driver(tmp_path, frames):
    other = JSON_DRIVER | {"name": "cellars", "topic": "cellars/{mote}"}
    async with running(tmp_path, [JSON_DRIVER, other]) as service:
        await send(service, "rooms/one", {"t": 19.0})
        await send(service, "cellars/one", {"t": 8.0})
        await send(service, topics.announcement("p", "one"), encode(frames.announcement("one")))
        await send(service, topics.packet("p", "one"), encode(frames.packet(0, mote="one")))
        assert dict(service.devices._registry.motes)["one"].name == "rooms"
        rejected = service.metrics.value("frames_refused", "mote")
        assert rejected == 3
        await send(service, topics.announcement("p", "two"), encode(frames.announcement("two")))
        await send(service, "rooms/two", {"t": 19.0})
        assert service.fleet.motes["two"].announcement.boot == 1
        assert service.metrics.value("frames_refused", "mote") == rejected + 1


async def test_topics_of_fjord_are_not_for_drivers(tmp_path, frames):
    greedy = JSON_DRIVER | {"topic": "fjord/v1/motes/p/{mote}/packet"}
    async with running(tmp_path, [greedy]) as service:
        await send(service, topics.announcement("p", "m1"), encode(frames.announcement()))
        await send(service, topics.packet("p", "m1"), encode(frames.packet(0)))
        assert service.metrics.value("packets") == 1
        assert service.metrics.value("frames_refused") == 0


async def test_a_restarted_proxy_drives_its_devices_again(tmp_path):
    for value in (20.5, 21.5):
        async with running(tmp_path, [JSON_DRIVER]) as service:
            await send(service, topics.demand("climate"), encode(demand("climate", "t", period_us=1_000)), retain=True)
            await send(service, "rooms/kitchen", {"t": 19.0})
            await asyncio.sleep(0.002)
            await send(service, "rooms/kitchen", {"t": value})
            await until(lambda value=value: value in rows(service))
            assert service.metrics.value("packets_refused", "replayed") == 0


def test_the_clock_of_a_device_is_not_adjusted():
    assert request(Broken(), "kitchen", AdjustClock(5)) is None


class Stubborn(Broken):
    """Answers each control with a packet that opens another listen window, and changes nothing."""

    name = "stubborn"

    def __init__(self, frames):
        self.frames = frames
        self.sequence = 0
        self.requests = 0

    def packet(self):
        self.sequence += 1
        return self.frames.packet(self.sequence, mote="m1", boot=0, listen=S)

    def received(self, *_arguments, **_times):
        return DriverOutput((self.frames.announcement(boot=0), self.packet()))

    def run(self, *_arguments, **_times):
        self.requests += 1
        return DriverOutput((self.packet(),))

    def capabilities_of(self, _mote):
        return Capabilities()

    def owns(self, mote):
        return mote == "m1"

    def device_of(self, mote):
        return mote

    def state_of(self, _mote):
        return b""

    def counts_of(self, _mote):
        return {}

    def trouble_of(self, _mote):
        return ""

    def restore(self, _devices, **_times):
        return NOTHING

    def time_passed(self, **_times):
        return NOTHING


async def test_controls_for_an_unresponsive_driver_are_bounded(tmp_path, frames):
    driver = Stubborn(frames)
    async with running(tmp_path, [driver]) as service:
        await send(service, topics.demand("traffic"), encode(frames.demand(("q", ["speed"], None))), retain=True)
        await send(service, "rooms/m1", {})
        assert driver.requests == MOST_CONTROLS
        assert service.metrics.value("controls_unsent") == 1
        await send(service, "rooms/m1", {})
        assert driver.requests == 2 * MOST_CONTROLS
        driver.received = lambda *_, **__: DriverOutput((driver.packet(),))
        await send(service, "rooms/m1", {})
        assert driver.requests == 3 * MOST_CONTROLS, "a packet alone opens a window, too"
        assert service.metrics.value("controls_unsent") == 3


def entry_of(service, mote):
    return decode_mote_entry(service.link.on(topics.mote_entry("p", mote))[-1].payload)


class Publishing(Stubborn):
    """Publishes a tuple for each message."""

    name = "publishing"

    def capabilities_of(self, _mote):
        return Capabilities(publishes=True, mains=True)

    def received(self, *_arguments, received_us, **_times):
        number = program_number(publishing_program(self.frames.TRAFFIC))
        self.sequence += 1
        sample = (received_us, 1.0, self.sequence, "x")
        packet = self.frames.packet(self.sequence, sample, boot=0, clock=received_us, listen=S, program=number)
        return DriverOutput((self.frames.announcement(boot=0), packet))


async def test_what_a_device_publishes_is_stored_once_a_query_reads_it(tmp_path, frames):
    driver = Publishing(frames)
    async with running(tmp_path, [driver]) as service:
        for _ in range(2):
            await send(service, "rooms/m1", {})
        assert service.metrics.value("samples_not_demanded") == 2
        assert service.metrics.value("device_messages_not_demanded", "publishing") == 2
        await send(service, topics.demand("traffic"), encode(frames.demand(("q", ["speed"], None))), retain=True)
        await service.merging.settled()
        for _ in range(2):
            await send(service, "rooms/m1", {})
        await until(lambda: rows(service, "flow") == [3, 4])
        first, second = rows(service, "fjord_previous_us")
        assert first == NO_NEIGHBOUR_US
        assert [second] == rows(service, "fjord_start_us")[:1]
        assert driver.requests == 0
        await until(lambda: service.link.on(topics.mote_entry("p", "m1")))
        await until(lambda: entry_of(service, "m1").state is MoteState.SAMPLING)
        entry = entry_of(service, "m1")
        assert (entry.driver, entry.publishes, entry.mains, entry.counts) == (
            *("publishing", True, True, {"not_demanded": 2}),
        )
        last = rows(service, "fjord_start_us")[-1]
    async with running(tmp_path, [driver]) as service:
        await send(service, "rooms/m1", {})
        await until(lambda: rows(service, "flow")[-1:] == [5])
        assert rows(service, "fjord_previous_us")[-1] == last, "a restart of the proxy forgets no stamps"


class Talkative(Broken):
    """Sends many messages."""

    def received(self, *_arguments, **_times):
        return DriverOutput(publications=(Publication("x", b""),) * (MOST_WAITING + 7))

    def time_passed(self, **_times):
        return NOTHING


async def test_messages_to_devices_are_bounded_and_late_ones_given_up(tmp_path):
    async with running(tmp_path, [Talkative()]) as service:
        await send(service, "broken/x", {})
        assert service.metrics.value("controls_unsent") == 7
        await until(lambda: service.metrics.value("device_messages") == MOST_WAITING)
        service.link.fails = True
        output = DriverOutput(publications=(Publication("x", b""), Publication("y", b"", before_radio_us=0)))
        service.devices._registry.drivers[0].received = lambda *_, **__: output
        await send(service, "broken/x", {})
        await until(lambda: service.metrics.value("controls_unsent") == 9)


def test_a_drivers_file_that_is_not_there_is_an_error_before_anything_begins(tmp_path):
    result = CliRunner().invoke(app, ["--data", str(tmp_path / "d"), "--drivers", str(tmp_path / "none.toml")])
    assert isinstance(result.exception, ConfigurationError)
    assert not (tmp_path / "d").exists()


def listed(*exposed, settable):
    """The list of a bridge with one device, whose reporting can be set if its endpoint has the clusters."""
    units = {"temperature": "°C", "humidity": "%", "count": ""}
    exposes = [{"type": "numeric", "property": each, "unit": units[each], "access": 1} for each in exposed]
    clusters = ["msTemperatureMeasurement", "msRelativeHumidity"] if settable else []
    return [
        {
            "ieee_address": "0x1",
            "friendly_name": "t1",
            "definition": {"model": "M1", "vendor": "V", "exposes": exposes},
            "endpoints": {"1": {"clusters": {"input": clusters, "output": []}}},
        }
    ]


@pytest.mark.parametrize(
    ("exposed", "settable", "then_exposed", "then_settable"),
    [
        (("temperature",), False, ("temperature",), True),
        (("temperature",), True, ("temperature",), False),
        (("temperature", "count"), True, ("count",), True),  # nothing that is left can be set
        (("temperature", "humidity"), True, ("temperature",), True),
        (("count",), True, ("count", "temperature"), True),
        (("temperature",), True, ("temperature", "count"), True),
        (("temperature",), True, ("temperature", "count"), False),
        (("temperature",), False, ("temperature", "count"), True),
    ],
)
async def test_a_device_that_turns_loses_no_message(tmp_path, exposed, settable, then_exposed, then_settable):
    """One list of the bridge makes of a device that is set one that publishes freely, or the other way round."""
    stream, answered = "zigbee2mqtt_m1", 0

    def requests():
        return [json.loads(each.payload) for each in service.link.published if each.topic == REQUESTS]

    async def turn(*named, settable):
        nonlocal answered
        await send(service, "zigbee2mqtt/bridge/devices", listed(*named, settable=settable), retain=True)
        if not demanded:
            return
        if service.fleet.motes["t1"].state is MoteState.CHANGING:
            await until(lambda: len(requests()) > answered)
        for each in requests()[answered:]:
            await send(service, RESPONSES, {"status": "ok", "data": {}, "transaction": each["transaction"]})
            answered += 1

    async def publish(*named):
        for value in range(5):
            await asyncio.sleep(0.002)
            await send(service, "zigbee2mqtt/t1", dict.fromkeys(named, value))

    demanded = False
    async with running(tmp_path, [{"kind": "zigbee2mqtt"}]) as service:
        await turn(*exposed, settable=settable)
        wanted = demand(stream, exposed[0], period_us=1_000)
        await send(service, topics.demand(stream), encode(wanted), retain=True)
        await service.merging.settled()
        demanded = True
        await turn(*exposed, settable=settable)
        mote = service.fleet.motes["t1"]
        assert mote.state is MoteState.SAMPLING
        boot = mote.numbers.boot
        await publish(*exposed)
        await turn(*then_exposed, settable=then_settable)
        await publish(*then_exposed)
        assert mote.state is MoteState.SAMPLING
        can_be_set = then_settable and "temperature" in then_exposed
        assert mote.publishes is not can_be_set
        if not can_be_set:
            assert mote.running == program_number(publishing_program(mote.announcement.stream))
        else:
            assert mote.running == program_number(mote.desired)
        assert mote.desired.sleeping is False
        assert (mote.numbers.boot, mote.counters.packets_lost) == (boot, 0)
        assert service.metrics.value("samples") == 10
        assert service.metrics.value("samples_not_demanded") == 0
        assert mote.counters.packets_rejected == 0


@pytest.mark.system
async def test_a_zigbee_device_is_configured_through_its_bridge(tmp_path, broker):
    address = BrokerAddress(broker.host, broker.port)
    field = Field(address)
    field.link._subscriptions.append(type(field.link._subscriptions[0])("zigbee2mqtt/bridge/request/#"))
    keeping = asyncio.create_task(field.link.run(field.keep))
    await asyncio.wait_for(field.link.connected.wait(), 10)

    async def publish(topic, content, *, retain=False):
        await field.link.publish(Message(topic, json.dumps(content).encode(), retain=retain))

    await publish("zigbee2mqtt/bridge/devices", json.loads((RECORDED / "zigbee2mqtt_devices.json").read_text()),
                  retain=True)  # fmt: skip
    drivers = [{"kind": "zigbee2mqtt"}, JSON_DRIVER]
    async with running(tmp_path, drivers, mqtt_link(address)) as service:
        await until(lambda: SONOFF in service.fleet.motes)
        wanted = demand("zigbee2mqtt_snzb_02", "temperature", "humidity", period_us=S)
        await field.send(topics.demand("zigbee2mqtt_snzb_02"), wanted, retain=True)
        await until(lambda: sum(each.topic == REQUESTS for each in field.received) >= 2)
        requests = [json.loads(each.payload) for each in field.received if each.topic == REQUESTS]
        assert {each["attribute"] for each in requests} == {"measuredValue"}
        assert {each["cluster"] for each in requests} == {"msTemperatureMeasurement", "msRelativeHumidity"}
        mote = service.fleet.motes[SONOFF]
        assert mote.state is MoteState.CHANGING, "the bridge has not answered"

        await publish("rooms/kitchen", "nonsense")
        await publish(RESPONSES, "nonsense")
        ids = {each["id"]: each for each in requests if each["id"] == SONOFF}
        assert ids
        for each in requests:
            await publish(RESPONSES, {"data": {}, "status": "ok", "transaction": each["transaction"]})
        await until(lambda: mote.state is MoteState.SAMPLING)

        name = next(
            each["friendly_name"]
            for each in json.loads((RECORDED / "zigbee2mqtt_devices.json").read_text())
            if each["ieee_address"] == SONOFF
        )
        state = {"temperature": 21.25, "humidity": 55.5, "battery": 80, "voltage": 3000, "linkquality": 100}
        for _ in range(3):
            await publish(f"zigbee2mqtt/{name}", state)
            await asyncio.sleep(1.05)
        batches = lambda: [each for each in field.frames(topics.batches("p"), decode_batch) if each.rows]  # noqa: E731
        await until(batches)
        columns = {each.name: each.values(batches()[0].rows) for each in batches()[0].columns}
        assert columns["temperature"] == [21.25]
        assert columns["humidity"] == [55.5]
        entry = lambda: field.frames(topics.mote_entry("p", SONOFF), decode_mote_entry)[-1]  # noqa: E731
        await until(lambda: entry().health is not None and entry().health.battery == 0.8)
        assert service.metrics.value("device_messages") == len(requests)
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping


async def test_messages_to_devices_wait_for_a_connection(tmp_path):
    async with running(tmp_path, [JSON_DRIVER]) as service:
        (driver,) = service.devices._registry.drivers
        service.link.connected.clear()
        service.devices._note(driver, DriverOutput(publications=(Publication("rooms/set", b"1"),)), None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not [each for each in service.link.published if each.topic == "rooms/set"]
        service.link.connected.set()
        await until(lambda: [each for each in service.link.published if each.topic == "rooms/set"])
        assert service.metrics.value("controls_unsent") == 0
