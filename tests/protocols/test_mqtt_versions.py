"""MQTT 5 where the broker speaks it, and MQTT 3.1.1 where it does not."""

from __future__ import annotations

import asyncio
import contextlib

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from protocols.mqtt import connection as connection_module
from protocols.mqtt import link as link_module
from protocols.mqtt.connection import connect
from protocols.mqtt.frames import frame_bounds
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription, Version
from proxy.broker import running_broker
from tests.protocols.test_mqtt import ENGINES, TIME_LIMIT_SECONDS, Peer, at, away, needs_mosquitto, running

V3, V5 = Version.V3_1_1, Version.V5
CONNECT, PUBLISH, SUBSCRIBE, PING, DISCONNECT = 1, 3, 8, 12, 14
ACCEPTED = {V3: b"\x20\x02\x00\x00", V5: b"\x20\x03\x00\x00\x00"}
LEVEL_AT = 8


class ScriptedBroker:
    """Answers frame by frame with what a function returns, None to hang up; keeps the versions that it was offered."""

    def __init__(self, answers):
        self.versions = []
        self.frames = []
        self._answers = answers
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = BrokerAddress(port=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_):
        for each in self._writers:
            each.close()
        self._server.close()

    def send(self, octets):
        self._writers[-1].write(octets)

    async def _serve(self, reader, writer):
        self._writers.append(writer)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                received += data
                while (bounds := frame_bounds(received, 0)) is not None and bounds.end <= len(received):
                    frame, received = received[: bounds.end], received[bounds.end :]
                    self.frames.append(frame)
                    if frame[0] >> 4 == CONNECT:
                        self.versions.append(Version(frame[LEVEL_AT]))
                    answer = self._answers(frame)
                    if answer is None:
                        writer.close()
                        return
                    writer.write(answer)

    def sent(self, kind):
        """Return the frames of a kind that it got."""
        return [frame for frame in self.frames if frame[0] >> 4 == kind]


def accepting(frame, accepted=ACCEPTED[V5]):
    """Accept a connection and each subscription, and acknowledge nothing."""
    match frame[0] >> 4:
        case _ if frame[0] >> 4 == CONNECT:
            return accepted
        case _ if frame[0] >> 4 == PING:
            return b"\xd0\x00"
        case _:
            return b""


async def until(reached):
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        while not reached():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def connected(broker, **options):
    async with connect(broker.address, client_id="a", will=None, max_queued=10, **options) as connection:
        yield connection


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_newest_version_that_the_broker_speaks(engine):
    async with (
        running_broker(engine=engine) as broker,
        connect(at(broker), client_id="a", will=None, max_queued=10) as connection,
    ):
        assert connection.version is (V5 if engine == "mosquitto" else V3)


@pytest.mark.parametrize(
    "refusal", [b"\x20\x02\x00\x01", b"\x20\x02\x00\x00", b"\x20\x03\x00\x84\x00", None], ids=["1", "0", "132", "end"]
)
async def test_an_older_broker_is_offered_its_version_and_then_no_other(refusal):
    def answers(frame):
        return (ACCEPTED[V3] if frame[LEVEL_AT] == V3 else refusal) if frame[0] >> 4 == CONNECT else b""

    async with ScriptedBroker(answers) as broker, running(Peer(broker.address, "a")) as peer:
        assert broker.versions == [V5, V3]
        broker.send(b"\xd0\x01\x00")
        await away(peer.link)
        await asyncio.wait_for(peer.link.connected.wait(), TIME_LIMIT_SECONDS)
        assert broker.versions == [V5, V3, V3]


async def test_a_broker_that_refuses_for_another_reason_is_not_offered_an_older_version():
    async with ScriptedBroker(lambda _: b"\x20\x03\x00\x88\x00") as broker:
        with pytest.raises(LinkError, match="server unavailable"):
            async with connected(broker):
                pass
        assert broker.versions == [V5]


async def test_a_broker_that_refuses_both_versions():
    async with ScriptedBroker(lambda _: b"\x20\x02\x00\x01") as broker:
        with pytest.raises(LinkError, match="unacceptable protocol version"):
            async with connected(broker):
                pass
        assert broker.versions == [V5, V3]


@needs_mosquitto
async def test_expiry_and_user_properties_reach_a_subscriber_of_mqtt_5():
    stimuli = (("stimulus", "s-1"), ("stimulus", "s-2"))
    async with (
        running_broker(engine="mosquitto") as broker,
        running(Peer(at(broker), "new", "#")) as new,
        running(Peer(at(broker), "old", "#", versions=[V3])) as old,
        aiomqtt.Client(broker.host, broker.port, protocol=aiomqtt.ProtocolVersion.V5) as other,
    ):
        await other.subscribe("ours", qos=1)
        await new.link.publish(Message("ours", b"x", expiry_seconds=60, user_properties=stimuli))
        received = await anext(aiter(other.messages))
        assert received.properties.UserProperty == list(stimuli)
        assert received.properties.MessageExpiryInterval == 60
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = list(stimuli)
        await other.publish("theirs", b"y", qos=1, properties=properties)
        await asyncio.gather(new.until(2), old.until(2))
    assert new.received == [
        Message("ours", b"x", expiry_seconds=60, user_properties=stimuli),
        Message("theirs", b"y", user_properties=stimuli),
    ]
    assert old.received == [Message("ours", b"x"), Message("theirs", b"y")]


