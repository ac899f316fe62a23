"""Bytes of a socket, cut into messages and other frames of MQTT."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.answers import read_answer
from protocols.mqtt.frames import (
    LARGEST_LENGTH,
    FrameBuffer,
    MalformedFrameError,
    Octets,
    UnsendableError,
    frame_bounds,
    frame_end,
    length_octets,
    read_properties,
    take_messages,
    topic_of,
)
from protocols.mqtt.messages import Message, Subscription, Version
from protocols.mqtt.sent_frames import Connect, publish_frame, subscribe_frame

PINGRESP, SUBACK = b"\xd0\x00", b"\x90\x03\x00\x01\x01"


def framed(message, number):
    """Encode a message as in section 3.3 of MQTT 3.1.1, in the simplest way."""
    name = message.topic.encode()
    body = len(name).to_bytes(2, "big") + name + (number.to_bytes(2, "big") if message.qos else b"") + message.payload
    length, rest = [], len(body)
    while rest > 127:
        length.append(rest % 128 | 128)
        rest //= 128
    return bytes([0x30 | message.qos << 1 | message.retain, *length, rest]) + body


def taken(received, start=0):
    messages, numbers = [], []
    end = take_messages(received, start, messages, numbers)
    return list(zip(messages, numbers, strict=True)), end


@given(
    st.lists(
        st.builds(
            Message,
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
            st.one_of(st.binary(max_size=20), st.integers(100, 20_000).map(bytes)),
            st.sampled_from((0, 1)),
            st.booleans(),
        ),
        max_size=5,
    ),
    st.data(),
)
def test_messages_come_as_they_were_sent_wherever_they_are_cut(sent, data):
    numbered = [(each, number if each.qos else 0) for number, each in enumerate(sent, 1)]
    received = b"".join(framed(*each) for each in numbered)
    assert taken(received + PINGRESP) == (numbered, len(received))
    cut = data.draw(st.integers(0, len(received)))
    first, end = taken(received[:cut])
    assert frame_end(received[:cut], end) is None
    assert first + taken(received, end)[0] == numbered


def test_other_frames_are_left_alone_and_their_ends_found():
    received = SUBACK + framed(Message("t", b"x"), 7) + PINGRESP
    assert taken(received) == ([], 0)
    assert frame_end(received, 0) == len(SUBACK)
    assert taken(received, len(SUBACK)) == ([(Message("t", b"x"), 7)], len(received) - 2)
    assert frame_end(received, len(received) - 2) == len(received)
    assert frame_end(SUBACK[:-1], 0) is None


@pytest.mark.parametrize(
    "received",
    [
        b"\x30\xff\xff\xff\xff\x01",
        b"\x32\x03\x00\x01t",
        b"\x30\x01\x00",
        b"\x30\x02\x00\x00",  # no topic
        b"\x32\x05\x00\x01t\x00\x00",  # no number
        b"\x34\x05\x00\x01t\x00\x01",  # a quality of service of 2
        b"\x36\x05\x00\x01t\x00\x01",
    ],
)
def test_what_is_no_mqtt_is_refused(received):
    with pytest.raises(MalformedFrameError):
        taken(received + bytes(10))


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x01",
        b"\x02\x02\x00",
        b"\x03\x23\x00\x01",
        b"\x02\x05\x00",
        b"\x05\x26\x00\x01\xff\x00",
        b"\x04\x01\x00\x01\x00",
        b"\x01\x02\x00\x00\x00\x3c",
    ],
    ids=["none", "short", "half", "alias", "unknown", "no text", "twice", "into the payload"],
)
def test_messages_with_wrong_properties_are_refused(properties):
    with pytest.raises(MalformedFrameError):
        take_messages(b"\x30" + length_octets(3 + len(properties)) + b"\0\1t" + properties, 0, [], [], Version.V5)


def test_a_frame_longer_than_allowed_is_refused_before_it_is_there():
    assert frame_bounds(b"\x30" + length_octets(998), 0, 1_001) == (3, 1_001)
    with pytest.raises(MalformedFrameError, match="1,002 bytes"):
        frame_bounds(b"\x30" + length_octets(999), 0, 1_001)


def test_a_frame_that_comes_byte_by_byte_is_joined_once():
    frame = framed(Message("t", bytes(5_000)), 1)
    buffer, looks, found = FrameBuffer(), 0, []
    for place in range(len(frame)):
        received = buffer.joined(frame[place : place + 1])
        if received is not None:
            looks += 1
            messages, end = taken(received)
            found += messages
            buffer.keep(received, end)
    assert found == [(Message("t", bytes(5_000)), 1)]
    assert looks == 4, "once for each byte of its kind and length, and once at its end"


def test_long_topics_are_not_kept():
    before = topic_of.__globals__["_known_topic"].cache_info().currsize
    assert topic_of(b"t" * 1_000) == "t" * 1_000
    assert topic_of.__globals__["_known_topic"].cache_info().currsize == before


@given(st.binary(max_size=60), st.sampled_from(Version))
def test_any_bytes_are_frames_or_refused(octets, version):
    for first in (0x30, 0x32, *octets[:1]):
        with contextlib.suppress(MalformedFrameError):
            frame = bytes((first,)) + octets
            end = take_messages(frame, 0, [], [], version)
            bounds = frame_bounds(frame, end)
            if bounds is not None and bounds.end <= len(frame):
                read_answer(version, frame[end], Octets(frame, *bounds))
    with contextlib.suppress(MalformedFrameError):
        read_properties(Octets(octets, 0, len(octets)))


@given(st.integers(0, LARGEST_LENGTH))
def test_lengths_are_read_as_they_were_written(length):
    octets = length_octets(length)
    assert Octets(octets, 0, len(octets)).length() == length
    assert len(octets) == next(count for count in range(1, 5) if length < 128**count)


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "nil\0", "\ud800", "t" * 65_536])
def test_there_are_topics_that_nothing_can_be_published_on(topic):
    with pytest.raises(UnsendableError):
        publish_frame(Version.V5, Message(topic, b""), 1)


def test_what_is_too_long_is_not_sent():
    with pytest.raises(UnsendableError):
        publish_frame(Version.V5, Message("t", bytes(LARGEST_LENGTH)), 1)
    with pytest.raises(UnsendableError):
        Connect("c", will=Message("t", bytes(70_000))).frame(Version.V5)
    with pytest.raises(UnsendableError):
        subscribe_frame(Version.V5, [Subscription("t" * 70_000)], 1)
