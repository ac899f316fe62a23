"""A session that outlives its connections: with a scripted broker, and with Mosquitto."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from protocols.mqtt.answers import ConnectAnswer, UnsubscribeAnswer
from protocols.mqtt.client_protocol import ClientProtocol
from protocols.mqtt.frames import length_octets
from protocols.mqtt.link import BrokerAddress, LastingSession, Message, MqttLink, Subscription
from protocols.mqtt.messages import Version
from protocols.mqtt.sent_frames import Connect
from proxy.broker import running_broker
from tests.protocols.test_mqtt import TIME_LIMIT_SECONDS, Peer, away, running
from tests.protocols.test_mqtt_versions import CONNECT, V3, V5, ScriptedBroker, at, needs_mosquitto, until

PUBACK = 4
PRESENT = {V3: b"\x20\x02\x01\x00", V5: b"\x20\x03\x01\x00\x00"}
BEGUN = {V3: b"\x20\x02\x00\x00", V5: b"\x20\x03\x00\x00\x00"}
ENDS_WITH_CONNECTION = b"\x20\x08\x00\x00\x05\x11\x00\x00\x00\x00"
HOUR = LastingSession(3_600, in_flight=700)


def publish(number, payload, *, again=False):
    body = b"\0\1d" + number.to_bytes(2, "big") + b"\0" + payload
    return bytes((0x3A if again else 0x32,)) + length_octets(len(body)) + body


def acknowledged(broker):
    return [int.from_bytes(frame[2:4], "big") for frame in broker.sent(PUBACK)]


class Receiver:
    """A link with a lasting session, whose messages are acknowledged when the test wants it."""

    def __init__(self, address, session=HOUR, **options):
        self.link = MqttLink(address, client_id="devices", session=session, **options)
        self.received = []

    async def take(self, messages):
        self.received += messages

    @property
    def seen(self):
        return [(each.payload, each.again) for each in self.received]


@contextlib.asynccontextmanager
async def receiving(receiver):
    task = asyncio.create_task(receiver.link.run_in_bursts(receiver.take))
    try:
        await asyncio.wait_for(receiver.link.connected.wait(), TIME_LIMIT_SECONDS)
        yield receiver
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("version", Version)
def test_a_session_that_was_asked_for_may_go_on_and_no_other(version):
    asked = ClientProtocol(version, Connect("a", session_seconds=60))
    assert asked.receive(PRESENT[version]).answers == [ConnectAnswer(0, session_present=True)]
    assert ClientProtocol(version, Connect("a")).receive(PRESENT[version]).trouble is not None


@pytest.mark.parametrize("version", Version)
def test_only_a_lasting_session_begins_unclean_and_says_for_how_long(version):
    clean, lasting = (Connect("a", session_seconds=each).frame(version) for each in (None, 60))
    assert clean[9] & 0x02
    assert not lasting[9] & 0x02
    assert (b"\x11\x00\x00\x00\x3c" in lasting) is (version is V5)
    assert b"\x11\x00\x00\x00" not in clean


def answering(connack):
    return lambda frame: connack if frame[0] >> 4 == CONNECT else b""


async def test_messages_are_acknowledged_when_their_receiver_wants_it():
    async with ScriptedBroker(answering(BEGUN[V5])) as broker, receiving(Receiver(broker.address)) as receiver:
        assert (receiver.link.session_present, receiver.link.session_lasts) == (False, True)
        broker.send(publish(5, b"a") + publish(6, b"b", again=True) + b"\x30\x05\0\1d\0c")
        await until(lambda: len(receiver.received) == 3)
        assert receiver.seen == [(b"a", False), (b"b", True), (b"c", False)]
        assert [each.number & 0xFFFF for each in receiver.received] == [5, 6, 0]
        assert acknowledged(broker) == []
        receiver.link.acknowledge([each.number for each in receiver.received[:1]])
        await until(lambda: acknowledged(broker) == [5])
        receiver.link.acknowledge([each.number for each in receiver.received[1:2]])
        await until(lambda: acknowledged(broker) == [5, 6])


async def test_messages_of_a_connection_that_is_gone_are_not_acknowledged_on_the_next():
    async with ScriptedBroker(answering(PRESENT[V5])) as broker, receiving(Receiver(broker.address)) as receiver:
        assert receiver.link.session_present
        broker.send(publish(5, b"a"))
        await until(lambda: receiver.received)
        broker.send(b"\xd0\x01\x00")
        await away(receiver.link)
        await asyncio.wait_for(receiver.link.connected.wait(), TIME_LIMIT_SECONDS)
        broker.send(publish(5, b"a", again=True))
        await until(lambda: len(receiver.received) == 2)
        receiver.link.acknowledge([receiver.received[0].number])
        receiver.link.acknowledge([receiver.received[1].number])
        await until(lambda: acknowledged(broker))
        assert acknowledged(broker) == [5]


async def test_a_broker_that_keeps_no_session_is_noticed():
    async with (
        ScriptedBroker(answering(ENDS_WITH_CONNECTION)) as broker,
        receiving(Receiver(broker.address)) as receiver,
    ):
        assert not receiver.link.session_lasts


async def test_where_sessions_are_wanted_in_mqtt_5_only_an_older_broker_gets_acknowledgements_at_once():
    def answers(frame):
        old = frame[0] >> 4 == CONNECT and frame[8] == V3
        return (BEGUN[V3] if old else b"\x20\x02\x00\x01") if frame[0] >> 4 == CONNECT else b""

    only_new = LastingSession(3_600, versions=(V5,))
    async with ScriptedBroker(answers) as broker, receiving(Receiver(broker.address, only_new)) as receiver:
        assert not receiver.link.session_lasts
        broker.send(b"\x32\x06\0\1d\0\7a")
        await until(lambda: acknowledged(broker) == [7])
        assert receiver.received == [Message("d", b"a")]


async def test_a_session_of_mqtt_5_goes_on_with_an_older_version():
    versions = []

    def answers(frame):
        if frame[0] >> 4 != CONNECT:
            return b""
        versions.append((frame[8], bool(frame[9] & 0x02)))
        if frame[8] == V3:
            return PRESENT[V3]
        return BEGUN[V5] if len(versions) == 1 else None

    only_new = LastingSession(3_600, versions=(V5,))
    async with ScriptedBroker(answers) as broker, receiving(Receiver(broker.address, only_new)) as receiver:
        broker.send(b"\xd0\x01\x00")
        await away(receiver.link)
        await asyncio.wait_for(receiver.link.connected.wait(), TIME_LIMIT_SECONDS)
        assert versions == [(V5, False), (V5, False), (V3, False)]
        assert receiver.link.session_present


@needs_mosquitto
@pytest.mark.parametrize("version", Version)
async def test_mosquitto_keeps_messages_and_sends_what_was_not_acknowledged_again(version):
    async with running_broker(engine="mosquitto") as broker, running(Peer(at(broker), "sensor")) as sensor:
        address = BrokerAddress(broker.host, broker.port)

        def link():
            return Receiver(address, versions=[version], subscriptions=[Subscription("d/+")])

        async with receiving(link()) as first:
            assert not first.link.session_present
            for number in range(1, 4):
                await sensor.link.publish(Message("d/a", b"%d" % number))
            await until(lambda: len(first.received) == 3)
            first.link.acknowledge([each.number for each in first.received[:2]])
        await sensor.link.publish(Message("d/a", b"4"))
        async with receiving(link()) as second:
            assert second.link.session_present
            await until(lambda: len(second.received) == 2)
            assert [each.payload for each in second.received] == [b"3", b"4"]
            assert second.received[0].again
            assert second.received[0].number & 0xFFFF == first.received[2].number & 0xFFFF
            second.link.acknowledge([each.number for each in second.received])
        async with receiving(link()) as third:
            await sensor.link.publish(Message("d/a", b"5"))
            await until(lambda: third.received)
            assert third.seen == [(b"5", False)]


@needs_mosquitto
@pytest.mark.parametrize("version", Version)
async def test_a_session_ends_subscriptions_from_before_and_keeps_what_has_come_by_them(version):
    async with running_broker(engine="mosquitto") as broker, running(Peer(at(broker), "sensor")) as sensor:
        address = BrokerAddress(broker.host, broker.port)

        def link(*filters, former=()):
            session = LastingSession(3_600, former=former)
            subscriptions = [Subscription(each) for each in filters]
            return Receiver(address, session, versions=[version], subscriptions=subscriptions)

        async with receiving(link("d/+", "e")):
            pass
        await sensor.link.publish(Message("d/a", b"1"))
        async with receiving(link("d/a", former=("d/+", "e"))) as second:
            for topic in ("d/a", "d/b", "e", "d/a"):
                await sensor.link.publish(Message(topic, topic.encode()))
            await sensor.link.publish(Message("d/a", b"end"))
            await until(lambda: second.received[-1:] and second.received[-1].payload == b"end")
            assert [each.payload for each in second.received] == [b"1", b"d/a", b"d/a", b"end"]


@pytest.mark.parametrize("version", Version)
def test_the_answer_to_an_unsubscription_has_a_code_for_each_filter_in_mqtt_5_only(version):
    def answer(*codes, number=1):
        protocol = ClientProtocol(version, Connect("a", session_seconds=60))
        protocol.receive(PRESENT[version])
        assert protocol.unsubscribe(["a", "b/+"])[0] == 1
        body = number.to_bytes(2, "big") + (b"\0" if version is V5 else b"") + bytes(codes)
        return protocol.receive(bytes((0xB0, len(body))) + body)

    good, bad = ((0, 0x11), ()) if version is V5 else ((), (0, 0))
    assert answer(*good).answers == [UnsubscribeAnswer(1, good)]
    assert "did not get" in str(answer(*bad).trouble)
    assert "did not get" in str(answer(*good, number=2).trouble)


@needs_mosquitto
@pytest.mark.parametrize("version", Version)
async def test_mosquitto_sends_what_has_waited_before_what_is_published_after(version):
    """Of all topics, so that a proxy knows by a message of its own that nothing waits any more."""
    few_in_flight = LastingSession(3_600, in_flight=20)
    async with running_broker(engine="mosquitto") as broker, running(Peer(at(broker), "sensor")) as sensor:
        address = BrokerAddress(broker.host, broker.port)
        subscriptions = [Subscription("d/+"), Subscription("marker/+")]

        def link():
            return Receiver(address, session=few_in_flight, versions=[version], subscriptions=subscriptions)

        async with receiving(link()) as first:
            await sensor.link.publish(Message("d/a", b"0"))
            await until(lambda: first.received)
        waiting = [b"%d" % number for number in range(1, 301)]
        for payload in waiting:
            await sensor.link.publish(Message(f"d/{int(payload) % 7}", payload))
        second = link()
        async with receiving(second):
            await sensor.link.publish(Message("marker/1", b""))

            def acknowledge_and_look():
                second.link.acknowledge([each.number for each in second.received[acknowledge_and_look.count :]])
                acknowledge_and_look.count = len(second.received)
                return any(each.topic == "marker/1" for each in second.received)

            acknowledge_and_look.count = 0
            await until(acknowledge_and_look)
        payloads = [each.payload for each in second.received]
        assert payloads == [b"0", *waiting, b""]