@needs_mosquitto
async def test_a_retained_message_expires_unless_it_has_no_expiry():
    async with running_broker(engine="mosquitto") as broker:
        async with running(Peer(at(broker), "a")) as peer:
            await peer.link.publish(Message("brief", b"x", retain=True, expiry_seconds=1))
            await peer.link.publish(Message("lasting", b"y", retain=True))
        await asyncio.sleep(2.1)
        async with running(Peer(at(broker), "b", "#")) as later:
            await later.until(1)
            await later.link.publish(Message("end", b""))
            await later.until(2)
    assert later.payloads == [b"y", b""]


async def test_why_a_broker_ends_the_connection_is_in_the_trouble():
    async with ScriptedBroker(accepting) as broker, running(Peer(broker.address, "twin")) as peer:
        broker.send(b"\xe0\x01\x8e")
        await away(peer.link)
        assert "was ended by it: another client has this name" in peer.link.trouble


async def test_no_more_messages_are_in_flight_than_the_broker_takes():
    limit = 7
    accepted = b"\x20\x06\x00\x00\x03\x21\x00" + bytes((limit,))
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker) as connection:
        publishing = [asyncio.create_task(connection.publish(Message("t", b"%d" % place))) for place in range(20)]
        await until(lambda: len(broker.sent(PUBLISH)) >= limit)
        publishing[0].cancel()  # is in flight all the same
        await connection.publish(Message("t", b"last", 0))
        await until(lambda: len(broker.sent(PUBLISH)) >= limit + 1)
        assert [frame[-1:] for frame in broker.sent(PUBLISH)] == [b"%d" % place for place in range(limit)] + [b"t"]
        broker.send(b"\x40\x02\x00\x01\x40\x02\x00\x02")
        await until(lambda: len(broker.sent(PUBLISH)) >= limit + 3)
        await publishing[1]
        assert [frame[-1:] for frame in broker.sent(PUBLISH)[-2:]] == [b"7", b"8"]
    ended = await asyncio.gather(*publishing, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError, type(None), *[LinkError] * 18]


async def test_a_message_that_the_broker_refuses_is_an_error():
    def answers(frame):
        return b"\x40\x03\x00\x01\x97" if frame[0] >> 4 == PUBLISH else accepting(frame)

    async with ScriptedBroker(answers) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match="refused a message on t: quota exceeded"):
            await connection.publish(Message("t", b""))


async def test_a_message_that_is_too_long_for_the_broker_costs_no_connection():
    accepted = b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x20"
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match="at most 32"):
            await connection.publish(Message("t", bytes(100)))
        with pytest.raises(LinkError, match="no message can be published"):
            await connection.publish(Message("t/#", b"", 0))
        await connection.publish(Message("t", b"x", 0))
        await until(lambda: len(broker.sent(PUBLISH)) == 1)


async def test_many_errors_use_up_no_room():
    accepted = b"\x20\x0b\x00\x00\x08\x21\x00\x01\x27\x00\x00\x00\x20"
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker) as connection:
        for _ in range(3):
            with pytest.raises(LinkError):
                await asyncio.wait_for(connection.publish(Message("t", bytes(100))), TIME_LIMIT_SECONDS)


async def test_a_broker_that_does_not_follow_mqtt_is_given_up_with_a_reason():
    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        receiving = asyncio.create_task(connection.receive(lambda _: asyncio.sleep(0)))
        broker.send(b"\x32\x06\x00\x01t\x00\x00\x00")
        with pytest.raises(LinkError, match="does not follow MQTT: a message has no number"):
            await asyncio.wait_for(receiving, TIME_LIMIT_SECONDS)
        await until(lambda: broker.sent(DISCONNECT) == [b"\xe0\x01\x81"])


async def test_a_length_that_never_comes_is_given_up_at_once():
    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        broker.send(b"\x30\xff\xff\xff\x7f")
        with pytest.raises(LinkError, match="a frame of 268,435,460 bytes is longer"):
            await asyncio.wait_for(connection.receive(lambda _: asyncio.sleep(0)), TIME_LIMIT_SECONDS)


async def test_the_broker_ends_the_connection_while_a_message_is_in_flight():
    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        publishing = asyncio.create_task(connection.publish(Message("t", b"")))
        await until(lambda: broker.sent(PUBLISH))
        broker.send(b"\xe0\x01\x8b")
        with pytest.raises(LinkError, match="was ended by it: server shutting down"):
            await asyncio.wait_for(publishing, TIME_LIMIT_SECONDS)
        with pytest.raises(LinkError, match="shutting down"):
            await connection.publish(Message("t", b"", 0))


