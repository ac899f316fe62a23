"""Frames of MQTT beside those of four other implementations: paho, amqtt, mqtt5, and gmqtt with Mosquitto as recorded.

Mosquitto and amqtt as brokers are in test_mqtt.py.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path

import mqtt5
import pytest
from amqtt.mqtt import packet_class
from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.connect import ConnectPacket
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.suback import SubackPacket
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from protocols.mqtt.answers import ConnectAnswer, Farewell, PingAnswer, PublishAnswer, SubscribeAnswer, read_answer
from protocols.mqtt.frames import MalformedFrameError, Octets, frame_bounds, take_messages
from protocols.mqtt.messages import Message, Subscription, Version
from protocols.mqtt.sent_frames import (
    DISCONNECT,
    PING,
    Connect,
    acknowledgements,
    disconnect_frame,
    publish_frame,
    subscribe_frame,
)

V3, V5 = Version.V3_1_1, Version.V5
RECORDED = [
    (V5 if each["version"] == "5" else V3, each["from"], each["kind"], bytes.fromhex(each["frame"]))
    for each in json.loads(Path(__file__).with_name("mqtt_recorded.json").read_text())["frames"]
]
WILL = Message("status/a", b"offline", qos=1, retain=True)
SUBSCRIPTIONS = [Subscription("to/+"), Subscription("from/#", 0)]
LONG = bytes(range(256)) * 2
STIMULI = (("stimulus", "s-1"), ("stimulus", "s-2"))
TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="+#\0"), min_size=1, max_size=30)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
MESSAGES = st.builds(
    Message,
    TOPICS,
    st.one_of(st.binary(max_size=20), st.integers(100, 20_000).map(bytes)),
    st.sampled_from((0, 1)),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
)
NUMBERS = st.integers(1, 0xFFFF)


def recorded(version: Version, side: str, *kinds: str) -> list[bytes]:
    """Return the frames that one side sent."""
    return [frame for its, sender, kind, frame in RECORDED if (its, sender) == (version, side) and kind in kinds]


def answer_of(version: Version, frame: bytes) -> object:
    """Return a frame as an answer."""
    bounds = frame_bounds(frame, 0)
    assert bounds is not None
    assert bounds.end == len(frame)
    return read_answer(version, frame[0], Octets(frame, *bounds))


def message_of(version: Version, frame: bytes) -> tuple[Message, int]:
    """Return a frame as a message, with its number."""
    messages: list[Message] = []
    numbers: list[int] = []
    assert take_messages(frame, 0, messages, numbers, version) == len(frame)
    (message,), (number,) = messages, numbers
    return message, number


def plain(message: Message) -> Message:
    """Return a message without what MQTT 3.1.1 has no place for."""
    return Message(message.topic, message.payload, message.qos, message.retain)


@pytest.mark.parametrize("version", [V3, V5])
def test_the_frames_that_gmqtt_sent(version):
    assert recorded(version, "client", "PUBLISH", "SUBSCRIBE", "PINGREQ") == [
        subscribe_frame(version, SUBSCRIPTIONS, 1),
        publish_frame(version, Message("to/x", b"once"), 2),
        publish_frame(version, Message("to/y", b"", 0), 0),
        publish_frame(version, Message("to/long", LONG, retain=True), 3),
        *([publish_frame(version, Message("to/z", b"expires", 1, False, 60, STIMULI), 4)] if version is V5 else ()),
        publish_frame(version, Message("nothing/here", b"x"), 4 + (version is V5)),
        PING,
    ]


def test_a_message_with_properties_that_gmqtt_sent():
    frames = recorded(V5, "client", "PUBLISH")
    assert message_of(V5, frames[3]) == (Message("to/z", b"expires", 1, False, 60, STIMULI), 4)


def test_a_connect_of_gmqtt():
    (frame,) = recorded(V3, "client", "CONNECT")
    assert frame == Connect("recorded", "ann", "hunter2", WILL, 60).frame(V3)


def test_the_frames_that_mosquitto_sent():
    assert [answer_of(V3, each) for each in recorded(V3, "broker", "CONNACK", "SUBACK", "PUBACK", "PINGRESP")] == [
        ConnectAnswer(0),
        SubscribeAnswer(1, (1, 0)),
        *(PublishAnswer(number, 0) for number in (2, 3, 4)),
        PingAnswer(),
    ]
    assert [answer_of(V5, each) for each in recorded(V5, "broker", "CONNACK", "SUBACK", "PUBACK", "PINGRESP")] == [
        ConnectAnswer(0, receive_maximum=1_000, largest_frame_bytes=16 * 1024**2),
        SubscribeAnswer(1, (1, 0)),
        *(PublishAnswer(number, 0) for number in (2, 3, 4)),
        PublishAnswer(5, 16),
        PingAnswer(),
    ]
    assert [message_of(V3, each) for each in recorded(V3, "broker", "PUBLISH")] == [
        (Message("to/x", b"once"), 1),
        (Message("to/y", b"", 0), 0),
        (Message("to/long", LONG), 2),
    ]
    assert [message_of(V5, each) for each in recorded(V5, "broker", "PUBLISH")] == [
        (Message("to/long", LONG, retain=True), 1),
        (Message("to/x", b"once"), 2),
        (Message("to/y", b"", 0), 0),
        (Message("to/long", LONG), 3),
        (Message("to/z", b"expires", 1, False, 60, STIMULI), 4),
    ]


class Recorder:
    """A broker that accepts whatever comes, and keeps it frame by frame."""

    def __init__(self, answers):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.frames = []
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(20)
        self._listening.close()

    def _serve(self):
        connection, _ = self._listening.accept()
        received = b""
        with connection:
            while data := connection.recv(65_536):
                received += data
                while (bounds := frame_bounds(received, 0)) is not None and bounds.end <= len(received):
                    frame, received = received[: bounds.end], received[bounds.end :]
                    self.frames.append(frame)
                    connection.sendall(self._answers(frame))


def sent_by_paho(version: Version) -> list[bytes]:
    def answers(frame):
        match frame[0]:
            case 0x10:
                return b"\x20\x02\x00\x00" if version is V3 else b"\x20\x03\x00\x00\x00"
            case 0x82:
                done.set()
                return b""
            case _:
                return b""

    def properties(kind, **values):
        found = Properties(kind)
        for name, value in values.items():
            setattr(found, name, value)
        return found

    done = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "a client", protocol=int(version))
    client.username_pw_set("ann", "hunter2")
    will, connect, more = None, {}, None
    if version is V5:
        will = properties(PacketTypes.WILLMESSAGE, MessageExpiryInterval=30)
        limits = properties(PacketTypes.CONNECT, ReceiveMaximum=500, MaximumPacketSize=100_000)
        connect = {"properties": limits, "clean_start": True}
        more = properties(PacketTypes.PUBLISH, MessageExpiryInterval=60)
        more.UserProperty = list(STIMULI)
    client.will_set("status/a", b"offline", qos=1, retain=True, properties=will)
    with Recorder(answers) as recorder:
        client.connect("127.0.0.1", recorder.port, 77, **connect)
        client.loop_start()
        while not client.is_connected():
            pass
        client.publish("to/x", b"once", qos=1)
        client.publish("to/y", b"", qos=0, retain=True)
        client.publish("to/z", LONG, qos=1, properties=more)
        if version is V3:
            client.subscribe([(each.filter, each.qos) for each in SUBSCRIPTIONS])
        else:
            client.subscribe([(each.filter, SubscribeOptions(each.qos)) for each in SUBSCRIPTIONS])
        assert done.wait(20)
        client.disconnect()
        client.loop_stop()
    return recorder.frames


@pytest.mark.parametrize("version", [V3, V5])
def test_we_send_what_paho_sends(version):
    will = Message("status/a", b"offline", 1, True, 30)
    ours = Connect("a client", "ann", "hunter2", will, 77, receive_maximum=500, largest_frame_bytes=100_000)
    assert sent_by_paho(version) == [
        ours.frame(version),
        publish_frame(version, Message("to/x", b"once"), 1),
        publish_frame(version, Message("to/y", b"", 0, retain=True), 2),
        publish_frame(version, Message("to/z", LONG, 1, False, 60, STIMULI), 3),
        subscribe_frame(version, SUBSCRIPTIONS, 4),
        DISCONNECT,
    ]


def read_by_amqtt(frame: bytes):
    """Return a frame as amqtt reads it."""

    async def read():
        reader = Reader(frame)
        header = await MQTTFixedHeader.from_stream(reader)
        return await packet_class(header).from_stream(reader, fixed_header=header)

    return asyncio.run(read())


class Reader:
    """The interface from which amqtt reads."""

    def __init__(self, data):
        self._data = data

    async def read(self, count=-1):
        count = len(self._data) if count < 0 else count
        found, self._data = self._data[:count], self._data[count:]
        return found

    def feed_eof(self):
        return not self._data


def test_amqtt_reads_what_we_connect_with():
    found = read_by_amqtt(Connect("a client", "ann", "hunter2", WILL, 77).frame(V3))
    assert isinstance(found, ConnectPacket)
    assert (found.proto_name, found.proto_level, found.clean_session_flag, found.keep_alive) == ("MQTT", 4, True, 77)
    assert (found.client_id, found.username, found.password) == ("a client", "ann", "hunter2")
    assert (found.will_topic, bytes(found.will_message)) == ("status/a", b"offline")
    assert (found.will_qos, found.will_retain_flag) == (1, True)


@given(MESSAGES, NUMBERS)
def test_amqtt_reads_our_messages_and_we_its(message, number):
    frame = publish_frame(V3, message, number)
    found = read_by_amqtt(frame)
    assert (found.topic_name, bytes(found.data or b""), found.qos) == (message.topic, message.payload, message.qos)
    assert (bool(found.retain_flag), found.packet_id) == (message.retain, number if message.qos else None)
    its = PublishPacket.build(
        message.topic, message.payload, number if message.qos else None, False, message.qos, message.retain
    ).to_bytes()
    assert its == frame
    assert message_of(V3, its) == (plain(message), number if message.qos else 0)


def test_amqtt_and_we_agree_on_everything_else():
    found = read_by_amqtt(subscribe_frame(V3, SUBSCRIPTIONS, 7))
    assert (found.variable_header.packet_id, found.payload.topics) == (7, [("to/+", 1), ("from/#", 0)])
    assert acknowledgements([5, 0, 0xFFFF]) == PubackPacket.build(5).to_bytes() + PubackPacket.build(0xFFFF).to_bytes()
    assert answer_of(V3, ConnackPacket.build(0, 4).to_bytes()) == ConnectAnswer(4)
    assert answer_of(V3, PubackPacket.build(300).to_bytes()) == PublishAnswer(300, 0)
    assert answer_of(V3, SubackPacket.build(9, [1, 128]).to_bytes()) == SubscribeAnswer(9, (1, 128))


@given(MESSAGES, NUMBERS)
def test_mqtt5_reads_our_messages_and_we_its(message, number):
    frame = publish_frame(V5, message, number)
    found, length = mqtt5.read(frame)
    assert length == len(frame)
    assert (found.topic, found.payload, int(found.qos)) == (message.topic, message.payload, message.qos)
    assert (found.retain, found.packet_id) == (message.retain, number if message.qos else None)
    assert found.message_expiry_interval == message.expiry_seconds
    assert tuple(found.user_properties) == message.user_properties
    assert message_of(V5, found.write()) == (message, number if message.qos else 0)
    more = mqtt5.PublishPacket(
        message.topic,
        message.payload,
        qos=mqtt5.QoS(message.qos),
        packet_id=found.packet_id,
        duplicate=message.qos > 0,
        payload_format_indicator=1,
        content_type="a",
        response_topic="b",
        correlation_data=b"c",
        subscription_ids=[1, 300],
    )
    again = message.qos > 0
    assert message_of(V5, more.write())[0] == Message(message.topic, message.payload, message.qos, again=again)


def test_mqtt5_reads_what_we_connect_and_end_with():
    will = Message("status/a", b"offline", 1, True, 30, STIMULI)
    ours = Connect("a client", "ann", "hunter2", will, 77, receive_maximum=500, largest_frame_bytes=100_000)
    found, _ = mqtt5.read(ours.frame(V5))
    assert (found.client_id, found.username, found.password) == ("a client", "ann", b"hunter2")
    assert (found.clean_start, found.session_expiry_interval, found.keep_alive) == (True, 0, 77)
    assert (found.receive_max, found.max_packet_size, found.topic_alias_max) == (500, 100_000, 0)
    assert (found.will.topic, found.will.payload, int(found.will.qos), found.will.retain) == (
        "status/a", b"offline", 1, True,
    )  # fmt: skip
    assert (found.will.message_expiry_interval, tuple(found.will.user_properties)) == (30, STIMULI)
    found, _ = mqtt5.read(Connect("a client", session_seconds=604_800).frame(V5))
    assert (found.clean_start, found.session_expiry_interval) == (False, 604_800)
    found, _ = mqtt5.read(subscribe_frame(V5, SUBSCRIPTIONS, 7))
    assert [(each.pattern, int(each.max_qos), each.retain_as_published) for each in found.topic_filters] == [
        ("to/+", 1, False), ("from/#", 0, False),
    ]  # fmt: skip
    found, _ = mqtt5.read(disconnect_frame(V5, 0x81))
    assert int(found.reason_code) == 0x81
    assert [mqtt5.read(each)[0].packet_id for each in (acknowledgements([5]), acknowledgements([0xFFFF]))] == [
        5,
        0xFFFF,
    ]


def test_we_read_what_mqtt5_answers():
    limits = {"receive_max": 20, "max_packet_size": 300_000, "server_keep_alive": 30, "reason_str": "welcome"}
    more = {"assigned_client_id": "x", "topic_alias_max": 9, "session_expiry_interval": 4, "retain_available": False}
    answer = mqtt5.ConnAckPacket(**limits, **more, user_properties=[("a", "b"), ("a", "c")]).write()
    assert answer_of(V5, answer) == ConnectAnswer(0, 20, 300_000, 30, "welcome", retains=False, session_seconds=4)
    reasons = mqtt5.PubAckReasonCode
    for reason in (reasons.SUCCESS, reasons.NO_MATCHING_SUBSCRIBERS, reasons.NOT_AUTHORIZED, reasons.QUOTA_EXCEEDED):
        assert answer_of(V5, mqtt5.PubAckPacket(7, reason_code=reason).write()) == PublishAnswer(7, int(reason))
    explained = mqtt5.PubAckPacket(7, reason_code=reasons.QUOTA_EXCEEDED, reason_str="full")
    assert answer_of(V5, explained.write()) == PublishAnswer(7, 0x97)
    codes = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE, mqtt5.SubAckReasonCode.NOT_AUTHORIZED]
    answer = mqtt5.SubAckPacket(9, codes, reason_str="some").write()
    assert answer_of(V5, answer) == SubscribeAnswer(9, (1, 0x87))
    assert answer_of(V5, mqtt5.PingRespPacket().write()) == PingAnswer()
    ended = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER, reason_str="twice")
    assert answer_of(V5, ended.write()) == Farewell(0x8E, "twice")
    assert answer_of(V5, mqtt5.DisconnectPacket().write()) == Farewell(0)


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (V3, "e000"),  # only a client disconnects
        (V3, "2003000000"),  # longer than its content
        (V5, "200100"),
        (V5, "2003000005"),  # properties behind its end
        (V5, "200500000221ff"),  # half a property
        (V5, "2006000003210000"),  # a receive maximum of 0
        (V5, "2009000006210001210001"),  # twice a receive maximum
        (V5, "20050000026600"),  # an unknown property
        (V5, "e00200ff"),
        (V5, "9003000101"),
        (V3, "4003000100"),
        (V5, "400400010005"),
        (V3, "50020001"),  # PUBREC: nothing is sent with a quality of service of 2
        (V3, "62020001"),
        (V5, "f000"),
        (V3, "c000"),
    ],
)
def test_what_a_broker_must_not_send(version, frame):
    octets = bytes.fromhex(frame)
    bounds = frame_bounds(octets, 0)
    assert bounds.end == len(octets)
    with pytest.raises(MalformedFrameError):
        read_answer(version, octets[0], Octets(octets, *bounds))
