"""The client's side of a connection, without one."""

from __future__ import annotations

import itertools
import random

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.answers import ConnectAnswer, Farewell, PingAnswer, PublishAnswer, SubscribeAnswer
from protocols.mqtt.client_protocol import ClientProtocol
from protocols.mqtt.frames import LARGEST_FRAME_BYTES, FrameBuffer, UnsendableError, length_octets, take_messages
from protocols.mqtt.messages import Message, Subscription, Version
from protocols.mqtt.sent_frames import FIRST, Connect, publish_frame
from tests.protocols.test_mqtt_peers import MESSAGES, V3, V5, plain

ACCEPTED = {V3: b"\x20\x02\x00\x00", V5: b"\x20\x03\x00\x00\x00"}


def opened(version: Version, accepted: bytes = b"", **connect: int) -> ClientProtocol:
    """Return a protocol whose connection was accepted."""
    protocol = ClientProtocol(version, Connect("a", **connect))
    answer = protocol.receive(accepted or ACCEPTED[version])
    assert answer.trouble is None
    assert protocol.answer is not None
    return protocol


def puback(number: int) -> bytes:
    return b"\x40\x02" + number.to_bytes(2, "big")


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(0, 400), max_size=8), st.sampled_from(Version))
def test_wherever_the_bytes_are_cut_the_frames_are_the_same(messages, cuts, version):
    wanted = messages if version is V5 else [plain(each) for each in messages]
    frames = [publish_frame(version, each, number) for number, each in enumerate(messages, 1)]
    octets = ACCEPTED[version] + b"\xd0\x00".join(frames) + puback(7) + b"\xd0\x00"
    places = sorted({0, len(octets), *(min(cut * 7, len(octets)) for cut in cuts)})
    protocol, received, numbers, answers = ClientProtocol(version, Connect("a")), [], [], []
    for start, end in itertools.pairwise(places):
        found = protocol.receive(octets[start:end])
        assert found.trouble is None
        received += found.messages
        numbers += found.numbers
        answers += found.answers
    assert received == wanted
    assert numbers == [number if each.qos else 0 for number, each in enumerate(messages, 1)]
    pings = [PingAnswer()] * max(0, len(messages) - 1)
    assert answers == [ConnectAnswer(0), *pings, PublishAnswer(7, 0), PingAnswer()]
    assert protocol.unacknowledged == sum(each.qos for each in messages)


@given(st.binary(max_size=200), st.sampled_from(Version), st.booleans())
def test_any_bytes_lead_to_frames_or_trouble(octets, version, accepted):
    protocol = opened(version) if accepted else ClientProtocol(version, Connect("a"))
    found = protocol.receive(octets)
    if found.trouble is None:
        protocol.receive(octets)
    assert len(found.messages) == len(found.numbers) <= len(octets) / 5 + 1


def test_work_is_in_proportion_to_the_bytes(monkeypatch):
    """A frame of 16 MiB in pieces of a packet each; joined with each of them it would take minutes."""
    read, joined = [], FrameBuffer.joined

    def counted(self, data):
        found = joined(self, data)
        read.append(len(found or b""))
        return found

    monkeypatch.setattr(FrameBuffer, "joined", counted)
    body = b"\x00\x01t\x00\x01" + bytes(16 * 1024**2)
    frame = b"\x32" + length_octets(len(body)) + body
    protocol, messages = opened(V3), []
    for start in range(0, len(frame), 1_400):
        messages += protocol.receive(frame[start : start + 1_400]).messages
    assert [len(each.payload) for each in messages] == [16 * 1024**2]
    assert sum(read) < 2 * len(frame)


def test_a_length_beyond_the_limit_is_refused_at_once():
    found = opened(V3).receive(b"\x30" + length_octets(LARGEST_FRAME_BYTES))
    assert found.trouble is not None
    assert "33,554,4" in str(found.trouble)


@pytest.mark.parametrize("version", list(Version))
def test_what_precedes_a_malformed_frame_counts(version):
    good = publish_frame(version, Message("t", b"x"), 1)
    found = opened(version).receive(good + puback(3) + b"\x30\xff\xff\xff\xff\xff")
    assert ([each.payload for each in found.messages], found.answers) == ([b"x"], [PublishAnswer(3, 0)])
    assert found.trouble is not None


@pytest.mark.parametrize(
    "octets",
    [publish_frame(V5, Message("t", b""), 1), puback(1), b"\xd0\x00", b"\xe0\x00"],
    ids=lambda each: each.hex(),
)
def test_nothing_comes_before_the_connection_is_accepted(octets):
    found = ClientProtocol(V5, Connect("a")).receive(octets)
    assert (found.messages, found.answers, found.trouble is None) == ([], [], False)


def test_a_connection_is_accepted_once():
    assert opened(V5).receive(ACCEPTED[V5]).trouble is not None