async def test_closing_says_farewell_so_that_the_will_is_not_published():
    async with ScriptedBroker(accepting) as broker:
        async with connected(broker) as connection:
            await connection.publish(Message("t", b"last", 0))
        await until(lambda: broker.frames[-2:] == [b"\x30\x08\x00\x01t\x00last", b"\xe0\x00"])


async def test_frames_of_the_old_version_are_not_published_with_the_new():
    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        with pytest.raises(ValueError, match=r"MQTT 3\.1\.1"):
            await connection.publish_frames(None)


async def test_acknowledgements_and_messages_of_one_turn_leave_together():
    sizes = []

    async def serve(reader, writer):
        await reader.read(1_000)
        writer.write(ACCEPTED[V5] + b"".join(b"\x32\x06\x00\x01t\x00%c\x00" % number for number in range(1, 101)))
        while data := await reader.read(100_000):
            sizes.append(len(data))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])
    async with server, connect(address, client_id="a", will=None, max_queued=1_000) as connection:

        async def take(messages):
            for _ in messages:
                await connection.publish(Message("t", b"", 0))

        receiving = asyncio.create_task(connection.receive(take))
        await until(lambda: sum(sizes) == 100 * 6 + 100 * 4)
        receiving.cancel()
    assert len(sizes) <= 2


@needs_mosquitto
async def test_subscribing_to_what_no_filter_may_be():
    async with (
        running_broker(engine="mosquitto") as broker,
        connect(at(broker), client_id="a", will=None, max_queued=10) as connection,
    ):
        with pytest.raises(LinkError, match="cannot subscribe"):
            await connection.subscribe([Subscription("t" * 70_000)])


async def test_a_broker_that_never_answers_is_offered_both_versions_and_given_up(monkeypatch):
    monkeypatch.setattr(connection_module, "ANSWER_SECONDS", 0.2)
    async with ScriptedBroker(lambda _: b"") as broker:
        with pytest.raises(LinkError, match="did not answer"):
            async with connected(broker):
                pass
        await until(lambda: broker.versions == [V5, V3])


async def test_a_subscription_that_is_never_answered_is_an_error(monkeypatch):
    monkeypatch.setattr(connection_module, "ANSWER_SECONDS", 0.2)
    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match="did not answer a subscription"):
            await connection.subscribe([Subscription("t")])


async def test_a_subscription_that_is_cancelled_in_the_turn_of_its_answer(monkeypatch):
    def answers(frame):
        return b"\x90\x04" + frame[2:4] + b"\x00\x01" if frame[0] >> 4 == SUBSCRIBE else accepting(frame)

    async with ScriptedBroker(answers) as broker, connected(broker) as connection:
        subscribing = asyncio.create_task(connection.subscribe([Subscription("a")]))
        answered = connection._subscribed

        def answered_and_cancelled(number, granted):
            answered(number, granted)
            subscribing.cancel()

        monkeypatch.setattr(connection, "_subscribed", answered_and_cancelled)
        with pytest.raises(asyncio.CancelledError):
            await subscribing


async def test_a_birth_that_is_never_acknowledged_is_tried_again(monkeypatch):
    monkeypatch.setattr(link_module, "ANSWER_SECONDS", 0.2)
    async with ScriptedBroker(accepting) as broker:
        link = MqttLink(broker.address, client_id="a", births=[Message("born", b"", 1)])
        running_link = asyncio.create_task(link.run(None))
        await until(lambda: len(broker.sent(PUBLISH)) == 2)
        assert "did not acknowledge a birth" in link.trouble
        running_link.cancel()
        await asyncio.wait([running_link])


@pytest.mark.parametrize("host", ["x" * 70, "a..b"])
async def test_a_host_that_no_name_may_be(host):
    with pytest.raises(LinkError, match="cannot connect"):
        async with connect(BrokerAddress(host), client_id="a", will=None, max_queued=10):
            pass


async def test_a_connection_that_breaks_while_it_subscribes():
    def answers(frame):
        return None if frame[0] >> 4 == SUBSCRIBE else accepting(frame)

    async with ScriptedBroker(answers) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match="broke before it answered a subscription"):
            await asyncio.wait_for(connection.subscribe([Subscription("t")]), TIME_LIMIT_SECONDS)
        with pytest.raises(LinkError, match="is gone"):
            await connection.subscribe([Subscription("t")])


async def test_the_broker_asks_for_more_frequent_signs_of_life():
    accepted = b"\x20\x06\x00\x00\x03\x13\x00\x01"
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker):
        await until(lambda: len(broker.sent(PING)) >= 2)


async def test_a_broker_that_reads_nothing_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(connection_module, "FAREWELL_SECONDS", 0.2)
    stays = asyncio.Event()

    async def serve(reader, writer):
        await reader.read(1_000)
        writer.write(ACCEPTED[V5])
        writer.transport.pause_reading()
        await stays.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])
    async with server:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            async with connect(address, client_id="a", will=None, max_queued=10) as connection:
                publishing = asyncio.create_task(connection.publish(Message("t", bytes(20_000_000))))
                await asyncio.sleep(0.05)
            with pytest.raises(LinkError, match="broke"):
                await publishing
        stays.set()
