"""The link to the broker, against real brokers: the behaviour that Fjord relies on, with any client library."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import sys

import pytest

from protocols.mqtt.connection import BURST_MESSAGES, connect
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription, Version, pauses
from protocols.mqtt.publishing import MOST_IN_FLIGHT
from proxy.broker import running_broker
from proxy.broker.choice import BrokerSettings
from proxy.broker.mosquitto import find_mosquitto
from proxy.broker.running import broker_by_settings

TIME_LIMIT_SECONDS = 20
OLD = (Version.V3_1_1,)
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed")
ENGINES = [pytest.param("amqtt", id="amqtt"), pytest.param("mosquitto", id="mosquitto", marks=needs_mosquitto)]

WITH_WILL = """
import asyncio, sys
from protocols.mqtt.link import BrokerAddress, Message, MqttLink

async def main():
    link = MqttLink(
        BrokerAddress(port=int(sys.argv[1])), client_id="doomed", will=Message("status", b"offline", retain=True),
        births=[Message("status", b"online", retain=True)],
    )
    await link.run(print)

asyncio.run(main())
"""


class Peer:
    """A link, the messages it has received, and a way to wait for more."""

    def __init__(self, address, client_id, *filters, qos=1, slow_seconds=0.0, **options):
        subscriptions = [Subscription(each, qos) for each in filters]
        self.link = MqttLink(address, client_id=client_id, subscriptions=subscriptions, **options)
        self.received = []
        self.under_way = self.most_under_way = 0
        self._slow_seconds = slow_seconds
        self._changed = asyncio.Event()

    async def take(self, message):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self._slow_seconds:
            await asyncio.sleep(self._slow_seconds)
        self.received.append(message)
        self.under_way -= 1
        self._changed.set()

    async def until(self, count):
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            while len(self.received) < count:
                self._changed.clear()
                await self._changed.wait()

    @property
    def payloads(self):
        return [message.payload for message in self.received]


@contextlib.asynccontextmanager
async def running(peer):
    task = asyncio.create_task(peer.link.run(peer.take))
    try:
        await asyncio.wait_for(peer.link.connected.wait(), TIME_LIMIT_SECONDS)
        yield peer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def at(broker):
    return BrokerAddress(broker.host, broker.port)


async def away(link):
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        while link.connected.is_set():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("qos", [0, 1])
async def test_messages_come_in_order_with_their_topic_and_payload(engine, qos):
    async with running_broker(engine=engine) as broker, running(Peer(at(broker), "a", "to/+", qos=qos)) as receiver:
        sent = [Message(f"to/{number % 3}", bytes([number]) * number, qos=qos) for number in range(100)]
        async with running(Peer(at(broker), "b")) as sender:
            for each in sent:
                await sender.link.publish(each)
            await receiver.until(len(sent))
    assert receiver.received == sent


@pytest.mark.parametrize("engine", ENGINES)
async def test_more_published_at_once_than_may_be_in_flight(engine):
    count = MOST_IN_FLIGHT + 2 * BURST_MESSAGES
    async with running_broker(engine=engine) as broker, running(Peer(at(broker), "a", "#")) as peer:
        await asyncio.gather(*(peer.link.publish(Message("n", str(number).encode())) for number in range(count)))
        await peer.until(count)
    assert peer.payloads == [str(number).encode() for number in range(count)]
    assert peer.most_under_way == 1


async def test_a_message_of_eight_megabytes(broker):
    async with running(Peer(at(broker), "a", "#")) as peer:
        payload = random.Random(1).randbytes(8 * 1024**2)
        await peer.link.publish(Message("large", payload))
        await peer.link.publish(Message("small", b""))
        await peer.until(2)
    assert peer.payloads == [payload, b""]


@pytest.mark.parametrize("engine", ENGINES)
async def test_retained_messages_are_marked(engine):
    async with running_broker(engine=engine) as broker:
        async with running(Peer(at(broker), "a", "#")) as peer:
            await peer.link.publish(Message("kept", b"old", retain=True))
            await peer.until(1)
        async with running(Peer(at(broker), "b", "#")) as later:
            await later.until(1)
            await later.link.publish(Message("kept", b"new", retain=True))
            async with asyncio.timeout(TIME_LIMIT_SECONDS):
                while b"new" not in later.payloads:
                    await later.until(len(later.received) + 1)
    assert [(each.payload, each.retain) for each in peer.received] == [(b"old", False)]
    # amqtt sends a subscriber retained messages twice.
    assert {(each.payload, each.retain) for each in later.received} == {(b"old", True), (b"new", False)}


async def test_births_follow_subscriptions_and_come_before_on_connect(broker):
    greeted = asyncio.Event()

    async def connected():
        await watching.until(1)  # in vain, if the birth came only afterwards
        greeted.set()

    async with running(Peer(at(broker), "b", "birth")) as watching:
        peer = Peer(at(broker), "a", "birth", births=[Message("birth", b"here")], on_connect=connected)
        async with running(peer):
            await asyncio.wait_for(greeted.wait(), TIME_LIMIT_SECONDS)
            await peer.until(1)
    assert watching.payloads == peer.payloads == [b"here"]
    assert peer.link.connects_total == 1


@pytest.mark.parametrize("engine", ENGINES)
async def test_it_finds_a_broker_that_was_started_again(engine):
    lost = []
    async with running_broker(engine=engine) as broker:
        address = at(broker)
        births = [Message("birth", b"here")]
        peer = Peer(
            address, "a", "birth", "later", births=births, on_disconnect=lambda: lost.append(len(peer.received))
        )
        task = asyncio.create_task(peer.link.run(peer.take))
        await peer.until(1)
    await away(peer.link)
    with pytest.raises(LinkError, match="not connected"):
        await peer.link.publish(Message("later", b"lost"))
    async with running_broker(address.port, engine=engine):
        await peer.until(2)
        await peer.link.publish(Message("later", b"again"))
        await peer.until(3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert peer.payloads == [b"here", b"here", b"again"]
    assert peer.link.connects_total == 2
    assert lost == [1, 3]
    assert not peer.link.connected.is_set()


async def test_a_subscription_of_later_stands_at_once_and_after_the_next_connect():
    async with running_broker() as broker:
        address = at(broker)
        peer = Peer(address, "a")
        task = asyncio.create_task(peer.link.run(peer.take))
        await asyncio.wait_for(peer.link.connected.wait(), TIME_LIMIT_SECONDS)
        await peer.link.subscribe(Subscription("late"))
        await peer.link.publish(Message("late", b"1"))
        await peer.until(1)
    await away(peer.link)
    async with running_broker(address.port):
        await asyncio.wait_for(peer.link.connected.wait(), TIME_LIMIT_SECONDS)
        await peer.link.publish(Message("late", b"2"))
        await peer.until(2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert peer.payloads == [b"1", b"2"]


async def test_publishing_without_a_connection_is_refused():
    link = MqttLink(BrokerAddress(port=1), client_id="a")
    with pytest.raises(LinkError, match=r"not connected to the broker at 127\.0\.0\.1:1"):
        await link.publish(Message("any", b""))


class SilentBroker:
    """Accepts a connection and takes messages, and never acknowledges one."""

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = BrokerAddress(port=self.server.sockets[0].getsockname()[1])
        self.published = asyncio.Event()
        self.connections = []
        return self

    async def __aexit__(self, *_):
        self.hang_up()
        self.server.close()
        await self.server.wait_closed()

    def hang_up(self):
        for each in self.connections:
            each.close()

    async def _serve(self, reader, writer):
        self.connections.append(writer)
        await reader.read(1000)
        writer.write(b"\x20\x02\x00\x00")
        if await reader.read(1000):
            self.published.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()


async def test_publishing_waits_for_the_broker_and_fails_when_the_connection_breaks_first():
    async with SilentBroker() as broker, running(Peer(broker.address, "a", versions=OLD)) as peer:
        publishing = asyncio.create_task(peer.link.publish(Message("any", b"x")))
        await asyncio.wait_for(broker.published.wait(), TIME_LIMIT_SECONDS)
        assert not publishing.done()
        broker.hang_up()
        with pytest.raises(LinkError, match="did not take a message on any"):
            await asyncio.wait_for(publishing, TIME_LIMIT_SECONDS)


async def test_publishing_without_a_quality_of_service_does_not_wait():
    async with SilentBroker() as broker, running(Peer(broker.address, "a", versions=OLD)) as peer:
        await asyncio.wait_for(peer.link.publish(Message("any", b"x", qos=0)), TIME_LIMIT_SECONDS)


@pytest.mark.faults
@pytest.mark.parametrize("engine", ENGINES)
async def test_the_will_of_a_killed_client_is_published(engine):
    async with running_broker(engine=engine) as broker, running(Peer(at(broker), "a", "status")) as peer:
        doomed = await asyncio.create_subprocess_exec(sys.executable, "-c", WITH_WILL, str(broker.port))
        await peer.until(1)
        doomed.kill()
        await doomed.wait()
        await peer.until(2)
    assert peer.payloads == [b"online", b"offline"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_clean_disconnect_publishes_no_will(engine):
    async with running_broker(engine=engine) as broker, running(Peer(at(broker), "a", "#")) as peer:
        async with running(Peer(at(broker), "b", will=Message("status", b"offline"))):
            pass
        await peer.link.publish(Message("other", b"afterwards"))
        await peer.until(1)
    assert peer.payloads == [b"afterwards"]


@needs_mosquitto
async def test_a_slow_handler_holds_back_the_broker_and_loses_nothing():
    count = 300
    async with (
        running_broker(engine="mosquitto") as broker,
        running(Peer(at(broker), "slow", "#", slow_seconds=0.001, max_queued=10)) as slow,
        running(Peer(at(broker), "fast")) as fast,
    ):
        await asyncio.gather(*(fast.link.publish(Message("n", b"%d" % number)) for number in range(count)))
        await slow.until(count)
    assert slow.payloads == [b"%d" % number for number in range(count)]
    assert slow.most_under_way == 1


async def test_messages_are_acknowledged_after_they_were_taken():
    """What the client sends while its handler is at work comes before the acknowledgements."""
    settings, marker = b"\x32\x06\x00\x01n\x00%cx", b"\x30\x03\x00\x01m"

    async def serve(reader, writer):
        await reader.read(1000)
        writer.write(b"\x20\x02\x00\x00" + settings % 1 + settings % 2)
        first.set_result(await reader.readexactly(len(marker)))
        then.set_result(await reader.read(1000))
        writer.close()

    at_work, done = asyncio.Event(), asyncio.Event()
    first, then = (asyncio.get_running_loop().create_future() for _ in range(2))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])

    async def take(_messages):
        at_work.set()
        await done.wait()

    async with server, connect(address, client_id="a", will=None, max_queued=10, versions=OLD) as connection:
        receiving = asyncio.create_task(connection.receive(take))
        await asyncio.wait_for(at_work.wait(), TIME_LIMIT_SECONDS)
        await connection.publish(Message("m", b"", qos=0))
        assert await asyncio.wait_for(first, TIME_LIMIT_SECONDS) == marker
        done.set()
        assert await asyncio.wait_for(then, TIME_LIMIT_SECONDS) == b"\x40\x02\x00\x01\x40\x02\x00\x02"
        with pytest.raises(LinkError, match="broke"):
            await asyncio.wait_for(receiving, TIME_LIMIT_SECONDS)


async def test_a_connection_that_brings_no_mqtt_is_given_up():
    async def serve(reader, writer):
        await reader.read(1000)
        writer.write(b"\x20\x02\x00\x00" + b"\x30\x04\x00\x01nx" + b"\x30\xff\xff\xff\xff\xff")
        await reader.read(1000)
        writer.close()

    received = []

    async def take(messages):
        received.extend(message.payload for message in messages)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])
    async with server, connect(address, client_id="a", will=None, max_queued=3, versions=OLD) as connection:
        with pytest.raises(LinkError, match="was given up: it does not follow MQTT: a length has more than four bytes"):
            await asyncio.wait_for(connection.receive(take), TIME_LIMIT_SECONDS)
    assert received == [b"x"]


async def test_only_messages_without_acknowledgement_are_dropped_when_too_many_wait():
    unacknowledged, acknowledged = b"\x30\x04\x00\x01n%c", b"\x32\x06\x00\x01n\x00%c%c"

    async def serve(reader, writer):
        await reader.read(1000)
        sent = [unacknowledged % number for number in range(5)]
        sent += [acknowledged % (number, number) for number in range(5, 10)]
        writer.write(b"\x20\x02\x00\x00" + b"".join(sent))
        await reader.read(1000)
        writer.close()

    received = []

    async def take(messages):
        received.extend(message.payload[0] for message in messages)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])
    async with server, connect(address, client_id="a", will=None, max_queued=3, versions=OLD) as connection:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            while len(connection._inbox) < 8:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.001)
        with pytest.raises(LinkError, match="broke"):
            await asyncio.wait_for(connection.receive(take), TIME_LIMIT_SECONDS)
    assert received == [0, 1, 2, 5, 6, 7, 8, 9]


@needs_mosquitto
async def test_a_wrong_password_is_refused_again_and_again_and_never_logged(tmp_path, caplog, capsys):
    passwords = tmp_path / "users"
    passwords.write_text("ann:hunter2\n")
    hashing = await asyncio.create_subprocess_exec("mosquitto_passwd", "-U", passwords)
    assert await hashing.wait() == 0
    caplog.set_level(logging.DEBUG)
    async with broker_by_settings(BrokerSettings(password_file=passwords), "mosquitto") as (broker, _):
        wrong = Peer(BrokerAddress(broker.host, broker.port, "ann", "guessed-wrong"), "a")
        trying = asyncio.create_task(wrong.link.run(wrong.take))
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            while wrong.link.failed_attempts < 2:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        printed = capsys.readouterr().out
        assert printed.count("broker is away") == 1
        trying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await trying
        assert wrong.link.connects_total == 0
        async with running(Peer(BrokerAddress(broker.host, broker.port, "ann", "hunter2"), "b", "#")) as right:
            await right.link.publish(Message("any", b""))
            await right.until(1)
    printed += caplog.text + str(capsys.readouterr()) + repr(wrong.link.address)
    assert "guessed-wrong" not in printed
    assert "hunter2" not in printed
    assert "bad user name or password" in printed.lower() or "not authorised" in printed.lower()


def test_pauses_double_up_to_a_bound_and_differ():
    first = list(itertools.islice(pauses(random.Random(1)), 12))
    assert all(0.125 <= pause <= 0.25 for pause in first[:1])
    assert all(7.5 <= pause <= 15.0 for pause in first[-4:])
    assert first != list(itertools.islice(pauses(random.Random(2)), 12))


@pytest.mark.parametrize(("lasts", "grow"), [(0.0, True), (60.0, False)])
async def test_a_broker_that_ends_each_connection_at_once_is_tried_ever_less_often(monkeypatch, lasts, grow):
    """As when two clients have one name: each would end the other's connection for ever."""
    now, slept = [0.0], []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now[0])
    link = MqttLink(BrokerAddress(), client_id="c")

    async def ended(_):
        link.connected.set()
        now[0] += lasts
        raise LinkError("another client has this name")

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 8:
            raise asyncio.CancelledError

    monkeypatch.setattr(link, "_connect_and_receive", ended)
    monkeypatch.setattr("protocols.mqtt.link.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await link.run_in_bursts(None)
    assert (slept[-1] > 7) is grow
    assert slept[0] <= 0.25