def test_an_older_broker_refuses_the_version():
    for octets in (b"\x20\x02\x00\x01", b"\x20\x02\x00\x00", b"\x20\x03\x00\x84\x00"):
        (answer,) = ClientProtocol(V5, Connect("a")).receive(octets).answers
        assert answer.refuses_version
    (answer,) = ClientProtocol(V3, Connect("a")).receive(b"\x20\x02\x00\x04").answers
    assert (answer.code, answer.refuses_version) == (4, False)


def test_numbers_are_not_used_twice_while_they_are_in_flight():
    protocol = opened(V3)
    first, _ = protocol.publish(Message("t", b""))
    numbers = {protocol.publish(Message("t", b""))[0] for _ in range(FIRST - 2)}
    assert numbers | {first} == set(range(1, FIRST))
    with pytest.raises(UnsendableError, match="too many"):
        protocol.publish(Message("t", b""))
    assert protocol.publish(Message("t", b"", 0))[0] == 0
    protocol.receive(puback(5_000))
    protocol.receive(puback(5_000))  # acknowledges nothing
    assert protocol.publish(Message("t", b""))[0] == 5_000
    with pytest.raises(UnsendableError):
        protocol.subscribe([Subscription("#")])


def test_a_number_is_in_the_frame():
    protocol = opened(V5)
    for _ in range(3):
        number, frame = protocol.publish(Message("t", b"x"))
        assert mqtt5.read(frame)[0].packet_id == number


def test_a_message_longer_than_the_broker_takes_is_not_sent_and_uses_no_number():
    protocol = opened(V5, mqtt5.ConnAckPacket(max_packet_size=100).write())
    with pytest.raises(UnsendableError, match="at most 100"):
        protocol.publish(Message("topic", bytes(100)))
    assert protocol.publish(Message("t", bytes(90)))[0] == 2


def test_the_answer_to_a_subscription_is_none_to_a_message():
    protocol = opened(V3)
    number, _ = protocol.publish(Message("t", b"", 1))
    found = protocol.receive(b"\x90\x02" + number.to_bytes(2, "big"))
    assert found.trouble is not None
    assert "did not get" in found.trouble.message


def test_subscriptions_are_answered_filter_by_filter():
    protocol = opened(V5)
    number, _ = protocol.subscribe([Subscription("a"), Subscription("b")])
    answer = mqtt5.SubAckPacket(number, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * 2).write()
    assert protocol.receive(answer).answers == [SubscribeAnswer(number, (1, 1))]
    assert protocol.receive(answer).trouble is not None


def test_a_broker_that_sends_more_than_it_may_is_given_up():
    """As many messages as there are numbers; a receive maximum is not held against it, as Mosquitto exceeds it."""
    protocol = opened(V5, receive_maximum=10)
    frame = publish_frame(V5, Message("t", b""), 1)
    assert protocol.receive(frame * 65_535).trouble is None
    protocol.acknowledge([1, 2, 0])
    assert protocol.receive(frame * 2 + publish_frame(V5, Message("t", b"", 0), 0)).trouble is None
    assert "65,536 messages" in str(protocol.receive(frame).trouble)


def test_a_message_sent_twice_comes_twice():
    protocol = opened(V3)
    once = publish_frame(V3, Message("t", b"x"), 4)
    again = bytes((once[0] | 0x08,)) + once[1:]
    found = protocol.receive(once + again)
    assert (found.messages, found.numbers) == ([Message("t", b"x"), Message("t", b"x", again=True)], [4, 4])
    assert protocol.acknowledge(found.numbers) == puback(4) * 2


def test_the_broker_ends_the_connection_with_a_reason():
    assert opened(V5).receive(b"\xe0\x01\x8b").answers == [Farewell(0x8B)]
    assert opened(V3).receive(b"\xe0\x00").trouble is not None


def test_farewells():
    protocol = opened(V5)
    assert (protocol.disconnect(), protocol.reject()) == (b"\xe0\x00", b"\xe0\x01\x81")
    assert (opened(V3).disconnect(), opened(V3).reject()) == (b"\xe0\x00", b"")


def test_acknowledgements_of_both_kinds_of_numbers_come_mixed():
    protocol = opened(V3)
    numbers = [protocol.publish(Message("t", b""))[0] for _ in range(3)]
    protocol.in_flight.sent = 4
    octets = [puback(FIRST + place) for place in range(4)] + [puback(number) for number in numbers]
    random.Random(3).shuffle(octets)
    message = publish_frame(V3, Message("t", b"x"), 9)
    found = protocol.receive(message.join(octets))
    assert {each.number for each in found.answers} == set(numbers)
    assert (protocol.in_flight.acknowledged, len(found.messages)) == (4, 6)
    assert take_messages(message, 0, [], []) == len(message)
