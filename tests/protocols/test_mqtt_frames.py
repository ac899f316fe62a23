"""Bytes of a socket, cut into messages and other frames of MQTT."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.frames import MalformedFrameError, frame_end, take_messages
from protocols.mqtt.messages import Message

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


@pytest.mark.parametrize("received", [b"\x30\xff\xff\xff\xff\x01", b"\x32\x03\x00\x01t", b"\x30\x01\x00"])
def test_what_is_no_mqtt_is_refused(received):
    with pytest.raises(MalformedFrameError):
        taken(received + bytes(10))
