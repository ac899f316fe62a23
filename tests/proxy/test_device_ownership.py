"""Which driver owns a device, and what a restart of the proxy keeps of it.

run       1                                  2
driver    announced, boot 1    rows          announced, boot 2, a promise | first message: a row at once
catalog   kitchen: rooms, 1                  kitchen: rooms, 2
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter

import pytest
from msgspec import structs

from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram, program_number
from proxy.drivers.driver import NOTHING, Capabilities, DriverOutput
from proxy.drivers.driver_registry import MOST_STRANGERS, Before, DrivenMote, DriverRegistry, pattern_of
from proxy.drivers.settings import read_drivers
from proxy.records.waiting_tuples import MotePosition
from proxy.running.frame_intake import FrameIntake
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores
from tests.proxy.test_service import FakeLink, published_batches, until

SECOND = 1_000_000
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


def catalog_of(tmp_path):
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        return {each.mote: each for each in stores.catalog.driven()}


def frames_of(service):
    """Frames that drivers deliver from now on, in their order."""
    found, receive = [], service.intake.receive

    def noted(frame, message, **times):
        found.append(frame)
        return receive(frame, message, **times)

    service.intake.receive = noted
    return found


async def test_each_start_gives_a_device_a_boot_of_its_own(tmp_path):
    for boot in (1, 2, 3):
        async with running(tmp_path, [ROOMS]) as service:
            await send(service, "rooms/kitchen", {"t": 19.0})
            assert service.fleet.motes["kitchen"].announcement.boot == boot
            assert service.metrics.value("mote_reboots") == 0, "the proxy began anew, not the device"
        assert catalog_of(tmp_path) == {"kitchen": DrivenMote("kitchen", "rooms", "kitchen", boot)}


async def test_one_announcement_precedes_the_first_packet_and_no_other_follows(tmp_path, monkeypatch):
    async with running(tmp_path, [ROOMS]) as service:
        found = frames_of(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
        await send(service, "rooms/kitchen", {"t": 20.0})
        assert [isinstance(each, Announcement) for each in found] == [True] + [False] * (len(found) - 1)
    found, receive = [], FrameIntake.receive

    def noted(intake, frame, message, **times):
        found.append(frame)
        return receive(intake, frame, message, **times)

    monkeypatch.setattr(FrameIntake, "receive", noted)
    async with running(tmp_path, [ROOMS]) as service:
        assert [isinstance(each, Announcement) for each in found[:2]] == [True, False]
        assert {each.boot for each in found} == {2}
        await send(service, "rooms/kitchen", {"t": 19.0})
        assert sum(isinstance(each, Announcement) for each in found) == 1


async def test_a_restored_device_gives_its_stream_time_before_any_message(tmp_path):
    async with running(tmp_path, [ROOMS]) as service:
        await demand_temperatures(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
        await drive(service, 20.0)
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        (before,) = stores.spool.progress()
    async with running(tmp_path, [ROOMS]) as service:
        stream = service.fleet.streams["climate"]
        await until(lambda: (stream.watermark_us or 0) > before.watermark_us)
        assert service.metrics.value("device_messages_received") == 0


def as_earlier_versions_kept_it(tmp_path, boot=0, sequence=895):
    """Leave a catalog and positions as earlier versions did, which announced all driven devices as of boot 0."""
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        announced = [structs.replace(each, boot=boot) for each in stores.catalog.announcements()]
        stores.catalog.remember(announced)
        stores.spool.forget_positions(["kitchen"])
        stores.spool.append([], positions=[MotePosition("kitchen", boot, sequence, 1)])
        assert stores.catalog.driven() == []


async def test_with_keys_a_device_of_an_earlier_version_is_its_drivers_that_meets_it(tmp_path):
    async with running(tmp_path, [ROOMS], keys=True) as service:
        await demand_temperatures(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
    as_earlier_versions_kept_it(tmp_path)
    async with running(tmp_path, [ROOMS], keys=True) as service:
        await drive(service, 19.0, 20.0)
        assert rejected(service) == 0
    assert catalog_of(tmp_path)["kitchen"].boot == 1


async def test_with_keys_only_motes_without_a_driver_keep_their_counters(tmp_path, frames):
    async with running(tmp_path, [ROOMS]) as service:
        await send(service, "rooms/kitchen", {"t": 19.0})
        await send(service, topics.announcement("p", "m1"), encode(frames.announcement()))
    async with running(tmp_path, [ROOMS], keys=True) as service:
        strict = {name: mote.numbers._strict for name, mote in service.fleet.motes.items()}
        assert strict == {"kitchen": False, "m1": True}


CELLARS = ROOMS | {"name": "cellars", "topic": "cellars/{mote}"}


def logged(capsys, text):
    """Lines of the log with a text, since the last call."""
    return [line for line in capsys.readouterr().out.splitlines() if text in line]


async def test_a_name_stays_with_its_driver_after_a_restart(tmp_path, frames):
    async with running(tmp_path, [ROOMS, CELLARS]) as service:
        await send(service, "cellars/one", {"t": 8.0})
    async with running(tmp_path, [ROOMS, CELLARS]) as service:
        for value in (19.0, 19.5, 20.0):  # the first leads to an announcement, further ones to a packet alone
            await send(service, "rooms/one", {"t": value})
        assert service.metrics.value("frames_refused", "mote") == 3
        assert service.metrics.value("packets_refused") == 0, "none of its packets came as the other device's"
        await send(service, topics.announcement("p", "one"), encode(frames.announcement("one", boot=7)))
        assert service.devices._registry.driver_of("one").name == "cellars"
        assert service.metrics.value("frames_refused", "mote") == 4
    assert catalog_of(tmp_path)["one"].driver == "cellars"


async def test_a_name_of_a_native_mote_is_no_drivers(tmp_path, frames):
    async with running(tmp_path, [ROOMS]) as service:
        await send(service, topics.announcement("p", "two"), encode(frames.announcement("two")))
    async with running(tmp_path, [ROOMS]) as service:
        await send(service, "rooms/two", {"t": 19.0})
        assert service.fleet.motes["two"].announcement.boot == 1
        assert service.metrics.value("frames_refused", "mote") == 1
    assert catalog_of(tmp_path) == {}


async def test_devices_of_a_driver_that_is_not_configured_are_kept_and_named_once(tmp_path, capsys):
    async with running(tmp_path, [ROOMS]) as service:
        for name in ("one", "two"):
            await send(service, f"rooms/{name}", {"t": 19.0})
    logged(capsys, "")
    async with running(tmp_path, [CELLARS]) as service:
        assert "one" not in service.devices
    (line,) = logged(capsys, "not driven")
    assert "rooms" in line
    assert "2" in line
    assert {each.driver for each in catalog_of(tmp_path).values()} == {"rooms"}
    async with running(tmp_path, [ROOMS]) as service:
        assert "one" in service.devices


@pytest.mark.parametrize("keys", [False, True])
async def test_a_renamed_driver_takes_its_devices_over(tmp_path, keys):
    async with running(tmp_path, [ROOMS], keys=keys) as service:
        await demand_temperatures(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
        await drive(service, 20.0)
    for boot in (1, 2):
        async with running(tmp_path, [ROOMS | {"name": "flat"}], keys=keys) as service:
            await drive(service, 21.0, 22.0 + boot)
            assert rejected(service) == 0
        assert catalog_of(tmp_path)["kitchen"].driver == "flat"


async def test_a_native_mote_may_have_the_name_of_a_device_that_no_driver_has_any_more(tmp_path, frames):
    async with running(tmp_path, [ROOMS]) as service:
        await send(service, "rooms/one", {"t": 19.0})
    async with running(tmp_path, []) as service:
        await send(service, topics.announcement("p", "one"), encode(frames.announcement("one", boot=7)))
        assert service.fleet.motes["one"].announcement.boot == 7
    assert catalog_of(tmp_path) == {}
    async with running(tmp_path, [ROOMS]) as service:
        await send(service, "rooms/one", {"t": 19.0})
        assert "one" not in service.devices


async def test_a_clash_of_names_is_named_counted_and_shown(tmp_path, capsys):
    async with running(tmp_path, [ROOMS, CELLARS]) as service:
        await send(service, "rooms/one", {"t": 19.0})
        await send(service, "cellars/one", {"t": 8.0})
        await send(service, "cellars/one", {"t": 9.0})
        for _ in range(4):
            service.devices.time_passed()
        registry, count = service.devices._registry, service.metrics.value
        refused = count("frames_refused", "mote")
        assert refused == count("device_messages_refused", "cellars") >= 1
        assert count("device_messages_refused", "rooms") == 0
        trouble = "another device `cellars/one` of driver 'cellars' has this name: give it a prefix"
        assert registry.trouble_of("one") == trouble
        assert registry.counts_of("one") == {"mote": refused}
        assert registry.trouble_of("two") == ""
        (line,) = logged(capsys, "two devices have the same name")
        assert "error" in line
        assert "prefix" in line
    with open_stores(tmp_path / "data", "p", quarantine_entries=100) as stores:
        assert [each.topic for each in stores.quarantine.frames()] == ["cellars/one"] * refused


async def test_a_prefix_ends_the_clash(tmp_path):
    async with running(tmp_path, [ROOMS, CELLARS | {"prefix": "cellar-"}]) as service:
        await demand_temperatures(service)
        for topic in ("rooms/one", "cellars/one") * 2:
            await asyncio.sleep(0.002)
            await send(service, topic, {"t": 8.0})
        await until(lambda: len(rows(service)) >= 2)
        assert {name for name, _ in service.devices._registry.motes} == {"one", "cellar-one"}
        assert rejected(service) == 0


def test_clashes_and_rejections_are_remembered_for_a_bounded_number_of_names():
    (rooms,) = read_drivers({"driver": [ROOMS]}, "test")
    registry = DriverRegistry([rooms])
    registry.claim(rooms, "kitchen", None)
    assert [registry.clashed(rooms, "m0", topic) for topic in ("x", "y", "x")] == [True, False, False]
    for number in range(MOST_STRANGERS + 10):
        registry.clashed(rooms, f"m{number}", "x" * 1_000)
        registry.rejected(f"m{number}", "garbled")
    assert registry.clashed(rooms, "new", "x") is False
    registry.rejected("kitchen", "late")
    assert registry.counts_of("kitchen") == {"late": 1}
    assert registry.counts_of("m0") == {"garbled": 1}
    assert registry.counts_of(f"m{MOST_STRANGERS + 1}") == {}
    assert len(registry._clashes) == MOST_STRANGERS
    assert all(len(registry.trouble_of(mote)) <= 512 for mote in registry._clashes)


async def test_each_message_of_a_device_is_accounted_for(tmp_path):
    async with running(tmp_path, [ROOMS, CELLARS]) as service:
        await demand_temperatures(service)
        await send(service, "rooms/kitchen", {"t": 19.0})
        for content in (b"{", {"x": 1}, {"t": "warm"}, b"[" * 5_000):
            await send(service, "rooms/kitchen", content)
        await send(service, "rooms/kitchen", {"t": 1.0}, retain=True)
        await send(service, "cellars/kitchen", {"t": 1.0})
        await drive(service, 20.0, 21.0)
        count = service.metrics.value
        for driver, received, refused in (("rooms", 8, 5), ("cellars", 1, 1)):
            outcomes = ("used", "refused", "not_demanded", "without_tuple")
            assert sum(count(f"device_messages_{each}", driver) for each in outcomes) == received
            assert count("device_messages_received", driver) == received
            assert count("device_messages_refused", driver) == refused
            assert count("device_messages_used", driver) == count("device_tuples", driver)
        assert count("device_tuples", "rooms") == len(rows(service))
        counts = service.devices._registry.counts_of("kitchen")
        assert (counts["missing"], counts["type"], counts["mote"], counts["garbled"] + counts["depth"]) == (1, 1, 1, 2)


SPEED = SamplingProgram(("speed",), SECOND)


class Keeping:
    """A driver that keeps the number of messages of each device."""

    name, subscriptions = "keeping", ("rooms/+",)

    def __init__(self, frames):
        self.frames = frames
        self.numbers = Counter()
        self.messages = Counter()
        self.boots = {}
        self.known = []

    def packet(self, mote, *samples, now=0):
        self.numbers[mote] += 1
        number = program_number(SPEED) if samples else 0
        return self.frames.packet(
            self.numbers[mote] - 1, *samples, mote=mote, boot=self.boots.get(mote, 1), clock=now, program=number
        )

    def received(self, topic, _payload, *, radio_us, received_us, retained=False):
        mote = topic.removeprefix("rooms/")
        new = mote not in self.messages
        self.messages[mote] += 1
        at = received_us // SECOND * SECOND
        announced = (self.frames.announcement(mote, boot=self.boots.get(mote, 1), minimum=1),) if new else ()
        first = (self.packet(mote, now=received_us),) if new else ()
        return DriverOutput((*announced, *first, self.packet(mote, (at, 1.0, None, None), now=received_us)))

    def restore(self, devices, **_times):
        self.known += devices
        for each in devices:
            self.boots[each.mote] = each.boot
            self.messages[each.mote] = int(each.state)
        return DriverOutput(tuple(each.announcement for each in devices))

    def run(self, *_arguments, **_times):
        return NOTHING

    def time_passed(self, **_times):
        return NOTHING

    finish = time_passed

    def hold_promises(self, *, held):
        self.held = held

    def waiting(self, _mote):
        return None

    def capabilities_of(self, _mote):
        return Capabilities()

    def owns(self, mote):
        return mote in self.messages

    def device_of(self, mote):
        return f"the {mote}"

    def state_of(self, mote):
        return str(self.messages[mote]).encode()


async def test_what_a_driver_keeps_is_stored_with_the_tuples_that_led_to_it(tmp_path, frames):
    driver = Keeping(frames)
    async with running(tmp_path, [driver]) as service:
        wanted = frames.demand(("q", ["speed"], SECOND))
        await send(service, topics.demand("traffic"), encode(wanted), retain=True)
        await service.merging.settled()
        for mote in ("m1", "m2", "m1"):
            await send(service, f"rooms/{mote}", {})
        await until(lambda: service.stores.spool.states() == {"m1": b"2", "m2": b"1"})
        kept, append = [], service.stores.spool.append
        service.stores.spool.append = lambda *given, **also: [kept.append(also["states"]), append(*given, **also)][1]
        await asyncio.sleep(1.0 - time.time() % 1)
        await send(service, "rooms/m2", {})
        await until(lambda: service.stores.spool.states()["m2"] == b"2")
        assert [each for each in kept if each] == [{"m2": b"2"}], "only what has changed is written"
    again = Keeping(frames)
    async with running(tmp_path, [again]):
        found = {each.mote: (each.device, each.boot, each.state) for each in again.known}
        assert found == {"m1": ("the m1", 2, b"2"), "m2": ("the m2", 2, b"2")}
        assert {each.low_watermark_us for each in again.known} != {None}


async def test_a_boot_is_above_that_of_every_stored_frame(frames):
    driver = Keeping(frames)
    for stored in ((4, 1, 1), (1, 4, 1), (1, 1, 4)):
        owned, announced, position = stored
        before = Before(
            (DrivenMote("m1", "keeping", "the m1", owned), DrivenMote("m9", "other", "", 1)),
            (frames.announcement("m1", boot=announced), frames.announcement("m9")),
            {"m1": position},
        )
        free, known = DriverRegistry([driver], before).known_devices(driver, before)
        assert (free.mote, free.device, known.mote, known.boot) == ("m9", "", "m1", 5)


async def test_a_driver_with_a_fault_costs_its_own_answers_only(tmp_path, frames):
    class Broken(Keeping):
        def state_of(self, _mote):
            raise ZeroDivisionError

        device_of = counts_of = trouble_of = state_of

    async with running(tmp_path, [Broken(frames)]) as service:
        await send(service, "rooms/m1", {})
        registry = service.devices._registry
        assert registry.counts_of("m1") == {"unknown_program": 1}
        assert registry.trouble_of("m1") == ""
        assert registry.changed_states(["m1"]) == {}
    assert catalog_of(tmp_path) == {"m1": DrivenMote("m1", "keeping", "", 1)}


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [("a/+", "a/b", True), ("a/+", "a/b/c", False), ("a/+", "a", False), ("a/#", "a/b/c", True), ("a/#", "a", True),
     ("#", "a/b", True), ("a.b/+/c", "a.b//c", True), ("a.b/+", "axb/c", False), ("a/+", "a/\n", True)],
)  # fmt: skip
def test_topics_are_matched_as_brokers_do(topic_filter, topic, matches):
    assert (pattern_of(topic_filter).fullmatch(topic) is not None) is matches
