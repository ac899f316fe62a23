"""Frames of many messages, and the window of those that are in flight."""

from __future__ import annotations

import asyncio
import random
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.mqtt.connection import connect
from protocols.mqtt.frames import take_messages
from protocols.mqtt.link import BrokenOffError, BrokerAddress, Message, MqttLink, Version
from protocols.mqtt.publish_frames import NUMBER, OversizedMessageError, PublishFrames, beginnings
from protocols.mqtt.publishing import MOST_IN_FLIGHT
from protocols.mqtt.sent_frames import FIRST, NUMBERS, InFlight, number_of
from proxy.broker import running_broker
from tests.protocols.test_mqtt import ENGINES, TIME_LIMIT_SECONDS, Peer, at, running

PUBACK = struct.Struct("!BBH")


def frames_of(messages: list[Message]) -> PublishFrames:
    topics = [each.topic.encode() for each in messages]
    bodies = [
        len(topic).to_bytes(2, "big") + topic + NUMBER + each.payload
        for topic, each in zip(topics, messages, strict=True)
    ]
    octets, ends = beginnings(np.array([len(body) for body in bodies], np.int64))
    begin = [bytes(octets[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    frames = [first + body for first, body in zip(begin, bodies, strict=True)]
    frame_ends = np.cumsum([len(frame) for frame in frames])
    numbers_at = [end - len(body) + 2 + len(topic) for end, body, topic in zip(frame_ends, bodies, topics, strict=True)]
    return PublishFrames(bytearray(b"".join(frames)), frame_ends, np.array(numbers_at))


@given(st.lists(st.one_of(st.binary(max_size=150), st.integers(100, 40_000).map(bytes)), min_size=1, max_size=5))
@example([b"", b"", b"", b"", bytes(242)])  # its length is written as the number is
def test_frames_are_read_as_messages(payloads):
    sent = [Message("some/topic", each) for each in payloads]
    messages, numbers = [], []
    frames = frames_of(sent)
    frame = bytes(frames.numbered(0, len(frames), NUMBERS - 2))
    assert take_messages(frame, 0, messages, numbers) == len(frame)
    assert messages == sent
    assert numbers == [number_of(NUMBERS - 2 + place) for place in range(len(sent))]
    last = frame[-len(frames_of(sent[-1:]).buffer) :]
    number_at = last.index(b"some/topic") + len(b"some/topic")
    assert last[number_at : number_at + 2] == PUBACK.pack(0, 0, numbers[-1])[2:]
    renumbered = last[:number_at] + PUBACK.pack(0, 0, FIRST)[2:] + last[number_at + 2 :]
    assert bytes(frames.numbered(len(frames) - 1, len(frames), 0)) == renumbered


def test_a_message_too_long_for_mqtt_is_an_error():
    with pytest.raises(OversizedMessageError, match="268,435,456 bytes"):
        beginnings(np.array([1, 1 << 28]))


@given(st.integers(1, 300), st.integers(0, 2 * NUMBERS), st.randoms(), st.data())
def test_acknowledgements_count_from_the_first_without_a_gap(count, before, dice, data):
    window = InFlight()
    window.sent = window.acknowledged = before
    window.sent += count
    turns = list(range(before, before + count))
    if data.draw(st.booleans()):
        dice.shuffle(turns)
    acknowledged = set()
    while turns:
        some = [turns.pop(0) for _ in range(min(len(turns), dice.randrange(1, 20)))]
        acknowledged |= set(some)
        received = b"".join(PUBACK.pack(0x40, 2, number_of(each)) for each in some)
        others = data.draw(st.sampled_from([b"", b"\x40", b"\xd0\x00", PUBACK.pack(0x40, 2, 7)]))
        assert window.take(received + others, 0) == len(received)
        gap = next((turn for turn in range(before, before + count) if turn not in acknowledged), before + count)
        assert window.acknowledged == gap
    assert window.waiting == 0


def test_what_was_not_sent_cannot_be_acknowledged():
    window = InFlight()
    window.sent = 2
    assert window.take(PUBACK.pack(0x40, 2, FIRST + 5) * 2, 0) == 8
    assert window.acknowledged == 0


@pytest.mark.parametrize("engine", ENGINES)
async def test_many_messages_come_in_order_and_once_beside_single_ones(engine):
    sent = [Message(f"to/{number % 7}", bytes([number % 256]) * (number % 300)) for number in range(3 * MOST_IN_FLIGHT)]
    third = len(sent) // 3
    parts = [frames_of(sent[start : start + third]) for start in range(0, len(sent), third)]
    async with (
        running_broker(engine=engine) as broker,
        running(Peer(at(broker), "a", "to/+")) as receiver,
        running(Peer(at(broker), "b", "other", versions=[Version.V3_1_1])) as sender,
    ):
        await asyncio.gather(
            *(sender.link.publish_frames(each) for each in parts),
            *(sender.link.publish(Message("other", b"%d" % number)) for number in range(100)),
        )
        await receiver.until(len(sent))
        await sender.until(100)
    assert receiver.received == sent


async def test_no_more_are_in_flight_than_allowed_and_those_acknowledged_are_known_when_the_connection_breaks():
    """The broker reads all it can get, acknowledges some, and hangs up when nothing more comes."""
    acknowledged = 300
    received = bytearray()

    async def serve(reader, writer):
        await reader.read(1000)
        writer.write(b"\x20\x02\x00\x00")
        messages, numbers = [], []
        end, answered = 0, 0
        while len(messages) < MOST_IN_FLIGHT + acknowledged:
            received.extend(await reader.read(100_000))
            end = take_messages(bytes(received), end, messages, numbers)
            if len(messages) == MOST_IN_FLIGHT and not answered:
                answered = acknowledged
                writer.write(b"".join(PUBACK.pack(0x40, 2, number) for number in numbers[:answered]))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = BrokerAddress(port=server.sockets[0].getsockname()[1])
    frames = frames_of([Message("n", random.Random(number).randbytes(20)) for number in range(2 * MOST_IN_FLIGHT)])
    async with (
        server,
        connect(address, client_id="a", will=None, max_queued=10, versions=[Version.V3_1_1]) as connection,
    ):
        first = asyncio.create_task(connection.publish_frames(frames))
        second = asyncio.create_task(connection.publish_frames(frames))
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            with pytest.raises(BrokenOffError, match="broke") as caught:
                await first
            assert caught.value.acknowledged == acknowledged
            with pytest.raises(BrokenOffError) as caught:
                await second
            assert caught.value.acknowledged == 0


async def test_many_messages_without_a_connection_are_refused():
    link = MqttLink(BrokerAddress(port=1), client_id="a")
    with pytest.raises(BrokenOffError, match="not connected") as caught:
        await link.publish_frames(frames_of([Message("any", b"")]))
    assert caught.value.acknowledged == 0
