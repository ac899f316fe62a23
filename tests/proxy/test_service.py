"""The whole proxy against a broker and a fake link, with scripted motes and a scripted cluster."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import pytest

from protocols.errors import FrameError
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch, decode_resumption
from protocols.wire.catalog import (
    MoteState,
    Presence,
    ProxySpool,
    Status,
    decode_mote_entry,
    decode_proxy_clock,
    decode_proxy_spool,
    decode_status,
    decode_stream_offer,
)
from protocols.wire.demands import CompletenessDemand, DemandHead, QueryDemand, StreamDemand, digest_of
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import RunProgram, decode_control
from protocols.wire.programs import SLEEP, SamplingProgram, program_number
from proxy.errors import ContestedError, NameSharedError, StoreFullError
from proxy.fleet.demand_assembly import FIRST_REQUEST_US
from proxy.running.link_interface import Clocks, mqtt_link
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.running.unpublished import CLOCK_EVERY_US
from proxy.storage.spool import Spool, SpooledBatch
from proxy.storage.stores import open_stores

S = 1_000_000
SPEED = SamplingProgram(("speed",), 10 * S)
NUMBER = program_number(SPEED)


class FakeLink:
    """Keeps published messages; the test connects and disconnects it."""

    def __init__(self, client_session):
        self.client_session = client_session
        self.connected = asyncio.Event()
        self.hangs_total = 0
        self.published = []
        self.fails = False
        self.take = None

    async def run_in_bursts(self, take):
        self.take = take
        await self.connect()
        await asyncio.Event().wait()

    async def connect(self):
        self.connected.set()
        await self.client_session.on_connect()

    async def publish(self, message):
        if self.fails:
            raise LinkError("not connected")
        self.published.append(message)

    def on(self, topic):
        return [each for each in self.published if each.topic == topic]


@pytest.fixture
def settings(tmp_path):
    # The clocks of scripted motes begin in 1970.
    data = str(tmp_path / "data")
    return ProxySettings(name="p", data=data, flush_interval=10_000, entry_interval=1, max_clock_behind=0)


@contextlib.asynccontextmanager
async def running(settings, make_link=FakeLink, clocks=None):
    with open_stores(settings.folder, settings.name, quarantine_entries=10) as stores:
        service = ProxyService(settings, stores, make_link, clocks=clocks)
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        yield service
        stop.set()
        await asyncio.wait_for(task, 10)


async def until(condition, seconds=10):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - other processes and threads make it true
            await asyncio.sleep(0.005)


async def send(service, topic, frame, *, retain=False):
    await service.link.take([Message(topic, frame if isinstance(frame, bytes) else encode(frame), retain=retain)])


async def receive(service, packet):
    await send(service, topics.packet("p", packet.mote), packet)


async def introduce(service, frames):
    await send(service, topics.demand("traffic"), frames.demand(("a", ["speed"], None)), retain=True)
    await send(service, topics.announcement("p", "m1"), frames.announcement())


def published_batches(link):
    return [decode_batch(each.payload) for each in link.on(topics.batches("p"))]


async def test_complete_batch_does_not_wait_for_the_next_flush(settings, frames, monkeypatch):
    longest_us = 31_416_000
    async with running(settings) as service:
        await introduce(service, frames)
        await service.merging.settled()
        # The pause between two batches takes no time; waiting for motes takes as long as the settings say.
        sleep, pauses = asyncio.sleep, []

        async def short_sleep(seconds):
            pauses.extend([seconds] * (seconds == longest_us / 1e6))
            await sleep(min(seconds, 0.01))

        monkeypatch.setattr(service, "settings", service.settings.model_copy(update={"flush_interval": longest_us}))
        monkeypatch.setattr(asyncio, "sleep", short_sleep)
        for sequence, at in ((0, 10), (1, 20)):
            packet = frames.packet(sequence, (at, 2.0), clock=at, low_watermark=at + 1, program=NUMBER)
            await receive(service, packet)
            await until(lambda cut=sequence + 1: len(pauses) >= cut)
        await until(lambda: sum({each.sequence: each.rows for each in published_batches(service.link)}.values()) == 2)
        assert {each.qos for each in service.link.on(topics.batches("p"))} == {0}


async def test_bad_frames_are_counted_kept_and_stop_nothing(settings, frames):
    packet, announced = encode(frames.packet(0, mote="m2")), encode(frames.announcement())
    async with running(settings) as service:
        await introduce(service, frames)
        for topic, payload, retain in [
            (topics.packet("p", "m1"), b"\xc1", False),
            (topics.packet("p", "m1"), packet[:5], False),
            (topics.packet("p", "m1"), b"x" * 70_000, False),
            (topics.packet("p", "m1"), b"\x91\x63", False),
            (topics.packet("p", "m1"), packet, False),
            (topics.packet("p", "m2"), packet, True),
            (topics.announcement("p", "m2"), announced, False),
            (topics.announcement("p", "m1"), announced, True),
            (topics.acks("p"), b"", False),
            (topics.demand("weather"), encode(frames.demand()), True),
            ("fjord/v1/motes/p/b d/packet", packet, False),
            (topics.query_errors("q"), packet, False),
        ]:
            await send(service, topic, payload, retain=retain)
        counts = {
            label: service.metrics.value("frames_refused", label)
            for label in ("garbled", "size", "version", "mote", "retained", "shape", "stream", "topic")
        }
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
    assert counts == {
        "garbled": 3, "size": 1, "version": 1, "mote": 2, "retained": 2, "shape": 0, "stream": 1, "topic": 2,
    }  # fmt: skip
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        assert len(stores.quarantine.frames()) == 10


async def test_batch_stays_in_the_spool_over_a_restart_until_it_is_acknowledged(settings, frames):
    async with running(settings) as first:
        await introduce(first, frames)
        await receive(first, frames.packet(0, (0, 1.5), clock=1, program=NUMBER))
        await until(lambda: published_batches(first.link))
    async with running(settings) as second:
        await until(lambda: published_batches(second.link))
        (batch,) = [each for each in published_batches(second.link) if each.rows]
        assert published_batches(first.link)[: batch.sequence][-1] == batch
        assert second.metrics.value("batches_spooled") == 0
        await receive(second, frames.packet(0, (0, 1.5), clock=1, program=NUMBER))
        assert second.metrics.value("packets_refused", "replayed") == 1
        ack = Ack(VERSION, "p", batch.epoch, "traffic", 99)
        await send(second, topics.acks("p"), ack)
        assert second.metrics.value("acks_refused", "ahead") == 1
        await send(second, topics.acks("p"), Ack(VERSION, "p", "another", "traffic", batch.sequence))
        assert second.metrics.value("acks_refused", "epoch") == 1
        await receive(second, frames.packet(1, (10 * S, 2.5), clock=10 * S, program=NUMBER))
        await until(lambda: len(published_batches(second.link)) > 1)
        assert [each.sequence for each in published_batches(second.link)] == [1, 2]
        await send(second, topics.acks("p"), Ack(VERSION, "p", batch.epoch, "traffic", 2))
        await until(lambda: second.stores.spool.batches == 0)


async def test_batches_are_packed_as_soon_as_an_acknowledgement_says_that_the_cluster_reads_them(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        forms = []
        for number, packed in enumerate((None, False, True, True, False, None)):
            await receive(service, frames.packet(number, (number * 10 * S, 1.5), clock=number * 10 * S, program=NUMBER))
            await until(lambda rows=number + 1: sum(each.rows for each in published_batches(service.link)) == rows)
            forms.append(service.link.on(topics.batches("p"))[-1].payload[:1])
            newest = published_batches(service.link)[-1]
            if packed is not None:
                through = Ack(VERSION, "p", newest.epoch, "traffic", newest.sequence, (), "c/1", packed)
                await send(service, topics.acks("p"), through)
                await service.flush()
        assert forms == [b"\x99", b"\x99", b"\x99", b"\x9a", b"\x9a", b"\x99"]


async def test_batches_name_their_writer_as_soon_as_the_cluster_reads_it_and_after_a_restart(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        writer = service.stores.spool.writer
        for number in range(2):
            at = number * 10 * S
            await receive(service, frames.packet(number, (at, 1.5), clock=at, program=NUMBER))
            await until(lambda rows=number + 1: sum(each.rows for each in published_batches(service.link)) == rows)
            newest = published_batches(service.link)[-1]
            assert newest.writer == (writer if number else b"")
            ack = Ack(VERSION, "p", newest.epoch, "traffic", newest.sequence, (), "c/1", packed=True, writer=writer)
            await send(service, topics.acks("p"), ack)
            await until(lambda: service.stores.spool.batches == 0)
    async with running(settings) as again:
        await receive(again, frames.packet(2, (20 * S, 1.5), clock=20 * S, program=NUMBER))
        await until(lambda: published_batches(again.link))
        first = published_batches(again.link)[0]
        assert (first.writer, first.follows) == (again.stores.spool.writer, writer)
        assert first.writer != writer
        await receive(again, frames.packet(3, (30 * S, 1.5), clock=30 * S, program=NUMBER))
        await until(lambda: sum(each.rows for each in published_batches(again.link)) == 2)
        assert published_batches(again.link)[-1].follows == first.writer


async def test_a_proxy_whose_numbers_another_process_uses_stops_and_keeps_its_batches(settings, frames):
    contested = asyncio.Event()

    class Link(FakeLink):
        async def run_in_bursts(self, take):
            await self.connect()
            await contested.wait()
            ack = Ack(VERSION, "p", epoch, "traffic", 1, (), "c/1", packed=True, writer=b"\x01" * 8)
            await take([Message(topics.acks("p"), encode(ack))])

    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        epoch = stores.spool.epoch
        service = ProxyService(settings, stores, Link)
        task = asyncio.create_task(service.run(asyncio.Event()))
        await asyncio.wait_for(service.link.connected.wait(), 10)
        service.link.take = service._receive
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.5), clock=1, program=NUMBER))
        await until(lambda: published_batches(service.link))
        await receive(service, frames.packet(1, (10 * S, 2.5), clock=10 * S, program=NUMBER))
        contested.set()
        with pytest.raises(ExceptionGroup) as found:
            await asyncio.wait_for(task, 10)
        assert found.group_contains(ContestedError, match="another proxy runs on a copy of this folder")
        rows = [decode_batch(stores.spool.read("traffic", number + 1)).rows for number in range(stores.spool.batches)]
        assert sum(rows) == 2, "what waited is written"
        assert service.metrics.value("acks_refused", "contested") == 1


async def test_a_proxy_stops_if_another_process_of_its_identity_shows_twice(settings):
    async with running(settings) as service:
        epoch, since_us = service.stores.spool.epoch, 1
        topic = topics.proxy_status("p")
        other = Status(VERSION, "p", Presence.OFFLINE, epoch, since_us)
        for status in (other, other):  # of a process before
            await send(service, topic, status, retain=True)
        await send(service, topic, service._session.birth.payload)
        for _ in range(3):
            await send(service, topic, other)  # forged: the connection lasts
        await service._on_connect()
        await send(service, topic, other)
        await service._on_connect()
        with pytest.raises(NameSharedError, match=epoch):
            await send(service, topic, other)


@pytest.mark.parametrize(
    ("setting", "deleted"), [("", False), ("c/new", True), ("c/old", False)], ids=["as before", "moved on", "unmoved"]
)
async def test_another_cluster_deletes_nothing_from_the_spool_over_restarts(settings, frames, setting, deleted):
    async with running(settings) as first:
        await introduce(first, frames)
        await receive(first, frames.packet(0, (0, 1.5), clock=1, program=NUMBER))
        await until(lambda: published_batches(first.link))
        epoch = published_batches(first.link)[-1].epoch
        through = published_batches(first.link)[-1].sequence
        await send(first, topics.acks("p"), Ack(VERSION, "p", epoch, "traffic", through, (), "c/old"))
        await until(lambda: first.stores.spool.batches == 0)
    async with running(settings.model_copy(update={"cluster": setting})) as second:
        await receive(second, frames.packet(1, (10 * S, 2.5), clock=10 * S, program=NUMBER))
        await until(lambda: published_batches(second.link))
        newest = published_batches(second.link)[-1].sequence
        await send(second, topics.acks("p"), Ack(VERSION, "p", epoch, "traffic", newest, (), "c/new"))
        await second.flush()
        assert (second.stores.spool.batches == 0) is deleted
        assert second.metrics.value("acks_refused", "cluster") == (not deleted)
        assert second.stores.spool.cluster == ("c/new" if deleted else "c/old")


async def test_what_a_mote_has_lost_is_known_after_a_restart(settings, frames):
    counted = QueryDemand("q", ("speed",), None, completeness=CompletenessDemand("c1", 60 * S))
    async with running(settings) as first:
        await send(first, topics.demand("traffic"), StreamDemand(VERSION, "c", "traffic", 1, (counted,)), retain=True)
        await send(first, topics.announcement("p", "m1"), frames.announcement())
        for number in (0, 2):
            at = number * 10 * S
            await receive(
                first, frames.packet(number, (at, 1.5), clock=at + 1, low_watermark=at + 10 * S, program=NUMBER)
            )
        await until(lambda: sum(each.rows for each in published_batches(first.link)) > 1)
        lost = first.fleet.motes["m1"].lost_until_us
        assert lost == 30 * S
    async with running(settings) as second:
        assert second.fleet.motes["m1"].lost_until_us == lost


async def test_connection_lost_while_publishing_sends_all_again(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        service.link.fails = True
        service.link.connected.clear()
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: service.stores.spool.batches)
        service.link.fails = False
        await service.link.connect()
        await until(lambda: published_batches(service.link))
        assert [each.sequence for each in published_batches(service.link)] == [1]


async def test_unacknowledged_batches_are_sent_to_a_new_cluster(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        for presence, retain in [(Presence.ONLINE, True), (Presence.OFFLINE, False), (Presence.ONLINE, False)]:
            await send(service, topics.cluster_status("c"), Status(VERSION, "c", presence, "e", 0), retain=retain)
        await until(lambda: len(published_batches(service.link)) == 2)
        assert [each.sequence for each in published_batches(service.link)] == [1, 1]


async def test_failing_disk_is_tried_again_and_loses_nothing(settings, frames, monkeypatch):
    async with running(settings) as service:
        await introduce(service, frames)
        good = service.stores.spool.append

        def fail(*arguments, **more):
            raise StoreFullError(service.stores.spool.path, "disk full")

        monkeypatch.setattr(service.stores.spool, "append", fail)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: service.metrics.value("store_errors") > 1)
        await receive(service, frames.packet(1, (10 * S, 2.0), clock=10 * S, program=NUMBER))
        monkeypatch.setattr(service.stores.spool, "append", good)
        await until(lambda: len({each.sequence for each in published_batches(service.link) if each.rows}) == 2)
        assert [each.sequence for each in published_batches(service.link)] == [1, 2]


async def test_deletions_that_fail_are_made_again_without_another_acknowledgement(settings, frames, monkeypatch):
    async with running(settings) as service:
        await introduce(service, frames)
        spool = service.stores.spool
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        good, attempts = spool.delete_through, []

        def delete(stream, sequence):
            attempts.append(sequence)
            if len(attempts) <= 3:
                raise StoreFullError(spool.path, "disk full")
            good(stream, sequence)

        monkeypatch.setattr(spool, "delete_through", delete)
        await send(service, topics.acks("p"), Ack(VERSION, "p", spool.epoch, "traffic", 1, cluster="c/1"))
        await until(lambda: spool.batches == 0)
        assert attempts[:4] == [1, 1, 1, 1]
        assert service.metrics.value("store_errors") == 3


async def test_more_than_the_disk_has_room_for_is_written_batch_by_batch(settings, frames, monkeypatch):
    """What has waited for room may never fit at once; numbers go on without gaps, and what is written is sent."""
    async with running(settings.model_copy(update={"batch_rows": 1})) as service:
        await introduce(service, frames)
        spool = service.stores.spool
        good, room = spool.append, 0

        def append(batches, *arguments, **more):
            nonlocal room
            if len(batches) > room:
                raise StoreFullError(spool.path, "disk full")
            room -= len(batches)
            good(batches, *arguments, **more)

        monkeypatch.setattr(spool, "append", append)
        samples = [(each * 10 * S, 1.0) for each in range(5)]
        await receive(service, frames.packet(0, *samples, clock=40 * S, program=NUMBER))
        await until(lambda: service.metrics.value("store_errors") > 1)
        for batches in range(1, 6):
            room = 1
            await until(lambda spooled=batches: spool.batches == spooled)
        await until(lambda: {each.sequence for each in published_batches(service.link) if each.rows} == {1, 2, 3, 4, 5})
        room = 100


async def test_a_quarantine_without_room_holds_back_no_samples(settings, frames, monkeypatch):
    async with running(settings) as service:
        await introduce(service, frames)
        quarantine = service.stores.quarantine

        def fail(_):
            raise StoreFullError(quarantine.path, "disk full")

        monkeypatch.setattr(quarantine, "_insert", fail)
        await send(service, topics.packet("p", "m1"), b"\xc1")
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        await until(lambda: service.metrics.value("quarantine_dropped") == 1)


async def test_a_batch_that_cannot_be_read_holds_back_no_other_stream(settings, frames, monkeypatch):
    settings = settings.model_copy(update={"resend_after": 1})
    async with running(settings) as service:
        await introduce(service, frames)
        good = Spool.read
        failing = True

        def read(spool, stream, sequence):
            if failing and stream == "traffic":
                raise StoreFullError(spool.path, "disk I/O error")
            return good(spool, stream, sequence)

        monkeypatch.setattr(Spool, "read", read)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: service.metrics.value("store_errors"))
        other = SpooledBatch("other", 1, 0, b"other")
        await service.stores.in_thread(service.stores.spool.append, [other])
        service.delivery.spooled([other], Clocks().radio())
        await until(lambda: {each.payload for each in service.link.on(topics.batches("p"))} == {b"other"})
        failing = False
        await until(lambda: len({each.payload for each in service.link.on(topics.batches("p"))}) > 1)


def change_a_byte(path, sequence):
    """Do to a spooled batch what a failing disk does."""
    with sqlite3.connect(path) as connection:
        (payload,) = connection.execute("SELECT payload FROM batches WHERE sequence = ?", (sequence,)).fetchone()
        changed = payload[:-1] + bytes([payload[-1] ^ 1])
        connection.execute("UPDATE batches SET payload = ? WHERE sequence = ?", (changed, sequence))
    connection.close()


async def test_a_batch_damaged_in_the_spool_is_skipped_by_a_resumption(settings, frames):
    async with running(settings) as first:
        await introduce(first, frames)
        for number in range(3):
            packet = frames.packet(number, (number * 10 * S, 1.5), clock=number * 10 * S + 1, program=NUMBER)
            await receive(first, packet)
            await until(lambda count=number: len(published_batches(first.link)) > count)
        *before, _ = published_batches(first.link)
        epoch, damaged = before[0].epoch, before[-1].sequence
    change_a_byte(settings.folder / "spool.sqlite", damaged)
    async with running(settings) as second:
        await until(lambda: second.metrics.value("batches_damaged"))
        assert second.link.on(topics.resumptions("p")) == [], "what is before it is to be stored first"
        await send(second, topics.acks("p"), Ack(VERSION, "p", epoch, "traffic", damaged - 1))
        await until(lambda: damaged + 1 in [each.sequence for each in published_batches(second.link)])
        (resumption,) = [decode_resumption(each.payload) for each in second.link.on(topics.resumptions("p"))]
        assert (resumption.epoch, resumption.stream, resumption.first) == (epoch, "traffic", damaged + 1)
        assert damaged not in [each.sequence for each in published_batches(second.link)]
        counted = [second.metrics.value(name) for name in ("batches_damaged", "rows_damaged", "quarantined")]
        assert counted == [1, before[-1].rows, 1]
        await send(second, topics.acks("p"), Ack(VERSION, "p", epoch, "traffic", damaged + 1))
        await until(lambda: second.stores.spool.first_waiting().get("traffic", damaged + 2) > damaged + 1)
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        (kept,) = stores.quarantine.frames()
        assert (kept.reason, f"batch {damaged} of stream 'traffic'" in kept.detail) == ("damaged", True)


async def test_size_and_age_of_the_spool_are_published(settings):
    radio_us, real_us = 0, 100 * S
    topic = topics.proxy_spool("p")
    async with running(settings, clocks=Clocks(lambda: radio_us, lambda: real_us)) as service:
        await until(lambda: service.link.on(topic))
        waiting = [SpooledBatch("s", number, 1, b"abc", (100 + number) * S) for number in (1, 2)]
        await service.stores.in_thread(service.stores.spool.append, waiting)
        radio_us, real_us = CLOCK_EVERY_US, 160 * S
        await until(lambda: len(service.link.on(topic)) > 1)
        files = [settings.folder / name for name in ("spool.sqlite", "spool.sqlite-wal")]
        file_bytes = sum(each.stat().st_size for each in files)
    reports = [decode_proxy_spool(each.payload) for each in service.link.on(topic)[:2]]
    assert reports == [
        ProxySpool(VERSION, "p", 0, 0, None, reports[0].file_bytes),
        ProxySpool(VERSION, "p", 2, 6, 59 * S, file_bytes),
    ]
    assert {(each.qos, each.retain) for each in service.link.on(topic)} == {(0, False)}


async def test_a_batch_is_spooled_with_the_time_of_day(settings, frames):
    async with running(settings, clocks=Clocks(real=lambda: 100 * S)) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        assert await service.stores.in_thread(service.stores.spool.waiting_since_us) == 100 * S


class SlowDisk:
    """A spool that writes only when it is let."""

    def __init__(self, service, monkeypatch):
        self._append = service.stores.spool.append
        self.writing, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(service.stores.spool, "append", self.append)

    def append(self, *arguments, **more):
        self.writing.set()
        assert self.go_on.wait(10)
        self._append(*arguments, **more)


async def test_slow_disk_leaves_messages_with_the_broker_before_samples_are_dropped(settings, frames, monkeypatch):
    async with running(settings.model_copy(update={"waiting_samples": 2})) as service:
        await introduce(service, frames)
        disk = SlowDisk(service, monkeypatch)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(disk.writing.is_set)
        for number in (1, 2):
            await receive(service, frames.packet(number, (number * S, 1.0), clock=number * S, program=NUMBER))
        waits = asyncio.create_task(receive(service, frames.packet(3, (3 * S, 1.0), clock=3 * S, program=NUMBER)))
        await until(lambda: service.metrics.value("held_back"))
        assert service.metrics.value("packets") == 3
        disk.go_on.set()
        await asyncio.wait_for(waits, 10)
        await until(lambda: service.metrics.value("samples") == 4)
        assert service.metrics.value("packets") == 4


async def test_disk_that_stands_still_holds_messages_back_for_a_bounded_time(settings, frames, monkeypatch):
    monkeypatch.setattr("proxy.running.service.LONGEST_HOLD_SECONDS", 0.05)
    async with running(settings.model_copy(update={"waiting_samples": 2})) as service:
        await introduce(service, frames)
        disk = SlowDisk(service, monkeypatch)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(disk.writing.is_set)
        for number in range(1, 6):
            await receive(service, frames.packet(number, (number * S, 1.0), clock=number * S, program=NUMBER))
        assert service.metrics.value("held_back") == 1
        assert service.metrics.value("samples_dropped", "traffic") == 3
        disk.go_on.set()


async def test_full_spool_drops_the_oldest_waiting_samples_and_counts_them(settings, frames):
    small = settings.model_copy(update={"spool_size": 1, "waiting_samples": 2})
    async with running(small) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        samples = [(each * 10 * S, 1.0) for each in (1, 2, 3)]
        await receive(service, frames.packet(1, *samples, clock=30 * S, program=NUMBER))
        await until(lambda: service.metrics.value("spool_full"))
        assert service.metrics.value("samples_dropped", "traffic") == 1
        batch = published_batches(service.link)[0]
        await send(service, topics.acks("p"), Ack(VERSION, "p", batch.epoch, "traffic", 1))
        await until(lambda: len(published_batches(service.link)) > 1)
        assert published_batches(service.link)[1].rows == 2


async def test_a_spool_is_not_full_of_batches_that_the_cluster_has(settings, frames, monkeypatch):
    """They are deleted before it is asked for room: what waits need not wait for one flush more."""
    async with running(settings.model_copy(update={"spool_size": 1})) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.0), program=NUMBER))
        await until(lambda: published_batches(service.link))
        (batch,) = published_batches(service.link)
        append, put_off = service.stores.spool.append, []

        def noted(*arguments, **more):
            put_off.append(service.metrics.value("spool_full"))
            append(*arguments, **more)

        async with service._flushing:
            await receive(service, frames.packet(1, (10 * S, 1.0), clock=10 * S, program=NUMBER))
            await send(service, topics.acks("p"), Ack(VERSION, "p", batch.epoch, "traffic", batch.sequence))
            assert service.fleet.waits
            before = service.metrics.value("spool_full")
            monkeypatch.setattr(service.stores.spool, "append", noted)
        await until(lambda: len(published_batches(service.link)) > 1)
        assert put_off[0] == before


async def test_control_that_cannot_be_sent_is_counted(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        service.link.fails = True
        await receive(service, frames.packet(0, listen=50_000))
        assert service.metrics.value("controls_unsent") == 1


@pytest.mark.parametrize(("listen_us", "seconds"), [(50_000, 1), (2_900_000, 3)])
async def test_a_control_expires_with_the_listen_window(settings, frames, listen_us, seconds):
    async with running(settings) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, listen=listen_us))
        (control,) = service.link.on(topics.control("p", "m1"))
        assert (control.qos, control.expiry_seconds) == (0, seconds)


async def test_restarted_proxy_does_not_put_motes_to_sleep_before_it_receives_the_demand(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, program=NUMBER))
    async with running(settings) as service:
        await receive(service, frames.packet(1, listen=50_000, program=NUMBER, clock=1))
        assert service.link.on(topics.control("p", "m1")) == []


async def test_metrics_have_every_name_once(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        names = [family.name for family in service.metrics.collect()]
    assert len(names) == len(set(names))
    assert {"fjord_proxy_packets", "fjord_proxy_spool_bytes", "fjord_proxy_motes"} <= set(names)


class Field:
    """Motes and cluster at the other side of a real broker."""

    def __init__(self, address):
        self.received = []
        subscriptions = [Subscription("fjord/v1/proxies/#"), Subscription("fjord/v1/motes/+/+/control")]
        self.link = MqttLink(address, client_id="field", subscriptions=subscriptions)

    async def keep(self, message):
        self.received.append(message)

    async def send(self, topic, frame, *, retain=False):
        await self.link.publish(Message(topic, encode(frame), retain=retain))

    def frames(self, topic, decode):
        found = []
        for each in self.received:
            if each.topic == topic:
                with contextlib.suppress(FrameError):
                    found.append(decode(each.payload))
        return found

    def programs(self):
        controls = self.frames(topics.control("p", "m1"), decode_control)
        return [each.program for control in controls for each in control.instructions if isinstance(each, RunProgram)]


@pytest.mark.system
async def test_from_demand_to_acknowledged_batch_over_a_broker(settings, frames, broker):
    address = BrokerAddress(broker.host, broker.port)
    field = Field(address)
    keeping = asyncio.create_task(field.link.run(field.keep))
    await asyncio.wait_for(field.link.connected.wait(), 10)
    packets, announcements = topics.packet("p", "m1"), topics.announcement("p", "m1")
    async with running(settings, mqtt_link(address)) as service:
        await until(lambda: field.frames(topics.proxy_status("p"), decode_status))
        await field.send(topics.demand("traffic"), frames.demand(("a", ["speed"], None)), retain=True)
        await field.send(announcements, frames.announcement())
        await until(lambda: field.frames(topics.stream_offer("p", "traffic"), decode_stream_offer))

        await field.send(packets, frames.packet(0))
        await until(lambda: service.metrics.value("packets") == 1)
        assert field.programs() == [], "the radio is off"
        await field.send(packets, frames.packet(1, clock=5 * S, listen=50_000))
        await until(field.programs)
        assert field.programs() == [SPEED]

        packet = frames.packet(2, (10 * S, 55.5), clock=10 * S, low_watermark=20 * S, program=NUMBER)
        await field.send(packets, packet)
        await until(lambda: any(each.rows for each in field.frames(topics.batches("p"), decode_batch)))
        batch = next(each for each in field.frames(topics.batches("p"), decode_batch) if each.rows)
        assert [column.values(1) for column in batch.columns] == [[10 * S], ["m1"], [True], [7], [55.5], [None], [None]]
        assert (batch.watermark_us, batch.sampling) == (20 * S, True)
        assert service.stores.spool.batches > 0
        await field.send(topics.acks("p"), Ack(VERSION, "p", batch.epoch, "traffic", batch.sequence))
        await until(lambda: service.stores.spool.batches == 0)

        await field.send(topics.demand("traffic"), frames.demand(), retain=True)
        await until(lambda: service.metrics.value("demands") == 2)
        await service.merging.settled()
        await field.send(packets, frames.packet(3, clock=11 * S, low_watermark=20 * S, listen=50_000, program=NUMBER))
        await until(lambda: len(field.programs()) == 2)
        assert field.programs()[-1] == SLEEP
        await field.send(packets, frames.packet(4, clock=12 * S, low_watermark=20 * S))
        entry = topics.mote_entry("p", "m1")
        await until(lambda: field.frames(entry, decode_mote_entry)[-1:] and
                    field.frames(entry, decode_mote_entry)[-1].state is MoteState.SLEEPING)  # fmt: skip
    await until(lambda: field.frames(topics.proxy_status("p"), decode_status)[-1].presence is Presence.OFFLINE)
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping


async def test_offers_are_published_before_batches(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (10 * S, 1.0), clock=10 * S, program=NUMBER))
        await until(lambda: published_batches(service.link))
        names = [each.topic for each in service.link.published]
        offers, batches = topics.stream_offer("p", "traffic"), topics.batches("p")
        assert names.index(offers) < names.index(batches)
        # So also after a new connection, which sends again what was not acknowledged.
        service.link.published.clear()
        await service.link.connect()
        await until(lambda: published_batches(service.link))
        names = [each.topic for each in service.link.published]
        assert names.index(offers) < names.index(batches)


async def test_a_wrong_clock_is_counted_and_named_by_default(settings, frames):
    settings = settings.model_copy(update={"max_clock_behind": ProxySettings().max_clock_behind})
    async with running(settings) as service:
        await introduce(service, frames)
        await receive(service, frames.packet(0, (0, 1.0), (0, 2.0), program=NUMBER))
        topic = topics.mote_entry("p", "m1")
        await until(lambda: any(decode_mote_entry(each.payload).clock_fault for each in service.link.on(topic)))
        assert service.metrics.value("samples_rejected", "clock_behind") == 2
        assert service.metrics.value("packets_refused", "clock_behind") == 1
        assert service.metrics.value("motes_wrong_clock_times", "behind") == 1
        families = {each.name: each for each in service.metrics.collect()}
        samples = families["fjord_proxy_motes_wrong_clock"].samples
        assert {each.labels["fault"]: each.value for each in samples} == {"ahead": 0, "behind": 1}
    entry = decode_mote_entry(service.link.on(topic)[-1].payload)
    assert (entry.clock_fault, entry.samples_behind, entry.samples_ahead) == ("behind", 2, 0)


async def test_a_demand_that_comes_while_pieces_of_another_are_requested_ends_nothing(settings, frames):
    radio_us = 0
    async with running(settings, clocks=Clocks(lambda: radio_us)) as service:
        head = DemandHead(VERSION, "c", "traffic", 1, {0: digest_of(b"a piece that is lost")})
        await send(service, topics.demand("traffic"), head, retain=True)
        publish = service.link.publish

        async def publish_slowly(message):
            if message.topic == topics.demand_request("p", "traffic"):
                await send(service, topics.demand("weather"), frames.demand(stream="weather"), retain=True)
            await publish(message)

        service.link.publish = publish_slowly
        radio_us = FIRST_REQUEST_US
        await until(lambda: service.link.on(topics.demand_request("p", "traffic")))
        service.link.published.clear()
        radio_us += CLOCK_EVERY_US
        await until(lambda: service.link.on(topics.proxy_clock("p")))


async def test_the_clock_of_the_proxy_is_published_regularly(settings):
    radio_us = 0
    clocks = Clocks(lambda: radio_us, lambda: 7)
    async with running(settings, clocks=clocks) as service:
        topic = topics.proxy_clock("p")
        await until(lambda: service.link.on(topic))
        await asyncio.sleep(0)
        radio_us = CLOCK_EVERY_US
        await until(lambda: len(service.link.on(topic)) == 2)
        radio_us += CLOCK_EVERY_US - 1
    assert len(service.link.on(topic)) == 2
    assert {(decode_proxy_clock(each.payload).clock_us, each.qos, each.retain) for each in service.link.on(topic)} == {
        (7, 0, False)
    }


class EchoingLink(FakeLink):
    """Returns what the proxy sends to itself, as a broker does."""

    async def publish(self, message):
        await super().publish(message)
        if message.topic == topics.proxy_claim("p"):
            await self.take([message])


@pytest.mark.parametrize(("link", "goes_on"), [(EchoingLink, True), (FakeLink, False)], ids=["echoes", "no echoes"])
async def test_a_stream_goes_on_without_its_motes_if_the_broker_returns_what_the_proxy_sends_itself(
    settings, frames, monkeypatch, link, goes_on
):
    monkeypatch.setattr("proxy.running.service._CLOCK_SECONDS", 0.001)
    now = [0]

    def radio():
        now[0] += S // 20
        return now[0]

    async with running(settings, make_link=link, clocks=Clocks(radio, lambda: now[0])) as service:
        await introduce(service, frames)
        await service.merging.settled()
        await receive(service, frames.packet(0, (now[0], 1.0), clock=now[0], program=NUMBER))
        await until(lambda: any(each.sampling for each in published_batches(service.link)))
        sent = now[0]
        if goes_on:
            await until(lambda: published_batches(service.link)[-1].watermark_us > sent)
            assert not published_batches(service.link)[-1].sampling
            assert published_batches(service.link)[-1].watermark_us < now[0]
        else:
            await until(lambda: now[0] > sent + 100 * S)
            assert published_batches(service.link)[-1].watermark_us <= sent
            assert len(service.link.on(topics.proxy_claim("p"))) == 1
