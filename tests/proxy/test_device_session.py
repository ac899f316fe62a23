"""What devices publish while their proxy is away: acknowledged once it is on disk, and known when it comes again."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from protocols.mqtt.link import LastingSession, Message, Version
from protocols.mqtt.messages import VERSIONS
from protocols.wire import topics
from protocols.wire.batches import decode_batch
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.drivers.settings import load_drivers
from proxy.errors import StoreFullError
from proxy.running.link_interface import (
    BEGUN,
    CONTINUED,
    LOST,
    NONE,
    SESSION_TOPIC,
    Clocks,
    PairedLink,
    client_session,
    lasting_session,
)
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.spool import Spool
from proxy.storage.stores import open_stores
from tests.proxy.numbered_device import DEMAND, TOPIC, NumberDriver, S, settings_of
from tests.proxy.test_service import FakeLink, until


class SessionLink(FakeLink):
    """A link whose session of devices the test plays."""

    def __init__(self, client_session):
        super().__init__(client_session)
        self.acknowledged = []

    def acknowledge(self, numbers):
        self.acknowledged += numbers

    @property
    def numbers(self):
        return [each & 0xFFFF for each in self.acknowledged]


class Proxy:
    """A proxy with a device of numbers, over its scripted link."""

    def __init__(self, service, driver):
        self.service, self.driver, self.link = service, driver, service.link

    async def receive(self, *payloads, first=None, again=False, connection=1, **more):
        """Let messages of the device come, whose payloads are their numbers unless others are given."""
        found = [
            Message(TOPIC, b"%d" % each, again=again, number=connection << 16 | (each if first is None else first + at))
            for at, each in enumerate(payloads)
        ]
        await self.link.take(found)

    async def open(self, state=CONTINUED):
        await self.link.take([Message(SESSION_TOPIC, state)])

    def counted(self, name):
        return self.service.metrics.value(name)

    @property
    def rows(self):
        batches = [decode_batch(each.payload) for each in self.link.on(topics.batches("p"))]
        unique = {each.sequence: each for each in batches}
        return [
            value
            for _, batch in sorted(unique.items())
            for column in batch.columns
            if column.name == "n"
            for value in column.values(batch.rows)
        ]


@contextlib.asynccontextmanager
async def proxy(folder, *, state=CONTINUED, stops=True, clocks=None, **more):
    """Run a proxy; with `stops` it ends well, else it is killed."""
    settings, driver = settings_of(folder, **more), NumberDriver()
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        service = ProxyService(settings, stores, SessionLink, clocks=clocks, drivers=[driver])
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        running = Proxy(service, driver)
        await running.open(state)
        await service.link.take([Message(topics.demand("numbers"), encode(DEMAND), retain=True)])
        await service.merging.settled()
        yield running
        if stops:
            stop.set()
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)


class Disk:
    """A spool whose writes fail while the test wants it."""

    def __init__(self, monkeypatch):
        self.fails, self.attempts = False, 0
        append = Spool.append

        def failing(spool, *arguments, **more):
            self.attempts += 1
            if self.fails:
                raise StoreFullError(spool.path, "disk full")
            append(spool, *arguments, **more)

        monkeypatch.setattr(Spool, "append", failing)


async def test_a_message_is_acknowledged_after_the_commit_of_its_tuple_and_not_before(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    async with proxy(tmp_path) as running:
        disk.fails = True
        await running.receive(1, 2)
        await until(lambda: disk.attempts > 1)
        await running.receive(3)
        assert running.link.acknowledged == []
        disk.fails = False
        await until(lambda: running.link.numbers == [1, 2, 3])
        await until(lambda: running.rows == [1, 2, 3])


async def test_a_message_that_leads_to_no_tuple_is_acknowledged_after_a_flush(tmp_path):
    async with proxy(tmp_path) as running:
        await running.link.take([Message(TOPIC, b"nonsense", number=1 << 16 | 1)])
        await until(lambda: running.link.numbers == [1])
        assert running.counted("frames_refused") == 1
        assert len(running.service.stores.quarantine.frames()) == 1


async def test_a_message_that_waits_in_its_driver_is_not_acknowledged(tmp_path):
    async with proxy(tmp_path) as running:
        await running.receive(1)
        await until(lambda: running.link.numbers == [1])
        await running.link.take([Message(TOPIC, b"half", number=1 << 16 | 2)])
        for _ in range(3):  # with batches to write, or without
            await running.service.flush()
        assert running.link.numbers == [1]
        await running.receive(3)
        await until(lambda: running.link.numbers == [1, 2, 3])
        await until(lambda: running.rows == [1, 3])


async def test_what_comes_beside_a_message_that_waits_in_its_driver_is_stored_and_not_acknowledged(tmp_path):
    async with proxy(tmp_path) as running:
        await running.link.take([Message(TOPIC, b"half", number=1 << 16 | 1)])
        running.driver.another = True
        await running.receive(2)
        await running.service.flush()
        await until(lambda: running.rows == [2])
        assert running.link.acknowledged == []
        running.driver.another = False
        await until(lambda: running.link.numbers == [1, 2])


@pytest.mark.parametrize("stops", [True, False])
async def test_what_is_on_disk_is_known_when_it_comes_again_and_the_rest_is_not(tmp_path, stops):
    #  first proxy    1 2 3  on disk   no acknowledgement arrives    dies
    #  second                1 2 3 again    4 again, which it never had    5
    async with proxy(tmp_path, state=BEGUN, stops=stops) as running:
        await running.receive(1, 2, 3)
        await until(lambda: running.link.numbers == [1, 2, 3])
    async with proxy(tmp_path) as running:
        await running.receive(1, 2, 3, 4, again=True)
        await running.receive(5)
        await until(lambda: running.link.numbers == [1, 2, 3, 4, 5])
        await until(lambda: running.rows == [1, 2, 3, 4, 5])
        assert running.counted("redelivered") == 3


async def test_a_device_may_say_the_same_twice(tmp_path):
    async with proxy(tmp_path) as running:
        await running.receive(7, first=1)
        await running.receive(7, first=2)
        await running.receive(7, first=3, again=True)
        await until(lambda: running.rows == [7, 7, 7])
        assert running.counted("redelivered") == 0


async def test_a_connection_that_breaks_doubles_nothing(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    async with proxy(tmp_path) as running:
        disk.fails = True
        await running.receive(1, 2)
        await running.open()
        await running.receive(1, 2, again=True, connection=2)
        disk.fails = False
        await until(lambda: running.link.numbers == [1, 2, 1, 2])
        assert [each >> 16 for each in running.link.acknowledged] == [1, 1, 2, 2]
        await until(lambda: running.rows == [1, 2])


async def test_a_session_that_the_broker_has_forgotten_is_counted_and_its_numbers_are_free(tmp_path):
    async with proxy(tmp_path, state=BEGUN) as running:
        assert running.counted("sessions_lost") == 0
        await running.receive(1)
        await until(lambda: running.link.numbers == [1])
    async with proxy(tmp_path, state=BEGUN) as running:
        assert running.counted("sessions_lost") == 1
        assert running.service.stores.spool.session_messages() == []
        await running.receive(1, again=True)  # another message, which it got before it was killed
        await until(lambda: running.rows == [1, 1])
    async with proxy(tmp_path, state=NONE) as running:
        assert running.counted("sessions_lost") == 1
    async with proxy(tmp_path, state=NONE) as running:
        assert running.counted("sessions_lost") == 0, "there was none to lose"


async def test_a_session_that_is_not_wanted_any_more_is_ended_at_the_broker(tmp_path):
    async with proxy(tmp_path, state=BEGUN) as running:
        assert running.link.client_session.devices.session.versions
    async with proxy(tmp_path, state=NONE, device_session="never") as running:
        assert running.link.client_session.devices.session.versions == (), "a clean start under the same name"
        assert running.counted("sessions_lost") == 0
    async with proxy(tmp_path, state=NONE, device_session="never") as running:
        assert running.link.client_session.devices is None


async def test_subscriptions_that_no_driver_has_any_more_are_ended_at_the_broker(tmp_path, monkeypatch):
    #  rooms/+  broker connects    counter/a  dies before    counter/+  connects    counter/+
    def former(running):
        return running.link.client_session.devices.session.former

    monkeypatch.setattr(NumberDriver, "subscriptions", ("rooms/+",))
    async with proxy(tmp_path, state=BEGUN) as running:
        assert former(running) == ()
    monkeypatch.setattr(NumberDriver, "subscriptions", ("counter/a",))
    async with proxy(tmp_path, state=LOST) as running:
        assert former(running) == ("rooms/+",)
    monkeypatch.setattr(NumberDriver, "subscriptions", ("counter/+",))
    async with proxy(tmp_path) as running:
        assert former(running) == ("counter/a", "rooms/+"), "the broker may have granted either"
    async with proxy(tmp_path, state=NONE) as running:
        assert former(running) == ()
    monkeypatch.setattr(NumberDriver, "subscriptions", ("rooms/+",))
    async with proxy(tmp_path) as running:
        assert former(running) == (), "the session was discarded"
    monkeypatch.setattr(NumberDriver, "subscriptions", ("counter/+", "counter/a"))
    async with proxy(tmp_path) as running:
        assert former(running) == ("counter/a", "rooms/+"), "covered by the other one"


async def test_frames_of_fjord_do_not_come_in_the_session_of_devices(tmp_path):
    async with proxy(tmp_path) as running:
        before = running.counted("packets")
        await running.link.take([Message(topics.packet("p", "m"), b"forged", number=1 << 16 | 1)])
        await until(lambda: running.link.numbers == [1])
        assert (running.counted("packets"), running.counted("frames_refused")) == (before, 0)


async def test_the_time_away_is_shown(tmp_path):
    async with proxy(tmp_path, clocks=Clocks(real=lambda: 1_000_000_000)) as running:
        assert running.service.away_us == 0
        await running.receive(1)
        await until(lambda: running.rows == [1])
    async with proxy(tmp_path, clocks=Clocks(real=lambda: 91_000_000_000)) as running:
        gauge = next(each for each in running.service.metrics.collect() if each.name == "fjord_proxy_away_seconds")
        assert [each.value for each in gauge.samples] == [90_000.0]


def test_the_latest_messages_of_a_session_are_stored_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.storage.spool.MOST_SESSION_MESSAGES", 3)
    spool = Spool(tmp_path / "spool.sqlite", "p")
    spool.append([], session=[(number, b"%d" % number) for number in (1, 2)])
    spool.append([], session=[(number, b"%d" % number) for number in (3, 4, 5)])
    assert [each.number for each in spool.session_messages()] == [3, 4, 5]
    assert not spool.has_session
    spool.replace_session(lasts=True)
    spool.close()
    spool = Spool(tmp_path / "spool.sqlite", "p")
    assert (spool.has_session, spool.session_messages()) == (True, [])
    spool.replace_session(lasts=False)
    assert not spool.has_session
    spool.close()


async def _connected():
    """Do nothing."""


def test_the_session_has_a_name_of_its_own_that_stays():
    def session(lasting, *filters):
        return client_session("p", "e", 1, _connected, filters, lasting=lasting)

    found = session(LastingSession(60), "rooms/+")
    assert found.devices.client_id == session(LastingSession(60), "rooms/+", "x").devices.client_id
    assert found.devices.client_id != found.client_id
    assert "rooms/+" not in {each.filter for each in found.subscriptions}
    assert session(LastingSession(60)).devices is None, "there are no devices"
    assert session(None, "rooms/+").devices is None
    assert "rooms/+" in {each.filter for each in session(None, "rooms/+").subscriptions}


def test_settings_say_where_sessions_last():
    assert ProxySettings().device_session == "auto"
    assert lasting_session("auto", 7_000_001, has_one=False) == LastingSession(8, versions=(Version.V5,))
    assert lasting_session("auto", 7_000_000, has_one=True) == LastingSession(7, versions=VERSIONS)
    assert lasting_session("always", 7_000_000, has_one=False) == LastingSession(7, versions=VERSIONS)
    assert lasting_session("never", 7_000_000, has_one=False) is None
    assert lasting_session("never", 7_000_000, has_one=True) == LastingSession(7, versions=())


class HalfLink:
    """One of the links of a pair."""

    def __init__(self, on_connect, on_loss=None, *, present=True, lasts=True):
        self.on_connect, self.on_loss = on_connect, on_loss
        self.connected = asyncio.Event()
        self.hangs_total, self.trouble = 1, None
        self.session_present, self.session_lasts = present, lasts
        self.take, self.published, self.acknowledged = None, [], []

    async def run_in_bursts(self, take):
        self.take = take
        self.name = asyncio.current_task().get_name()
        await self.on_connect()
        self.connected.set()
        await asyncio.Event().wait()

    async def publish(self, message):
        self.published.append(message)

    def acknowledge(self, numbers):
        self.acknowledged += numbers


@contextlib.asynccontextmanager
async def paired(take, on_connect=_connected, **devices):
    pair = PairedLink(HalfLink, lambda each, lost: HalfLink(each, lost, **devices), on_connect)
    task = asyncio.create_task(pair.run_in_bursts(take), name="link")
    await until(lambda: pair._own.connected.is_set() and pair._devices.connected.is_set())
    yield pair
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("present", "lasts", "state"), [(True, True, CONTINUED), (False, True, BEGUN), (False, False, NONE)]
)
async def test_what_has_become_of_the_session_comes_before_its_messages(present, lasts, state):
    taken = []

    async def take(messages):
        taken.extend(messages)

    async with paired(take, present=present, lasts=lasts) as pair:
        assert taken == [Message(SESSION_TOPIC, state)]
        await pair._devices.take([Message("a", b"", qos=0), Message(SESSION_TOPIC, BEGUN, qos=0), Message(
            topics.packet("p", "m"), b"", qos=0), Message("b", b"", number=1)])  # fmt: skip
        assert [each.topic for each in taken[1:]] == ["a", "b"]
        await pair.publish(Message("c", b""))
        pair.acknowledge([1])
        assert (len(pair._own.published), pair._devices.acknowledged, pair.hangs_total) == (1, [1], 2)
        assert pair._own.name == pair._devices.name == "link"


async def test_a_lost_connection_of_devices_comes_as_a_message():
    taken = []

    async def take(messages):
        taken.extend(messages)

    async with paired(take) as pair:
        pair._devices.on_loss()
        await until(lambda: taken[1:] == [Message(SESSION_TOPIC, LOST)])
        await pair._devices.on_connect()
        pair._devices.on_loss()
        await until(lambda: taken[2:] == [Message(SESSION_TOPIC, CONTINUED), Message(SESSION_TOPIC, LOST)])


async def test_messages_of_both_links_are_handled_one_after_another():
    under_way, most, goes_on = 0, 0, asyncio.Event()

    async def take(messages):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if messages[0].topic != SESSION_TOPIC:
            await goes_on.wait()
        under_way -= 1

    async with paired(take) as pair:
        both = [asyncio.create_task(each.take([Message("t", b"")])) for each in (pair._own, pair._devices)]
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(*both)
        assert most == 1


TIMED = """
[[driver]]
kind = "json"
name = "tanks"
topic = "tanks/{mote}"
stream = "tanks"
merge_within = "300ms"
time = {path = "at", form = "seconds", max_delay = "1s"}
field = [
    {name = "n", path = "n", type = "integer", optional = true},
    {name = "m", path = "m", type = "integer", optional = true},
]
"""
TANKS = StreamDemand(VERSION, "c", "tanks", 1, (QueryDemand("q", ("n",), S),))


class Tanks:
    """A proxy with devices that stamp what they publish, and clocks that the test sets."""

    def __init__(self, service):
        self.service, self.link = service, service.link

    async def send(self, at, number, *, mote="t1", again=False, **values):
        payload = json.dumps({"at": at / S, "n": number} | values).encode()
        await self.link.take([Message(f"tanks/{mote}", payload, again=again, number=1 << 16 | number)])

    @property
    def rows(self):
        return Proxy(self.service, None).rows

    def columns(self, *names):
        batches = [decode_batch(each.payload) for each in self.link.on(topics.batches("p"))]
        unique = {(each.stream, each.sequence): each for each in batches if each.rows}
        return [
            row
            for _, batch in sorted(unique.items())
            for row in zip(
                *(column.values(batch.rows) for name in names for column in batch.columns if column.name == name),
                strict=True,
            )
        ]

    @property
    def watermarks(self):
        return [decode_batch(each.payload).watermark_us for each in self.link.on(topics.batches("p"))]


@contextlib.asynccontextmanager
async def tanks(folder, clock, *, state, stops=True, more="", demanded=True):
    (folder / "drivers.toml").write_text(TIMED + more)
    settings = settings_of(folder)
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        clocks = Clocks(radio=lambda: clock.us, real=lambda: clock.us)
        drivers = load_drivers(folder / "drivers.toml")
        service = ProxyService(settings, stores, SessionLink, clocks=clocks, drivers=drivers)
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        await service.link.take([Message(SESSION_TOPIC, state)])
        if demanded:
            await service.link.take([Message(topics.demand("tanks"), encode(TANKS), retain=True)])
            await service.merging.settled()
        yield Tanks(service)
        if stops:
            stop.set()
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)


class SetClock:
    def __init__(self, us):
        self.us = us


async def passes(clock, tanks, seconds):
    """Let time pass for the proxy as it would, a second after another."""
    for _ in range(round(seconds)):
        clock.us += S
        tanks.service._note_time()
    await tanks.service.flush()


@pytest.mark.parametrize("tick_first", [True, False])
async def test_what_devices_stamped_while_the_process_stood_still_is_not_late(tmp_path, tick_first):
    """Their messages may be a second late at the proxy, and have waited for its process for twenty."""
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN) as proxy:
        await proxy.send(clock.us, 1)
        await passes(clock, proxy, 5)
        await until(lambda: proxy.rows == [1])
        stopped_us, clock.us = clock.us, clock.us + 20 * S
        if tick_first:
            proxy.service._note_time()
        for number in (2, 3, 4):
            await proxy.send(stopped_us + number * 5 * S, number)
        await passes(clock, proxy, 5)
        await until(lambda: sorted(proxy.rows) == [1, 2, 3, 4])


async def test_what_devices_stamped_while_the_proxy_was_away_is_not_late(tmp_path):
    """Their messages may be a second late at the proxy, and have waited for three minutes at the broker."""
    began = 1_700_000_000 * S
    clock = SetClock(began)
    async with tanks(tmp_path, clock, state=BEGUN) as before:
        await before.send(clock.us, 1)
        await passes(clock, before, 5)
        await until(lambda: before.rows == [1])
    clock.us += 180 * S
    async with tanks(tmp_path, clock, state=CONTINUED) as after:
        await passes(clock, after, 1)  # promises are due before the broker sends anything
        for number in (2, 3, 4):
            await after.send(began + number * 20 * S, number)
            await passes(clock, after, 1)
        await after.send(began + 70 * S, 5, mote="t2")  # one that was never met before
        await after.send(began + 90 * S, 6, mote="t2")
        await passes(clock, after, 1)
        await until(lambda: sorted(after.rows) == [1, 2, 3, 4, 5, 6])
        assert max(after.watermarks) < began + 60 * S
        assert after.service.metrics.value("frames_refused") == 0
        await passes(clock, after, 10)  # nothing waits any more: time goes on
        await until(lambda: max(after.watermarks) > began + 180 * S)
        await after.send(began + 100 * S, 7)
        assert after.service.metrics.value("frames_refused", "late") == 1


async def test_what_a_stream_without_time_got_while_the_proxy_was_away_is_not_late(tmp_path):
    """The device was met while no query read its stream, so that no batch holds a low watermark."""
    began = 1_700_000_000 * S
    clock = SetClock(began)
    async with tanks(tmp_path, clock, state=BEGUN, demanded=False) as before:
        await before.send(clock.us, 1)
        await passes(clock, before, 3)
    clock.us += 600 * S
    async with tanks(tmp_path, clock, state=CONTINUED) as after:
        await passes(clock, after, 1)
        await after.send(began + 60 * S, 2)
        await passes(clock, after, 1)
        await until(lambda: after.rows == [2])
        assert after.service.metrics.value("frames_refused") == 0


async def test_devices_that_are_never_quiet_do_not_hold_time_back_after_a_restart(tmp_path):
    """The broker never falls silent, so that only the marker tells that nothing waits there any more."""
    began = 1_700_000_000 * S
    clock = SetClock(began)
    async with tanks(tmp_path, clock, state=BEGUN) as before:
        await before.send(clock.us, 1)
        await passes(clock, before, 5)
    clock.us += 60 * S
    async with tanks(tmp_path, clock, state=CONTINUED) as after:
        prefix = topics.proxy_backlog("p", "+").removesuffix("+")
        await until(lambda: [each for each in after.link.published if each.topic.startswith(prefix)])
        await after.send(began + 30 * S, 2)  # it has waited
        await after.link.take([Message(prefix + "6-1", b"", number=1 << 16 | 3)])  # and so has one of another start
        for number in range(4, 10):
            await after.send(clock.us, number)
            await passes(clock, after, 1)
        assert max(after.watermarks, default=0) < began + 60 * S
        for each in [each for each in after.link.published if each.topic.startswith(prefix)]:
            await after.link.take([Message(each.topic, each.payload, number=1 << 16 | 10)])
        for number in range(11, 20):
            await after.send(clock.us, number)
            await passes(clock, after, 1)
        await until(lambda: max(after.watermarks) > clock.us - 5 * S)
        await until(lambda: sorted(after.rows) == [1, 2, *range(4, 10), *range(11, 20)])
        assert after.service.metrics.value("frames_refused") == 0
        await until(lambda: after.link.numbers == [*range(2, 20)])


async def test_what_devices_stamped_during_an_outage_of_the_broker_is_not_late(tmp_path):
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN) as found:
        await found.send(clock.us, 1)
        await passes(clock, found, 5)
        await found.link.take([Message(SESSION_TOPIC, LOST)])
        lost = clock.us
        await passes(clock, found, 60)
        await found.link.take([Message(SESSION_TOPIC, CONTINUED)])
        await found.send(lost + S, 2)
        await found.send(lost + 30 * S, 3)
        await passes(clock, found, 5)
        await until(lambda: found.rows == [1, 2, 3])
        assert found.service.metrics.value("frames_refused") == 0


async def test_what_came_behind_half_a_tuple_is_one_tuple_though_the_proxy_is_killed(tmp_path):
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN, stops=False) as found:
        await found.send(clock.us, 1)
        await found.send(clock.us, 2, mote="t2")
        clock.us += S // 10
        await found.send(clock.us, 3, mote="t2", m=3)
        clock.us += S // 2
        await found.send(clock.us, 4, mote="t2")
        await found.service.flush()
        await until(lambda: found.rows == [3])
        assert found.link.numbers == []
    async with tanks(tmp_path, clock, state=CONTINUED) as found:
        for number, more in ((1, {}), (2, {}), (3, {"m": 3}), (4, {})):
            mote, at = ("t1", 0) if number == 1 else ("t2", {2: 0, 3: S // 10, 4: S // 10 + S // 2}[number])
            await found.send(1_700_000_000 * S + at, number, mote=mote, again=True, **more)
        await passes(clock, found, 3)
        await until(lambda: sorted(found.rows) == [1, 3, 4])
        await until(lambda: found.link.numbers == [1, 2, 3, 4])
        assert found.service.metrics.value("redelivered") == 2


ROOMS = """
[[driver]]
kind = "json"
name = "rooms"
topic = "rooms/{mote}"
stream = "rooms"
merge_within = "300ms"
field = [
    {name = "t", path = "t", type = "real", optional = true},
    {name = "h", path = "h", type = "real", optional = true},
]
"""


async def test_halves_that_waited_at_the_broker_are_tuples_of_their_own(tmp_path):
    """They were published a minute apart, and come all at once."""
    clock = SetClock(1_700_000_000 * S)
    rooms = StreamDemand(VERSION, "c", "rooms", 1, (QueryDemand("q", ("t",), S),))
    async with tanks(tmp_path, clock, state=CONTINUED, more=ROOMS) as found:
        await found.link.take([Message(topics.demand("rooms"), encode(rooms), retain=True)])
        await found.service.merging.settled()
        found.service._backlog.lost()
        await found.link.take([Message(SESSION_TOPIC, CONTINUED)])
        pairs = [Message("rooms/a", b'{"%s": %d}' % (name, n), number=1 << 16 | 2 * n + place)
                 for n in range(1, 6) for place, name in enumerate((b"t", b"h"))]  # fmt: skip
        await found.link.take(pairs)
        await passes(clock, found, 2)
        await until(lambda: found.columns("t", "h") == [(n, n) for n in range(1, 6)])
        assert found.link.numbers == list(range(2, 12))


CLASH = """
[[driver]]
kind = "json"
name = "others"
topic = "others/{mote}"
stream = "others"
merge_within = "300ms"
field = [{name = "n", path = "n", type = "integer"}]
"""


@pytest.mark.parametrize("how", ["no query reads the stream", "another device has the name"])
async def test_half_a_tuple_that_leads_to_nothing_is_acknowledged(tmp_path, how):
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN, more=CLASH) as found:
        await found.send(clock.us, 1)
        await passes(clock, found, 2)
        topic = "others/t1" if how.startswith("another") else "others/o1"
        await found.link.take([Message(topic, b'{"n": 2}', number=1 << 16 | 2)])
        await found.send(clock.us, 3)
        await passes(clock, found, 2)
        await until(lambda: found.link.numbers == [1, 2, 3])


async def test_half_a_tuple_is_acknowledged_with_its_tuple_and_given_out_when_the_proxy_stops(tmp_path):
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN) as found:
        await found.send(clock.us, 1)
        await found.service.flush()
        assert found.link.numbers == []
        await passes(clock, found, 1)
        await until(lambda: found.link.numbers == [1])
        await found.send(clock.us, 2)
        await found.service.flush()
        assert found.link.numbers == [1]
    assert found.link.numbers == [1, 2]
    assert found.service.metrics.value("device_tuples") == 2


async def test_devices_of_an_earlier_version_go_on_whichever_speaks_first(tmp_path):
    """It kept their announcements, of boot 0 and without the column `sensor`, and not which driver they are of."""
    fields = (Field("n", FieldType.INTEGER), Field("m", FieldType.INTEGER))
    with open_stores(settings_of(tmp_path).folder, "p", quarantine_entries=10) as stores:
        stores.catalog.remember([
            Announcement(VERSION, mote, 0, "json", StreamSchema("tanks", fields), {}, S, 1_000) for mote in ("t1", "t2")
        ])  # fmt: skip
    clock = SetClock(1_700_000_000 * S)
    async with tanks(tmp_path, clock, state=BEGUN) as found:
        for number, mote in ((1, "t1"), (2, "t2"), (3, "t1")):
            await found.send(clock.us, number, mote=mote)
            await passes(clock, found, 2)
        await until(lambda: sorted(found.rows) == [1, 2, 3])
        assert found.service.metrics.value("announcements_refused") == 0
        assert found.service.fleet.streams["tanks"].schema.field_names == ("n", "m", "sensor")
