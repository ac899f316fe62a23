"""What either side takes of the other is bounded: acknowledgements, bytes that wait, times, limits of the broker."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc

import pytest

from protocols.mqtt import connection as connection_module
from protocols.mqtt import reconnecting
from protocols.mqtt.broker_socket import WRITTEN_LATER_BYTES
from protocols.mqtt.connection import BURST_MESSAGES, connect
from protocols.mqtt.frames import FrameBuffer, length_octets
from protocols.mqtt.inbox import MOST_BYTES, ReadingGate
from protocols.mqtt.link import BrokerAddress, LinkError, Message, Subscription, Version
from protocols.mqtt.reconnecting import AGAIN_SECONDS, VersionChoice
from tests.protocols.test_mqtt import TIME_LIMIT_SECONDS, Peer, away, running
from tests.protocols.test_mqtt_versions import (
    ACCEPTED,
    CONNECT,
    LEVEL_AT,
    PUBLISH,
    V3,
    V5,
    ScriptedBroker,
    accepting,
    connected,
    until,
)

NUMBERS = 65_535
LARGE = 1024**2


def numbered(number, payload=b""):
    """Return a message of MQTT 5 with a quality of service of 1, as a broker sends it."""
    body = b"\0\1t" + (number % NUMBERS + 1).to_bytes(2, "big") + b"\0" + payload
    return b"\x32" + length_octets(len(body)) + body


async def test_a_broker_that_sends_and_never_reads_gets_no_more_acknowledgements():
    #  broker   sends sends sends ...            reads
    #  link     takes, acknowledges | waits      goes on
    count, reads = 60_000, asyncio.Event()
    acknowledged = bytearray()

    async def serve(reader, writer):
        await reader.read(1_000)
        writer.transport.pause_reading()
        writer.write(ACCEPTED[V5] + b"".join(numbered(number) for number in range(count)))
        await reads.wait()
        writer.transport.resume_reading()
        while data := await reader.read(65_536):
            acknowledged.extend(data)
        writer.close()

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    server = await asyncio.start_server(serve, sock=listening)
    address, taken = BrokerAddress(port=listening.getsockname()[1]), 0

    async def take(messages):
        nonlocal taken
        taken += len(messages)

    async with server, connect(address, client_id="a", will=None, max_queued=10) as connection:
        transport = connection._socket._transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        receiving = asyncio.create_task(connection.receive(take))
        before = -1
        while taken > before:
            before = taken
            await asyncio.sleep(0.5)
        assert 0 < taken < count
        assert transport.get_write_buffer_size() <= WRITTEN_LATER_BYTES + 4 * BURST_MESSAGES
        reads.set()
        await until(lambda: taken == count and len(acknowledged) == 4 * count)
        receiving.cancel()


async def test_acknowledged_messages_wait_in_the_kernel_when_they_are_too_large_together():
    goes_on = asyncio.Event()
    count = 3 * MOST_BYTES // LARGE
    taken = 0

    async def take(messages):
        nonlocal taken
        await goes_on.wait()
        taken += len(messages)

    async with ScriptedBroker(accepting) as broker, connected(broker) as connection:
        receiving = asyncio.create_task(connection.receive(take))
        for number in range(count):
            broker.send(numbered(number, bytes(LARGE)))
        await until(lambda: connection._inbox.waiting_bytes > MOST_BYTES)
        await asyncio.sleep(0.2)
        assert connection._inbox.waiting_bytes <= MOST_BYTES + 2 * LARGE
        goes_on.set()
        await until(lambda: taken == count)
        receiving.cancel()


async def test_a_handler_that_publishes_gets_its_acknowledgement_though_too_much_waits():
    def answers(frame):
        return b"\x40\x02" + frame[5:7] if frame[0] >> 4 == PUBLISH else accepting(frame)

    goes_on = asyncio.Event()
    count = 2 * MOST_BYTES // LARGE
    taken = 0

    async with ScriptedBroker(answers) as broker, connected(broker) as connection:

        async def take(messages):
            nonlocal taken
            await goes_on.wait()
            await connection.publish(Message("r", b""))
            taken += len(messages)

        receiving = asyncio.create_task(connection.receive(take))
        for number in range(count):
            broker.send(numbered(number, bytes(LARGE)))
        await until(lambda: connection._inbox.waiting_bytes > MOST_BYTES)
        goes_on.set()
        await until(lambda: taken == count)
        receiving.cancel()


async def test_a_broker_that_is_not_read_has_not_hung():
    #  silence   0.3 s          the handler takes 1 s, and nothing is read meanwhile
    goes_on = asyncio.Event()

    async def take(_):
        await goes_on.wait()

    async with ScriptedBroker(accepting) as broker, connected(broker, silence_seconds=0.3) as connection:
        receiving = asyncio.create_task(connection.receive(take))
        for number in range(2 * MOST_BYTES // LARGE):
            broker.send(numbered(number, bytes(LARGE)))
        await until(lambda: connection._inbox.waiting_bytes > MOST_BYTES)
        await asyncio.sleep(1.0)
        assert not connection.hung
        goes_on.set()
        await until(lambda: not connection._inbox)
        receiving.cancel()


def test_the_gate_closes_when_too_much_waits_and_opens_for_answers():
    calls = []
    gate = ReadingGate(lambda: calls.append("pause"), lambda: calls.append("resume"), most_bytes=10)
    gate.look(10, awaits_answers=False)
    assert calls == []
    gate.look(11, awaits_answers=False)
    gate.pile_up(wanted=True)
    gate.pile_up(wanted=False)
    assert calls == ["pause"], "it stays closed when the other reason goes"
    gate.look(11, awaits_answers=True)
    gate.look(11, awaits_answers=False)
    gate.look(0, awaits_answers=False)
    gate.pile_up(wanted=True)
    assert (calls, gate.closed) == (["pause", "resume", "pause", "resume", "pause"], True)


async def test_a_message_that_is_never_acknowledged_ends_the_connection(monkeypatch):
    monkeypatch.setattr(connection_module, "ACKNOWLEDGED_SECONDS", 0.3)
    async with ScriptedBroker(accepting) as broker, connected(broker, silence_seconds=0.6) as connection:
        with pytest.raises(LinkError, match="did not acknowledge a message"):
            await asyncio.wait_for(connection.publish(Message("t", b"")), TIME_LIMIT_SECONDS)
        assert not connection.hung


async def test_messages_that_are_acknowledged_in_time_end_nothing(monkeypatch):
    monkeypatch.setattr(connection_module, "ACKNOWLEDGED_SECONDS", 0.3)

    def answers(frame):
        return b"\x40\x02" + frame[5:7] if frame[0] >> 4 == PUBLISH else accepting(frame)

    async with ScriptedBroker(answers) as broker, connected(broker, silence_seconds=0.6) as connection:
        for _ in range(20):
            await asyncio.wait_for(connection.publish(Message("t", b"")), TIME_LIMIT_SECONDS)
            await asyncio.sleep(0.04)


async def test_a_version_that_was_refused_by_chance_is_offered_again_later(monkeypatch):
    failed = []

    def answers(frame):
        if frame[0] >> 4 != CONNECT:
            return b""
        version = Version(frame[LEVEL_AT])
        if not failed:
            failed.append(version)
            return None
        return ACCEPTED[version]

    async with ScriptedBroker(answers) as broker, running(Peer(broker.address, "a")) as peer:
        assert broker.versions == [V5, V3]
        peer.link._versions._until = 0.0
        broker.send(b"\xd0\x01\x00")
        await away(peer.link)
        await asyncio.wait_for(peer.link.connected.wait(), TIME_LIMIT_SECONDS)
        assert broker.versions == [V5, V3, V5]


def test_a_lesser_version_is_offered_first_for_a_while():
    choice = VersionChoice([V5, V3])
    assert choice.order(0.0) == (V5, V3)
    choice.note(V3, 100.0)
    assert choice.order(100.0 + AGAIN_SECONDS - 1) == (V3, V5)
    choice.note(V3, 100.0 + AGAIN_SECONDS - 1)
    assert choice.order(100.0 + AGAIN_SECONDS) == (V5, V3), "further connections do not put it off"
    choice.note(V3, 100.0 + AGAIN_SECONDS)
    assert choice.order(100.0 + AGAIN_SECONDS + 1) == (V3, V5)
    choice.note(V5, 100.0 + AGAIN_SECONDS + 2)
    assert choice.order(100.0 + AGAIN_SECONDS + 3) == (V5, V3)
    assert VersionChoice([V3]).order(0.0) == (V3,)
    assert reconnecting.AGAIN_SECONDS >= 60.0


def test_a_frame_in_many_pieces_takes_little_more_memory_than_its_length():
    frame = b"\x30" + length_octets(LARGE) + bytes(LARGE)
    buffer = FrameBuffer()
    assert buffer.joined(frame[:1]) == frame[:1]
    tracemalloc.start()
    try:
        buffer.keep(frame[:1], 0)
        for place in range(1, len(frame) - 1, 7):
            joined = buffer.joined(frame[place : min(place + 7, len(frame) - 1)])
            if joined is not None:  # at the beginning, before its length is known
                buffer.keep(joined, 0)
        assert buffer.joined(frame[-1:]) == frame
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * LARGE


@pytest.mark.parametrize("accepted", [b"\x20\x03\x01\x00\x00", b"\x20\x03\x02\x00\x00"], ids=["session", "reserved"])
async def test_a_broker_that_continues_a_session_is_given_up(accepted):
    def answers(frame):
        return accepted if frame[LEVEL_AT] == V5 else b"\x20\x02\x01\x00"

    async with ScriptedBroker(answers) as broker:
        with pytest.raises(LinkError, match="continues a session, though a new one was asked for"):
            async with connected(broker):
                pass
        assert broker.versions == [V5, V3]


async def test_a_subscription_that_is_too_long_for_the_broker_is_not_sent():
    accepted = b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x20"
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match="a subscription of 108 bytes: the broker takes at most 32"):
            await connection.subscribe([Subscription("t" * 100)])
        await connection.publish(Message("t", b"x", 0))
        await until(lambda: len(broker.sent(PUBLISH)) == 1)
        assert len(broker.frames) == 2


@pytest.mark.parametrize(
    ("limits", "refused", "taken", "why"),
    [
        (b"\x24\x00", Message("t", b""), Message("t", b"", 0), "does not take a quality of service of 1"),
        (
            b"\x25\x00",
            Message("t", b"", 0, retain=True),
            Message("t", b"", 0),
            "does not take a message to be retained",
        ),
    ],
    ids=["quality", "retained"],
)
async def test_what_the_broker_does_not_take_is_not_sent(limits, refused, taken, why):
    accepted = b"\x20\x05\x00\x00\x02" + limits
    async with ScriptedBroker(lambda frame: accepting(frame, accepted)) as broker, connected(broker) as connection:
        with pytest.raises(LinkError, match=why):
            await connection.publish(refused)
        await connection.publish(taken)
        await until(lambda: len(broker.sent(PUBLISH)) == 1)
